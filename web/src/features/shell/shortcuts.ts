import { useEffect } from "react";
import { useNavigate } from "react-router";
import { isTyping } from "@/ui/use-row-keys";
import { shellCommand } from "./commands";

/** After `g`. */
export const goKeys: Record<string, string> = {
  o: "/",
  p: "/processes",
  h: "/hosts",
  t: "/tasks",
  e: "/events",
  l: "/pools",
  a: "/audit",
};

const SEQUENCE_MS = 900;

/** `/` and Ctrl-K open the palette, `?` the help, `g` and a letter a page. */
export function useShortcuts() {
  const navigate = useNavigate();
  useEffect(() => {
    let goUntil = 0;
    const listen = (event: KeyboardEvent) => {
      if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        shellCommand("palette");
        return;
      }
      if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
      const path = goKeys[event.key];
      if (path && Date.now() < goUntil) {
        event.preventDefault();
        void navigate(path);
      } else if (event.key === "/") {
        event.preventDefault();
        shellCommand("palette");
      } else if (event.key === "?") shellCommand("help");
      goUntil = event.key === "g" ? Date.now() + SEQUENCE_MS : 0;
    };
    document.addEventListener("keydown", listen);
    return () => document.removeEventListener("keydown", listen);
  }, [navigate]);
}
