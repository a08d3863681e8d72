import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import Palette from "./palette";

function server() {
  return fakeApi({
    "GET /api/v1/search": () => ({
      body: {
        processes: ["web/nginx"],
        hosts: [{ host: "0:10.0.0.7", hostname: "nginx-1", online: false }],
        tasks: [],
        namespaces: [],
      },
    }),
  });
}

test("the palette shows what the server finds", async () => {
  const asked = server();
  renderPage(<Palette onClose={() => undefined} />);

  await userEvent.type(screen.getByRole("combobox"), "nginx");

  expect(await screen.findByRole("option", { name: "web/nginx" })).toBeTruthy();
  expect(screen.getByRole("option", { name: /0:10.0.0.7.*nginx-1 · Host away/ })).toBeTruthy();
  const texts = asked.map((each) => each.url.searchParams.get("q"));
  expect(texts.at(-1)).toBe("nginx");
});

test("an operation before a name leads to its plan", async () => {
  const asked = server();
  const { router } = renderPage(<Palette onClose={() => undefined} />);

  await userEvent.type(screen.getByRole("combobox"), "restart ngi");
  await userEvent.click(await screen.findByRole("option", { name: "Restart web/nginx…" }));

  expect(asked.at(-1)?.url.searchParams.get("q")).toBe("ngi");
  expect(router.state.location.pathname + router.state.location.search).toBe(
    "/operate?op=restart&process=web%2Fnginx",
  );
});
