import type { IncomingMessage, ServerResponse } from "node:http";

export function sessionBridge(
  server: string,
): (req: IncomingMessage, res: ServerResponse, next: () => void) => void;
