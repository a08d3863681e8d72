import { lazy, Suspense, useEffect, useState } from "react";
import { onShellCommand } from "./commands";
import { useShortcuts } from "./shortcuts";

const Palette = lazy(() => import("./palette"));
const Help = lazy(() => import("./help"));

/** The palette and the help come when they are asked for the first time. */
export function ShellDialogs() {
  const [open, setOpen] = useState<"palette" | "help" | null>(null);
  useShortcuts();
  useEffect(() => {
    const stops = [
      onShellCommand("palette", () => setOpen("palette")),
      onShellCommand("help", () => setOpen("help")),
    ];
    return () => {
      for (const stop of stops) stop();
    };
  }, []);
  const close = () => setOpen(null);
  return (
    <Suspense fallback={null}>
      {open === "palette" && <Palette onClose={close} />}
      {open === "help" && <Help onClose={close} />}
    </Suspense>
  );
}
