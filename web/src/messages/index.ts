import type { Language } from "@/settings/preferences";
import type { en } from "./en";

/** Every text of the console; a key that one language lacks does not compile. */
export type Messages = typeof en;

export async function loadMessages(language: Language): Promise<Messages> {
  return language === "zh" ? (await import("./zh")).zh : (await import("./en")).en;
}
