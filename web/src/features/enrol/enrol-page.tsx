import { useState } from "react";
import type { Schemas } from "@/api/client";
import { useMessages } from "@/settings/context";
import { Page, Panel } from "@/ui/page";
import { Awaiting } from "./awaiting";
import { JoinLine } from "./join-line";
import { Joined } from "./joined";
import { type NewTokenFields, TokenForm } from "./token-form";
import { TokenList } from "./token-list";
import "./enrol.css";

export type Made = { token: Schemas["CreatedToken"]; fields: NewTokenFields; at: number };

/** Choose what the token is good for, paste one line, and watch who joins. */
export function Component() {
  const { enrol: text } = useMessages();
  const [made, setMade] = useState<Made | null>(null);
  return (
    <Page title={text.title}>
      <div className="enrol-grid">
        <Panel title={`1. ${text.step.token}`}>
          <TokenForm
            key={made?.token.id ?? "new"}
            isMade={made !== null}
            onMade={setMade}
            onAgain={() => setMade(null)}
          />
        </Panel>
        <div className="stack">
          <Panel title={`2. ${text.step.paste}`}>
            <JoinLine made={made} />
          </Panel>
          <Panel title={`3. ${text.step.watch}`}>
            <Joined made={made} />
          </Panel>
        </div>
      </div>
      <Awaiting />
      <TokenList />
    </Page>
  );
}
