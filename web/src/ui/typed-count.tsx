import { Input } from "antd";
import { useState } from "react";
import { useMessages } from "@/settings/context";
import { useNumbers } from "./format";

/** What concerns more than this is confirmed by typing how many. */
export const CONFIRM_ABOVE = 50;

/** Whether somebody typed the number, with or without its separators. */
export const isCount = (typed: string, count: number) => typed.replace(/\D/g, "") === String(count);

type Props = { count: number; onConfirmed: (isConfirmed: boolean) => void };

/** The field to type a number into. */
export function TypedCount({ count, onConfirmed }: Props) {
  const { operate: text } = useMessages();
  const number = useNumbers();
  const [typed, setTyped] = useState("");
  return (
    <Input
      style={{ width: 200 }}
      inputMode="numeric"
      aria-label={text.typeCount(number(count))}
      placeholder={text.typeCount(number(count))}
      value={typed}
      onChange={(event) => {
        setTyped(event.target.value);
        onConfirmed(isCount(event.target.value, count));
      }}
    />
  );
}

/** Where there are many: the field to type their number into, and whether it stands there. */
export function useTypedCount(count: number) {
  const [confirmed, setConfirmed] = useState({ count, isConfirmed: false });
  // Another number is another field, which begins empty.
  if (confirmed.count !== count) setConfirmed({ count, isConfirmed: false });
  if (count <= CONFIRM_ABOVE) return { isConfirmed: true, field: null };
  const onConfirmed = (isConfirmed: boolean) => setConfirmed({ count, isConfirmed });
  return {
    isConfirmed: confirmed.count === count && confirmed.isConfirmed,
    field: <TypedCount key={count} count={count} onConfirmed={onConfirmed} />,
  };
}
