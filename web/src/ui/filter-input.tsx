import { Input } from "antd";
import { useEffect, useId, useRef, useState } from "react";
import { useUrlValue } from "./url-state";

const SETTLE_MS = 50;

type Props = {
  name: string;
  label: string;
  width?: number;
  hint?: string;
  /** Values to choose from, each with a note such as how many there are; anything else may be typed. */
  suggestions?: { value: string; note?: string }[];
};

/** A text filter whose value is in the address; typing is taken over after a short pause. */
export function FilterInput({ name, label, width = 160, hint, suggestions }: Props) {
  const list = useId();
  const [value, setValue] = useUrlValue(name);
  const [text, setText] = useState(value);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);

  useEffect(() => setText(value), [value]);
  useEffect(() => () => clearTimeout(timer.current), []);

  const change = (next: string) => {
    setText(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setValue(next.trim()), SETTLE_MS);
  };
  return (
    <>
      <Input
        allowClear
        list={suggestions ? list : undefined}
        style={{ width }}
        placeholder={label}
        aria-label={label}
        title={hint}
        value={text}
        onChange={(event) => change(event.target.value)}
        onPressEnter={() => {
          clearTimeout(timer.current);
          setValue(text.trim());
        }}
      />
      {suggestions && (
        <datalist id={list}>
          {suggestions.map(({ value: each, note }) => (
            <option key={each} value={each}>
              {note}
            </option>
          ))}
        </datalist>
      )}
    </>
  );
}
