//! The closed set of per-target codes, with their numbers in the error catalogue.

use serde::{Deserialize, Serialize};

/// The result of one target. The numbers are those of the original service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub enum Code {
    Success,
    Handling,
    AgentAbsent,
    /// The operation was cancelled.
    Cancelled,
    /// A target of a rolling task that was never released.
    Skipped,
    /// The target's host is in maintenance and takes no starts.
    Cordoned,
    /// The caller may not touch this target.
    Forbidden,
    AlreadyRunning,
    NotRunning,
    IllegalOperation,
    CheckFailed,
    AlreadyRegistered,
    CommandFailed,
}

/// One row of the catalogue: what a code means and what to do about it.
#[derive(Clone, Copy, Debug)]
pub struct CodeEntry {
    pub code: Code,
    pub number: u32,
    pub name: &'static str,
    pub meaning: &'static str,
    pub what_to_do: &'static str,
}

/// Every per-target code, in the order of the numbers.
pub const CODES: [CodeEntry; 13] = [
    CodeEntry {
        code: Code::Success,
        number: 0,
        name: "success",
        meaning: "The operation reached its goal.",
        what_to_do: "Nothing.",
    },
    CodeEntry {
        code: Code::Handling,
        number: 115,
        name: "handling",
        meaning: "The target has no outcome yet.",
        what_to_do: "Ask again in a second or two; every target finishes in the end.",
    },
    CodeEntry {
        code: Code::AgentAbsent,
        number: 117,
        name: "agent_absent",
        meaning: "The host has never enrolled, its agent is not connected, or it was lost during the operation.",
        what_to_do: "Check the agent on that host (`proctor hosts`), then repeat the call for that host.",
    },
    CodeEntry {
        code: Code::Cancelled,
        number: 126,
        name: "cancelled",
        meaning: "The operation was cancelled. Where it had not begun, nothing of it was done; where a command ran, it was killed with its tree and the message says what had been done. Hosting did not change.",
        what_to_do: "Where the message says that something was done, query the status before asking again.",
    },
    CodeEntry {
        code: Code::Skipped,
        number: 127,
        name: "skipped",
        meaning: "The target belongs to a rolling task that stopped, for too many failures or by a cancel, before its turn came; nothing was done on its host.",
        what_to_do: "Repair what failed on the targets before it, then ask again for the skipped ones.",
    },
    CodeEntry {
        code: Code::Cordoned,
        number: 128,
        name: "cordoned",
        meaning: "The host is cordoned for maintenance: it takes no start, restart or manage from the fleet; nothing was done on it. The message says why, by whom and until when.",
        what_to_do: "Wait for the end of the maintenance, or end it (`proctor hosts uncordon`), then ask again for that host.",
    },
    CodeEntry {
        code: Code::Forbidden,
        number: 403,
        name: "forbidden",
        meaning: "The caller may not do this to this target; nothing was done on its host.",
        what_to_do: "Ask the operator of the server for a grant on that business, namespace and operation.",
    },
    CodeEntry {
        code: Code::AlreadyRunning,
        number: 828,
        name: "already_running",
        meaning: "Start was asked for a process that runs; nothing was done.",
        what_to_do: "Use restart where a new life is wanted.",
    },
    CodeEntry {
        code: Code::NotRunning,
        number: 829,
        name: "not_running",
        meaning: "The operation needs a running (or registered) process and there is none; no command was run.",
        what_to_do: "Start the process, or take it as done.",
    },
    CodeEntry {
        code: Code::IllegalOperation,
        number: 832,
        name: "illegal_operation",
        meaning: "The op_type is not one of 0, 1, 2, 3, 4, 7, 8, 9.",
        what_to_do: "Correct op_type.",
    },
    CodeEntry {
        code: Code::CheckFailed,
        number: 836,
        name: "check_failed",
        meaning: "The command ended, but the process is not in the wanted state: not alive after a start, still alive after a stop (the message then begins with `stop`).",
        what_to_do: "Read the message; look at the process's own log, its pid file, and the check seconds of its policy.",
    },
    CodeEntry {
        code: Code::AlreadyRegistered,
        number: 850,
        name: "already_registered",
        meaning: "Register was asked for a process that is registered on that host; nothing was changed.",
        what_to_do: "Use update_proc_info to change it.",
    },
    CodeEntry {
        code: Code::CommandFailed,
        number: 65535,
        name: "command_failed",
        meaning: "A command failed, could not be run or is missing, or the request cannot be carried out on that host; the message holds the command's output or the reason.",
        what_to_do: "Read the message; try the command by hand as the process's user in setup_path.",
    },
];

impl Code {
    fn entry(self) -> &'static CodeEntry {
        CODES.iter().find(|entry| entry.code == self).expect("every code has a row in CODES")
    }

    pub fn number(self) -> u32 {
        self.entry().number
    }

    pub fn name(self) -> &'static str {
        self.entry().name
    }

    pub fn is_success(self) -> bool {
        self == Self::Success
    }
}

impl From<Code> for u32 {
    fn from(code: Code) -> Self {
        code.number()
    }
}

impl TryFrom<u32> for Code {
    type Error = String;
    fn try_from(number: u32) -> Result<Self, Self::Error> {
        CODES
            .iter()
            .find(|entry| entry.number == number)
            .map(|entry| entry.code)
            .ok_or_else(|| format!("{number} is not a code of this version"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_one_row_and_survives_its_number() {
        for entry in CODES {
            assert_eq!(Code::try_from(entry.number), Ok(entry.code));
            assert_eq!(entry.code.number(), entry.number);
        }
    }
}
