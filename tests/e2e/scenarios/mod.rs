//! The scenarios of the list in docs/scenarios.md, each named after its row, on real processes.
//! What shows better in virtual time is in the crates; the list says where.

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
