import { CheckOutlined, CopyOutlined } from "@ant-design/icons";
import { useEffect, useState } from "react";
import { useMessages } from "@/settings/context";
import "./copy.css";

/** Writes to the clipboard; false where the browser does not allow it. */
async function copy(text: string): Promise<boolean> {
  try {
    if (!navigator.clipboard) return copySelected(text);
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/** Without HTTPS browsers have no clipboard to write to; they copy what is selected. */
function copySelected(text: string): boolean {
  const area = document.createElement("textarea");
  area.value = text;
  area.style.position = "fixed";
  area.style.opacity = "0";
  document.body.append(area);
  area.select();
  const isDone = document.execCommand("copy");
  area.remove();
  return isDone;
}

export function CopyButton({ text, label }: { text: string; label?: string }) {
  const { common } = useMessages();
  const [isCopied, setCopied] = useState(false);
  useEffect(() => {
    if (!isCopied) return;
    const timer = setTimeout(() => setCopied(false), 1500);
    return () => clearTimeout(timer);
  }, [isCopied]);
  return (
    <button
      type="button"
      className="copy-button"
      aria-label={`${isCopied ? common.copied : common.copy} ${label ?? text}`}
      title={isCopied ? common.copied : common.copy}
      onClick={async (event) => {
        event.stopPropagation();
        setCopied(await copy(text));
      }}
    >
      {isCopied ? <CheckOutlined /> : <CopyOutlined />}
    </button>
  );
}

type TextProps = {
  text: string;
  shown?: string;
  /** On further lines rather than cut off. */
  isWrapped?: boolean;
};

/** An id or a path: in a monospace face, cut off where there is no room, with a button to copy it whole. */
export function CopyText({ text, shown = text, isWrapped }: TextProps) {
  return (
    <span className="copy-text">
      <span className={isWrapped ? "mono is-wrapped" : "mono truncate"} title={isWrapped ? undefined : text}>
        {shown}
      </span>
      <CopyButton text={text} />
    </span>
  );
}
