import { CopyButton } from "./copy";
import "./command-line.css";

/** For a POSIX shell. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

type Props = {
  line: string;
  label: string /** What it will look like, before there is anything to copy. */;
  isSample?: boolean;
};

/** A line to paste into a shell, exactly as it takes it. */
export function CommandLine({ line, label, isSample }: Props) {
  return (
    <div className={isSample ? "command-line is-sample" : "command-line"}>
      <pre>{line}</pre>
      {!isSample && <CopyButton text={line} label={label} />}
    </div>
  );
}
