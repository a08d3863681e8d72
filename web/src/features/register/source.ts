import { parse, stringify } from "smol-toml";
import type { Registration } from "@/api/processes";

/** A registration as text. */
export type Source = { form: "json" | "toml"; text: string };

export function sourceOf(registration: Registration, form: Source["form"]): Source {
  const text = form === "json" ? JSON.stringify(registration, null, 2) : stringify(registration);
  return { form, text };
}

/** What the text says; an error where it is not of its form. */
export function registrationFrom({ form, text }: Source): Registration {
  // The server checks every field and names the one that does not fit.
  return (form === "json" ? JSON.parse(text) : parse(text)) as Registration;
}
