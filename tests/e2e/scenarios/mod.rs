//! The scenarios of docs/scenarios.md, each named after its row, on real processes.
//!
//! Absent: what is better tested in virtual time; that is in the crates, and the list says where. Start at `scene`
//! (the helpers) and `a_identity`; `zero` is what must hold after every scenario.

mod a_identity;
mod a_states;
mod b_survival;
mod c_commands;
mod d_restarts;
mod e_schedules;
mod f_limits;
mod g_misc;
mod h_leftovers;
mod scene;
mod zero;

pub(crate) use zero::zero_list;

use scene::{IP, Scene, numbers, perl, until};
