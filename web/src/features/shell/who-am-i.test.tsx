import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { setCsrf } from "@/api/client";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import { WhoAmI } from "./who-am-i";

/** Signs out; the session's DELETE answers with this. */
async function signOutWith(status: number, message = "") {
  const assign = vi.fn();
  vi.stubGlobal("location", { origin: location.origin, href: location.href, assign });
  const body = { error: { code: "x", message } };
  const asked = fakeApi({ "DELETE /api/v1/session": () => ({ status, body }) });
  setCsrf("c");
  renderPage(<WhoAmI />);
  await userEvent.click(screen.getByRole("button", { name: "Sign out" }));
  return { asked, assign };
}

test("signing out leads to the sign-in page", async () => {
  const { asked, assign } = await signOutWith(204);

  await waitFor(() => expect(assign).toHaveBeenCalledWith("/sign-in"));
  expect(asked.map((each) => each.method)).toEqual(["DELETE"]);
});

test("a session that is gone already is closed", async () => {
  const { assign } = await signOutWith(401, "there is no session: sign in");

  await waitFor(() => expect(assign).toHaveBeenCalledWith("/sign-in"));
});

test("a sign-out that failed says so, stays, and can be tried again", async () => {
  const { asked, assign } = await signOutWith(503, "the store is full");

  const told = /Could not sign out, so the session may still be open: the store is full/;
  expect(await screen.findByText(told)).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: /Sign out/ }));

  await waitFor(() => expect(asked).toHaveLength(2));
  expect(asked[1]?.headers.get("x-proctor-csrf")).toBe("c");
  expect(assign).not.toHaveBeenCalled();
});
