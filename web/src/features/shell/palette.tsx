import { SearchOutlined } from "@ant-design/icons";
import { Modal } from "antd";
import { type KeyboardEvent, useEffect, useRef, useState } from "react";
import { useNavigate } from "react-router";
import { useMessages } from "@/settings/context";
import { type Entry, usePaletteEntries } from "./palette-entries";
import "./palette.css";

/** Go to a page, process, host or task, or begin an operation, without the mouse. */
export default function Palette({ onClose }: { onClose: () => void }) {
  const { shell } = useMessages();
  const navigate = useNavigate();
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const list = useRef<HTMLDivElement>(null);
  const entries = usePaletteEntries(text);
  const index = Math.min(chosen, Math.max(0, entries.length - 1));

  useEffect(() => {
    list.current?.querySelector(`[data-index="${index}"]`)?.scrollIntoView({ block: "nearest" });
  }, [index]);

  const open = (entry: Entry | undefined) => {
    if (!entry) return;
    onClose();
    if (entry.to) void navigate(entry.to);
    else entry.run?.();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") setChosen(Math.min(entries.length - 1, index + 1));
    else if (event.key === "ArrowUp") setChosen(Math.max(0, index - 1));
    else if (event.key === "Enter") open(entries[index]);
    else return;
    event.preventDefault();
  };

  return (
    <Modal
      open
      footer={null}
      closable={false}
      onCancel={onClose}
      width={620}
      className="palette"
      style={{ top: 80 }}
      // The name of the dialog, for screen readers alone.
      title={shell.palette.title}
      styles={{ header: { display: "none" } }}
    >
      <div className="palette-input">
        <SearchOutlined aria-hidden />
        <input
          // biome-ignore lint/a11y/noAutofocus: the dialog is opened in order to type
          autoFocus
          role="combobox"
          aria-label={shell.palette.title}
          aria-expanded="true"
          aria-controls="palette-list"
          aria-activedescendant={entries.length > 0 ? `palette-${index}` : undefined}
          placeholder={shell.searchHint}
          value={text}
          onChange={(event) => {
            setText(event.target.value);
            setChosen(0);
          }}
          onKeyDown={onKeyDown}
        />
      </div>
      <div
        className="palette-list"
        id="palette-list"
        role="listbox"
        aria-label={shell.palette.title}
        ref={list}
      >
        {entries.length === 0 && <p className="muted palette-none">{shell.palette.nothing}</p>}
        {entries.map((entry, at) => (
          <div key={entry.key} role="presentation">
            {entries[at - 1]?.group !== entry.group && <div className="palette-group">{entry.group}</div>}
            {/* biome-ignore lint/a11y/useFocusableInteractive: the input keeps the focus and points here */}
            {/* biome-ignore lint/a11y/useKeyWithClickEvents: the input takes the keys */}
            <div
              id={`palette-${at}`}
              data-index={at}
              role="option"
              aria-selected={at === index}
              className={`palette-entry${at === index ? " is-chosen" : ""}`}
              onMouseMove={() => setChosen(at)}
              onClick={() => open(entry)}
            >
              <span className="grow truncate">{entry.label}</span>
              {entry.hint && <span className="muted truncate">{entry.hint}</span>}
            </div>
          </div>
        ))}
      </div>
      <div className="palette-foot muted">{shell.palette.hint}</div>
    </Modal>
  );
}
