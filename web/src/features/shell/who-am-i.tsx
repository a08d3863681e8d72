import { App, Button } from "antd";
import { useState } from "react";
import { type OperationClass, operationClasses } from "@/api/access";
import { signOut } from "@/api/session";
import { tellOtherTabs } from "@/app/other-tabs";
import { useMessages } from "@/settings/context";
import { useSession } from "@/ui/rights";
import { shellCommand } from "./commands";

/** Who is signed in, what they may do where, and the way out. */
export function WhoAmI() {
  const { shell, terms, common } = useMessages();
  const session = useSession();
  const { message } = App.useApp();
  const [isLeaving, setLeaving] = useState(false);
  const rightOf = (kind: OperationClass) => session.allowed.find((allowed) => allowed.class === kind);
  const scopesOf = (kind: OperationClass) => rightOf(kind)?.scopes ?? [];
  const leave = async () => {
    setLeaving(true);
    try {
      await signOut();
    } catch (error) {
      setLeaving(false);
      const why = error instanceof Error ? error.message : String(error);
      void message.error({ key: "sign-out", content: shell.signOutFailed(why), duration: 10 });
      return;
    }
    tellOtherTabs();
    // A new load of the page forgets everything that was read.
    location.assign("/sign-in");
  };
  return (
    <div className="who-card">
      <strong>{session.user ?? session.app}</strong>
      <p className="muted">{shell.mayDo}</p>
      <dl>
        {operationClasses.map((kind) => (
          <div key={kind} title={terms.rightHelp[kind]}>
            <dt>{terms.right[kind]}</dt>
            <dd className={scopesOf(kind).length === 0 ? "muted" : ""}>
              {common.list(
                scopesOf(kind).map((scope) => (scope === "everything" ? terms.scopeEverything : scope)),
              ) || shell.nothing}
              {rightOf(kind)?.bounds?.map((bound) => (
                <div key={bound.scopes.join()} className="muted">
                  {shell.within(
                    common.list(bound.scopes),
                    common.list(bound.allow_users),
                    common.list(bound.allow_roots),
                  )}
                </div>
              ))}
            </dd>
          </div>
        ))}
      </dl>
      <div className="row">
        <Button size="small" onClick={() => shellCommand("help")}>
          {shell.shortcuts}
        </Button>
        <span className="grow" />
        <Button size="small" loading={isLeaving} onClick={() => void leave()}>
          {shell.signOut}
        </Button>
      </div>
    </div>
  );
}
