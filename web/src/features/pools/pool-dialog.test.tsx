import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import { PoolDialog } from "./pool-dialog";

type Overview = { status?: number; body: unknown };
const ofHosts = (total: number) => ({ body: { hosts: { total, online: total, away: 0, revoked: 0 } } });
const failed = { status: 500, body: { error: { code: "internal", message: "no sums" } } };

/** A dialog with a namespace in it, and how often a pool was set. */
async function open(overview: () => Overview | Promise<Overview>) {
  const asked = fakeApi({
    "GET /api/v1/overview": overview,
    "PUT /api/v1/pools": () => ({ body: { rows: [] } }),
  });
  renderPage(<PoolDialog onClose={() => undefined} />);
  await userEvent.type(await screen.findByLabelText("Namespace"), "web");
  return () => asked.filter((each) => each.method === "PUT").length;
}

const save = () => userEvent.click(screen.getByRole("button", { name: "Save" }));
/** Antd marks a field whose rule was asked and refused. */
const isRefused = (field: HTMLElement) => waitFor(() => expect(field.ariaInvalid).toBe("true"));

test("a pool is not set on all hosts while it is unknown how many they are", async () => {
  const saved = await open(() => new Promise(() => undefined));

  await save();

  await isRefused(screen.getByLabelText("Type … to confirm"));
  expect(saved()).toBe(0);
});

test("nor where that could not be loaded, and one can ask again", async () => {
  let answer: Overview = failed;
  const saved = await open(() => answer);
  expect(await screen.findByText("no sums")).toBeTruthy();

  await save();
  await isRefused(screen.getByLabelText("Type … to confirm"));
  expect(saved()).toBe(0);
  answer = ofHosts(60);
  await userEvent.click(screen.getByRole("button", { name: "Try again" }));
  await userEvent.type(await screen.findByLabelText("Type 60 to confirm"), "60");
  await save();

  await waitFor(() => expect(saved()).toBe(1));
});

test("a few hosts are not typed", async () => {
  const saved = await open(() => ofHosts(3));
  await waitFor(() => expect(screen.queryByLabelText(/to confirm/)).toBeNull());

  await save();

  await waitFor(() => expect(saved()).toBe(1));
});
