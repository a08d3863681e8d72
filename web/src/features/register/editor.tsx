import { Input, Segmented } from "antd";
import { useMessages } from "@/settings/context";
import { type Draft, draftFrom, registrationOf } from "./draft";
import { FormFields } from "./form-fields";
import { registrationFrom, type Source, sourceOf } from "./source";

type View = "form" | Source["form"];

type Props = {
  draft: Draft;
  onDraft: (draft: Draft) => void;
  /** What is typed as JSON or TOML; null while the form is shown. */
  source: Source | null;
  onSource: (source: Source | null) => void;
  problem: string;
  isUpdate: boolean;
};

/** The same registration as a form, as JSON or as TOML. */
export function Editor({ draft, onDraft, source, onSource, problem, isUpdate }: Props) {
  const { register: text } = useMessages();
  const show = (view: View) => {
    try {
      const registration = source ? registrationFrom(source) : registrationOf(draft);
      if (view !== "form") return onSource(sourceOf(registration, view));
      onDraft(draftFrom(registration));
      onSource(null);
    } catch {
      // The text is no registration yet; it stays as it is, with the problem below it.
    }
  };
  return (
    <div className="stack register-editor">
      <Segmented<View>
        value={source?.form ?? "form"}
        onChange={show}
        options={[
          { value: "form", label: text.form },
          { value: "json", label: "JSON" },
          { value: "toml", label: "TOML" },
        ]}
      />
      {source === null ? (
        <FormFields draft={draft} onChange={onDraft} isUpdate={isUpdate} />
      ) : (
        <>
          <Input.TextArea
            className="mono register-json"
            aria-label={source.form.toUpperCase()}
            spellCheck={false}
            rows={32}
            status={problem ? "error" : undefined}
            value={source.text}
            onChange={(event) => onSource({ ...source, text: event.target.value })}
          />
          {problem && (
            <p className="tone-failed register-problem">{text.invalid(source.form.toUpperCase(), problem)}</p>
          )}
        </>
      )}
    </div>
  );
}
