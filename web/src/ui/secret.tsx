import { Alert } from "antd";
import { CopyText } from "./copy";

/** A secret that is shown once. */
export function Secret({ note, value }: { note: string; value: string }) {
  return <Alert type="warning" showIcon title={note} description={<CopyText text={value} />} />;
}
