import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { Navigate, Outlet, useLocation, useNavigation } from "react-router";
import { onSignedOut } from "@/api/client";
import { sessionQuery } from "@/api/session";
import { watchOtherTabs } from "@/app/other-tabs";
import { useMessages } from "@/settings/context";
import { SessionProvider } from "@/ui/rights";
import { Failure, Skeleton } from "@/ui/states";
import { ConnectionBar } from "./connection-bar";
import { ShellDialogs } from "./dialogs";
import { useLiveCache } from "./live-cache";
import { Rail } from "./rail";
import { TopBar } from "./top-bar";
import "./shell.css";

/** The frame around every page; asks who is signed in first. */
export function Shell() {
  const client = useQueryClient();
  const session = useQuery(sessionQuery);
  const location = useLocation();

  useEffect(() => watchOtherTabs(), []);
  useEffect(
    () =>
      onSignedOut(() => {
        client.setQueryData(sessionQuery.queryKey, null);
        // What was read goes with the session that could read it.
        client.removeQueries({ predicate: (query) => query.queryKey[0] !== sessionQuery.queryKey[0] });
      }),
    [client],
  );

  if (session.isPending) return <Skeleton lines={8} />;
  if (session.data === null) {
    const back =
      location.pathname === "/" ? "" : `?to=${encodeURIComponent(location.pathname + location.search)}`;
    return <Navigate to={`/sign-in${back}`} replace />;
  }
  if (!session.data) return <Failure error={session.error} onRetry={() => void session.refetch()} />;
  return (
    <SessionProvider value={session.data}>
      <Frame />
    </SessionProvider>
  );
}

function Frame() {
  const { shell } = useMessages();
  const navigation = useNavigation();
  useLiveCache();
  return (
    <div className="shell">
      <a className="skip" href="#main">
        {shell.skip}
      </a>
      <Rail />
      <div className="shell-main">
        <TopBar />
        <ConnectionBar />
        <div className={`progress${navigation.state === "loading" ? " is-on" : ""}`} aria-hidden="true" />
        <main id="main" tabIndex={-1}>
          <Outlet />
        </main>
      </div>
      <ShellDialogs />
    </div>
  );
}
