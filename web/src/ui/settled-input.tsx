import { Input } from "antd";
import { useEffect, useState } from "react";

type Props = { label: string; hint?: string; value: string; onChange: (value: string) => void };

const SETTLE_MS = 400;

/** An input whose value counts once the typing has paused. */
export function SettledInput({ label, hint, value, onChange }: Props) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (text === value) return;
    const timer = setTimeout(() => onChange(text.trim()), SETTLE_MS);
    return () => clearTimeout(timer);
  }, [text, value, onChange]);
  return (
    <Input
      aria-label={label}
      placeholder={hint ?? label}
      value={text}
      onChange={(event) => setText(event.target.value)}
      onPressEnter={() => onChange(text.trim())}
    />
  );
}
