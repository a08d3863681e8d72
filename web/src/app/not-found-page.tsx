import { NotFound } from "@/ui/states";

export function Component() {
  return <NotFound />;
}
