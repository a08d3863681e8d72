import { Input, Segmented } from "antd";
import type { Registration } from "@/api/processes";
import { useMessages } from "@/settings/context";
import { type Draft, draftFrom, registrationOf } from "./draft";
import { FormFields } from "./form-fields";

type Props = {
  draft: Draft;
  onDraft: (draft: Draft) => void;
  /** The text of the JSON view; null while the form is shown. */
  json: string | null;
  onJson: (json: string | null) => void;
  problem: string;
  isUpdate: boolean;
};

/** The same registration as a form or as JSON. */
export function Editor({ draft, onDraft, json, onJson, problem, isUpdate }: Props) {
  const { register: text } = useMessages();
  const show = (view: string) => {
    if (view === "json") return onJson(JSON.stringify(registrationOf(draft), null, 2));
    try {
      if (json !== null) onDraft(draftFrom(JSON.parse(json) as Registration));
      onJson(null);
    } catch {
      // The text is no registration yet; it stays as it is, with the problem below it.
    }
  };
  return (
    <div className="stack register-editor">
      <Segmented
        value={json === null ? "form" : "json"}
        onChange={show}
        options={[
          { value: "form", label: text.form },
          { value: "json", label: text.json },
        ]}
      />
      {json === null ? (
        <FormFields draft={draft} onChange={onDraft} isUpdate={isUpdate} />
      ) : (
        <>
          <Input.TextArea
            className="mono register-json"
            aria-label={text.json}
            spellCheck={false}
            rows={32}
            status={problem ? "error" : undefined}
            value={json}
            onChange={(event) => onJson(event.target.value)}
          />
          {problem && <p className="tone-failed">{text.jsonInvalid(problem)}</p>}
        </>
      )}
    </div>
  );
}
