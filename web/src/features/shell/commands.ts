/** Asks the frame for something from anywhere: its dialogs, or the menu of a narrow screen. */
export type ShellCommand = "palette" | "help" | "menu";

const bus = new EventTarget();

export function shellCommand(command: ShellCommand) {
  bus.dispatchEvent(new Event(command));
}

export function onShellCommand(command: ShellCommand, listener: () => void): () => void {
  bus.addEventListener(command, listener);
  return () => bus.removeEventListener(command, listener);
}
