import { CopyButton } from "./copy";
import "./diff-view.css";

/** A value exactly as the API has it. */
export function JsonView({ value, label }: { value: unknown; label: string }) {
  const text = JSON.stringify(value, null, 2);
  return (
    <section style={{ position: "relative" }} aria-label={label}>
      <div style={{ position: "absolute", top: 6, right: 14 }}>
        <CopyButton text={text} label={label} />
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, so the keyboard must reach it */}
      <pre className="json-view" tabIndex={0}>
        {text}
      </pre>
    </section>
  );
}
