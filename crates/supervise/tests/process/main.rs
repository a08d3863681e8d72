//! The process machine in virtual time: rules one by one, then under random events and crashes.

#![allow(clippy::unwrap_used, reason = "tests")]

mod cancel;
mod health;
mod leftovers;
mod operations;
mod preempt;
mod properties;
mod reregistration;
mod scenarios;
mod setting;
mod supervision;
mod survival;
mod world;

use std::time::Duration;

use proctor_model::{Code, OperationKind, Period, Seconds};
use world::{Habits, World, spec};

fn secs(secs: u32) -> Seconds {
    Seconds::try_from(secs).unwrap()
}

fn period(secs: u32) -> Period {
    Period::try_from(secs).unwrap()
}

fn resident(habits: Habits) -> World {
    World::new(spec(|_| {}), habits)
}

fn running(habits: Habits) -> World {
    let mut world = resident(habits);
    let start = world.request(OperationKind::Start);
    world.pass(Duration::from_secs(20));
    assert_eq!(world.outcome(start).unwrap().code, Code::Success);
    world
}

fn code_of(world: &mut World, kind: OperationKind) -> Code {
    let operation = world.request(kind);
    world.pass(Duration::from_secs(80));
    world.outcome(operation).expect("every operation ends").code
}
