//! Reads the file of `proctor swarm --record`.

use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{HostEvent, HostRecord, Operation};

/// Fails on a line that it does not know: a check that skips lines would miss breaches.
pub fn read_swarm_record(path: &Path) -> Result<Vec<HostRecord>> {
    let file = std::fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut records = Vec::new();
    for (number, line) in BufReader::new(file).lines().enumerate() {
        let line = line?;
        let record = parse(&line).with_context(|| format!("line {} of {}: {line}", number + 1, path.display()))?;
        records.push(record);
    }
    Ok(records)
}

fn parse(line: &str) -> Result<HostRecord> {
    let line: Value = serde_json::from_str(line)?;
    let number = |name: &str| line[name].as_u64().with_context(|| format!("no number {name}"));
    let text = |name: &str| line[name].as_str().with_context(|| format!("no text {name}"));
    let operation = || parse_operation(text("operation")?);
    let what = match text("what")? {
        "connected" => HostEvent::Connected { epoch: number("epoch")? },
        "assigned" => HostEvent::Assigned { generation: number("generation")? },
        "delivered" => HostEvent::Delivered { operation: operation()?, expires_in_ms: number("expires_in_ms")? },
        "begun" => HostEvent::Begun { operation: operation()? },
        "ended" => HostEvent::Ended { operation: operation()?, code: u32::try_from(number("code")?)? },
        "acknowledged" => HostEvent::Acknowledged { operation: operation()? },
        "violated" => HostEvent::Violated { promise: text("promise")?.to_owned() },
        "truncated" => return Ok(HostRecord { at_ms: 0, host: String::new(), what: HostEvent::Truncated }),
        other => bail!("unknown event '{other}'"),
    };
    let at_ms = line["at_ms"].as_i64().context("no number at_ms")?;
    Ok(HostRecord { at_ms, host: text("agent")?.to_owned(), what })
}

/// `TASK/INDEX/ATTEMPT`: another attempt is another operation, and there is only one in a task.
fn parse_operation(text: &str) -> Result<Operation> {
    let mut pieces = text.split('/');
    let (Some(task), Some(index), Some("1"), None) = (pieces.next(), pieces.next(), pieces.next(), pieces.next())
    else {
        bail!("'{text}' is not the first attempt of an operation");
    };
    Ok(Operation::new(task, index.parse()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_swarm_are_read_and_unknown_ones_refused() {
        let line = r#"{"at_ms":5,"agent":"0:10.64.0.0","what":"ended","operation":"t/3/1","code":828}"#;

        let record = parse(line).unwrap();

        assert_eq!((record.at_ms, record.host.as_str()), (5, "0:10.64.0.0"));
        assert_eq!(record.what, HostEvent::Ended { operation: Operation::new("t", 3), code: 828 });
        let refused = |line: &str| parse(line).unwrap_err().to_string();
        assert!(refused(&line.replace("ended", "vanished")).contains("vanished"));
        assert!(refused(&line.replace("t/3/1", "t/3/2")).contains("first attempt"));
        assert!(refused(&line.replace("code", "kode")).contains("code"));
    }
}
