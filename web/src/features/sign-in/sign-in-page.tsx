import { useQueryClient } from "@tanstack/react-query";
import { Alert, Button, Form, Input, Segmented } from "antd";
import { useEffect, useState } from "react";
import { useNavigate, useSearchParams } from "react-router";
import { ApiError } from "@/api/client";
import { type Credentials, sessionQuery, signIn } from "@/api/session";
import { tellOtherTabs } from "@/app/other-tabs";
import { useMessages, useSettings } from "@/settings/context";
import "./sign-in.css";

type Fields = { token?: string; user?: string; password?: string };

/**
 * Only addresses of this console: a link must not lead elsewhere after the sign-in. A browser drops tabs and newlines
 * from an address, takes a backslash for a slash and resolves dots, so what counts is what it would make of it.
 */
export function safeTarget(to: string | null): string {
  if (!to?.startsWith("/") || !URL.canParse(to, location.origin)) return "/";
  const url = new URL(to, location.origin);
  const path = url.pathname + url.search + url.hash;
  return url.origin === location.origin && !path.startsWith("//") ? path : "/";
}

/** The one-time code of a link `/sign-in#link=CODE`, which is taken out of the address at once. */
function takeLink(): string | null {
  const code = new URLSearchParams(location.hash.slice(1)).get("link");
  if (code) history.replaceState(history.state, "", location.pathname + location.search);
  return code;
}

const linkAtLoad = takeLink();

export function Component() {
  const { signIn: text, common, shell } = useMessages();
  const { preferences, change } = useSettings();
  const otherLanguage = preferences.language === "en" ? "中文" : "EN";
  const client = useQueryClient();
  const navigate = useNavigate();
  const [params] = useSearchParams();
  const [way, setWay] = useState<"token" | "password">("token");
  const [error, setError] = useState("");
  const [isBusy, setBusy] = useState(linkAtLoad !== null);

  const enter = async (credentials: Credentials) => {
    setBusy(true);
    setError("");
    try {
      const session = await signIn(credentials);
      // What somebody else has read before is not for this one.
      client.clear();
      client.setQueryData(sessionQuery.queryKey, session);
      tellOtherTabs();
      await navigate(safeTarget(params.get("to")), { replace: true });
    } catch (cause) {
      const isLink = "link" in credentials && cause instanceof ApiError && cause.status === 401;
      setError(isLink ? text.linkUsed : cause instanceof Error ? cause.message : String(cause));
      setBusy(false);
    }
  };

  // biome-ignore lint/correctness/useExhaustiveDependencies: the link counts once, when the page opens
  useEffect(() => {
    document.title = `${text.title} · ${common.product}`;
    if (linkAtLoad) void enter({ link: linkAtLoad });
  }, []);

  const submit = ({ token, user, password }: Fields) => {
    void enter(
      way === "token"
        ? { token: token?.trim() ?? "" }
        : { user: user?.trim() ?? "", password: password ?? "" },
    );
  };

  return (
    <main className="sign-in">
      <div className="panel sign-in-card">
        <div className="row">
          <img src="/favicon.svg" alt="" width="28" height="28" />
          <h1 className="grow">{common.product}</h1>
          <Button
            type="text"
            size="small"
            aria-label={`${shell.language}: ${otherLanguage}`}
            onClick={() => change({ language: preferences.language === "en" ? "zh" : "en" })}
          >
            {otherLanguage}
          </Button>
        </div>
        <Segmented
          block
          value={way}
          onChange={(value) => setWay(value as "token" | "password")}
          options={[
            { value: "token", label: text.withToken },
            { value: "password", label: text.withPassword },
          ]}
        />
        <Form layout="vertical" onFinish={submit} disabled={isBusy} requiredMark={false}>
          {way === "token" ? (
            <Form.Item
              name="token"
              label={text.token}
              rules={[{ required: true, message: "" }]}
              extra={
                <>
                  {text.tokenHelp} <code>proctor user token create NAME</code>
                </>
              }
            >
              <Input.Password autoComplete="off" autoFocus placeholder="pt_…" />
            </Form.Item>
          ) : (
            <>
              <Form.Item name="user" label={text.user} rules={[{ required: true, message: "" }]}>
                <Input autoComplete="username" autoFocus />
              </Form.Item>
              <Form.Item name="password" label={text.password} rules={[{ required: true, message: "" }]}>
                <Input.Password autoComplete="current-password" />
              </Form.Item>
            </>
          )}
          <Button type="primary" htmlType="submit" block loading={isBusy}>
            {isBusy && linkAtLoad ? text.linkBusy : text.submit}
          </Button>
        </Form>
        {error && <Alert type="error" title={error} role="alert" showIcon />}
      </div>
    </main>
  );
}
