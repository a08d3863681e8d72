import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { expect, test } from "vitest";
import { renderPage } from "../../test/render";
import { useTypedCount } from "./typed-count";

function Run() {
  const [count, setCount] = useState(60);
  const { isConfirmed, field } = useTypedCount(count);
  return (
    <>
      {field}
      <button type="button" disabled={!isConfirmed}>
        Run
      </button>
      <button type="button" onClick={() => setCount(count === 60 ? 0 : 60)}>
        Switch
      </button>
    </>
  );
}

const run = () => screen.getByRole<HTMLButtonElement>("button", { name: "Run" });

test("a number that was typed is forgotten with its field", async () => {
  renderPage(<Run />);
  await userEvent.type(screen.getByLabelText("Type 60 to confirm"), "60");
  expect(run().disabled).toBe(false);

  await userEvent.click(screen.getByRole("button", { name: "Switch" }));
  expect(run().disabled).toBe(false);
  await userEvent.click(screen.getByRole("button", { name: "Switch" }));

  expect(screen.getByLabelText<HTMLInputElement>("Type 60 to confirm").value).toBe("");
  expect(run().disabled).toBe(true);
});
