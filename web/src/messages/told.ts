/** What the server says, with the id and the arguments of the sentence where it is one of the catalogue. */
export interface Told {
  message: string;
  message_id?: string | null;
  message_args?: object | null;
}

/** An event, whose message is called its content. */
export const ofEvent = (event: Omit<Told, "message"> & { content: string }): Told => ({
  ...event,
  message: event.content,
});

/** Why something is as it is, which is called its reason. */
export const ofReason = (because: {
  reason?: string | null;
  reason_id?: string | null;
  reason_args?: object | null;
}): Told => ({
  message: because.reason ?? "",
  message_id: because.reason_id,
  message_args: because.reason_args,
});

/** What somebody should know besides, which is called a note. */
export const ofNote = (noted: {
  note?: string | null;
  note_id?: string | null;
  note_args?: object | null;
}): Told => ({ message: noted.note ?? "", message_id: noted.note_id, message_args: noted.note_args });

/** What went wrong, which is called an error. */
export const ofFailure = (failed: {
  error?: string | null;
  error_id?: string | null;
  error_args?: object | null;
}): Told => ({ message: failed.error ?? "", message_id: failed.error_id, message_args: failed.error_args });

/** By id; `{name}` stands for the argument of that name. */
export type Sentences = Record<string, string>;

/** In the words of `sentences`; the message as it is where a part of it is not there. */
export function told(sentences: Sentences, { message, message_id: id, message_args: args }: Told): string {
  return (id && sentence(sentences, id, args ?? {})) || message;
}

function sentence(sentences: Sentences, id: string, args: object): string | undefined {
  const template = Object.hasOwn(sentences, id) ? sentences[id] : undefined;
  let isWhole = template !== undefined;
  const text = template?.replace(/\{(\w+)\}/g, (braces, name: string) => {
    // Braces around anything but an argument are meant as such.
    if (!Object.hasOwn(args, name)) return braces;
    const part = argument(sentences, (args as Record<string, unknown>)[name]);
    isWhole &&= part !== undefined;
    return part ?? "";
  });
  return isWhole ? text : undefined;
}

function argument(sentences: Sentences, arg: unknown): string | undefined {
  if (typeof arg === "string") return arg;
  const { id, args } = (arg ?? {}) as { id?: unknown; args?: object };
  return typeof id === "string" ? sentence(sentences, id, args ?? {}) : undefined;
}
