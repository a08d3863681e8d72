import { screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { renderPage } from "../../test/render";
import { LinkButton } from "./link-button";

test("a button that is off is no link", () => {
  renderPage(
    <>
      <LinkButton to="/a">On</LinkButton>
      <LinkButton to="/b" disabled>
        Off
      </LinkButton>
    </>,
  );

  expect(screen.getAllByRole("link").map((link) => link.getAttribute("href"))).toEqual(["/a"]);
  expect(screen.getByRole<HTMLButtonElement>("button", { name: "Off" }).disabled).toBe(true);
});
