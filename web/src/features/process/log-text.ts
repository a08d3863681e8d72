const TAB = 9;
const NEWLINE = 10;
const ESCAPE = 27;
const DELETE = 127;
const SPACE = 32;
const REPLACEMENT = "\uFFFD";

/** Colours of terminals are left out, other control characters are shown as such. */
export function plainText(text: string): string {
  let plain = "";
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === ESCAPE && text[at + 1] === "[") {
      at = endOfSequence(text, at + 2);
    } else if (code === 13 && text.charCodeAt(at + 1) === NEWLINE) {
      // Lines of Windows.
    } else if ((code < SPACE && code !== TAB && code !== NEWLINE) || code === DELETE) {
      plain += REPLACEMENT;
    } else {
      plain += text[at];
    }
  }
  return plain;
}

/** Its last character: a letter or one of `@[\]^_`{|}~`. */
function endOfSequence(text: string, from: number): number {
  let at = from;
  while (at < text.length && text.charCodeAt(at) >= SPACE && text.charCodeAt(at) < 64) at += 1;
  return Math.min(at, text.length - 1);
}
