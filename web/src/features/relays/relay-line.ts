import { quoted } from "@/ui/command-line";

export type RelaySetup = { token: string; upstream: string; listen: string; cloud: number };

/** The first start of a relay; no argument shows its token. */
export function relayLine({ token, upstream, listen, cloud }: RelaySetup): string {
  return (
    `PROCTOR_TOKEN=${quoted(token)} proctor relay --upstream ${quoted(upstream)} --listen ${quoted(listen)}` +
    ` --cloud-id ${cloud} --state-dir /var/lib/proctor-relay`
  );
}
