//! The faults of a simulation, and when they occur.

use std::time::Duration;

use anyhow::Result;
use proctor_testkit::{Direction, FaultProxy};
use tokio::time::Instant;

use crate::chance::Chance;
use crate::virtual_time::{TICK, step_wall_clock};
use crate::world::{FAST, World};

/// Between two faults.
const PAUSE_MS: std::ops::Range<u64> = 100..4_000;
/// 64 kbit/s.
const SLOW: u64 = 8_000;
/// The judge allows two seconds between an action and its line in the record.
const CLOCK_STEP_MS: u64 = 800;

/// What ends at a moment.
#[derive(Debug)]
enum Repair {
    StartServer,
    StartRelay(usize),
    Release(Line),
}

/// A line of the world, by the number of its agent or relay.
#[derive(Clone, Copy, Debug)]
enum Line {
    Agent(usize),
    Upstream(usize),
    Clients,
}

impl Line {
    fn draw(world: &World, chance: &mut Chance) -> Self {
        match chance.below(8) {
            0 => Self::Clients,
            1 | 2 if world.relay_count() > 0 => Self::Upstream(chance.below(world.relay_count())),
            _ => Self::Agent(chance.below(world.agents.len())),
        }
    }

    fn ways(self, world: &World) -> Vec<&FaultProxy> {
        match self {
            Self::Agent(number) => world.agents[number].ways.iter().collect(),
            Self::Upstream(number) => vec![world.upstream(number)],
            Self::Clients => vec![&world.clients],
        }
    }

    fn for_each(self, world: &World, make: impl Fn(&FaultProxy)) {
        self.ways(world).into_iter().for_each(make);
    }
}

/// One fault after the other, until it is dropped.
pub(crate) struct Faults {
    chance: Chance,
    repairs: Vec<(Instant, Repair)>,
    next_at: Instant,
    /// One line each, to repeat a run by hand.
    pub(crate) log: Vec<String>,
    begun: Instant,
}

impl Faults {
    pub(crate) fn new(chance: Chance) -> Self {
        let begun = Instant::now();
        Self { chance, repairs: Vec::new(), next_at: begun, log: Vec::new(), begun }
    }

    pub(crate) async fn run(&mut self, world: &mut World) -> Result<std::convert::Infallible> {
        loop {
            self.step(world).await?;
            tokio::time::sleep(TICK).await;
        }
    }

    /// What is due by now happens.
    async fn step(&mut self, world: &mut World) -> Result<()> {
        if world.is_server_at_its_end() {
            self.kill_server(world, "at a write").await;
        }
        let now = Instant::now();
        while let Some(index) = self.repairs.iter().position(|(at, _)| *at <= now) {
            let (_, repair) = self.repairs.remove(index);
            self.note(format!("{repair:?}"));
            match repair {
                Repair::StartServer => world.start_server().await?,
                Repair::StartRelay(number) => world.start_relay(number).await?,
                Repair::Release(line) => line.for_each(world, |way| {
                    way.hold(Direction::ToServer, false);
                    way.hold(Direction::ToAgent, false);
                    way.set_delay(Duration::ZERO, Duration::ZERO);
                    way.set_bytes_per_second(FAST);
                }),
            }
        }
        if self.next_at <= now {
            self.next_at = now + self.chance.millis(PAUSE_MS);
            self.break_something(world).await;
        }
        Ok(())
    }

    fn note(&mut self, what: String) {
        self.log.push(format!("{:>7} ms: {what}", self.begun.elapsed().as_millis()));
    }

    async fn kill_server(&mut self, world: &mut World, why: &str) {
        let down = self.chance.millis(50..20_000);
        self.note(format!("the server is killed {why}, for {down:?}"));
        world.kill_server().await;
        self.repairs.push((Instant::now() + down, Repair::StartServer));
    }

    async fn break_something(&mut self, world: &mut World) {
        let line = Line::draw(world, &mut self.chance);
        // Mostly short ones; sometimes longer than a session is waited for.
        let time =
            if self.chance.one_in(3) { self.chance.millis(5_000..60_000) } else { self.chance.millis(50..5_000) };
        match self.chance.below(10) {
            0 if world.is_server_up() => self.kill_server(world, "at a moment").await,
            1 if world.is_server_up() => {
                let writes = self.chance.below(40) as u64 + 1;
                self.note(format!("the server has {writes} writes left"));
                world.kill_server_at_write(writes);
            }
            2 if world.relay_count() > 0 => {
                let number = self.chance.below(world.relay_count());
                self.note(format!("relay {number} is killed, for {time:?}"));
                world.kill_relay(number).await;
                self.repairs.push((Instant::now() + time, Repair::StartRelay(number)));
            }
            3 => {
                let step = i64::try_from(self.chance.millis(0..2 * CLOCK_STEP_MS).as_millis()).unwrap_or(0);
                let step = step - i64::try_from(CLOCK_STEP_MS).unwrap_or(0);
                self.note(format!("the wall clock steps by {step} ms"));
                step_wall_clock(step);
            }
            4 => {
                self.note(format!("{line:?} is reset"));
                line.for_each(world, FaultProxy::reset_all);
            }
            5 => {
                self.note(format!("{line:?} is half-open"));
                line.for_each(world, FaultProxy::make_half_open);
            }
            6 => {
                let direction = *self.chance.pick(&[Direction::ToServer, Direction::ToAgent]);
                self.break_line(world, line, time, &format!("silent {direction:?}"), |way| way.hold(direction, true));
            }
            7 => self.break_line(world, line, time, "cut", |way| {
                way.hold(Direction::ToServer, true);
                way.hold(Direction::ToAgent, true);
            }),
            8 => {
                let delay = self.chance.millis(50..2_000);
                self.break_line(world, line, time, &format!("late by {delay:?}"), |way| {
                    way.set_delay(delay, delay / 2)
                });
            }
            _ => self.break_line(world, line, time, "slow", |way| way.set_bytes_per_second(SLOW)),
        }
    }

    fn break_line(&mut self, world: &World, line: Line, time: Duration, how: &str, make: impl Fn(&FaultProxy)) {
        self.note(format!("{line:?} is {how}, for {time:?}"));
        line.for_each(world, make);
        self.repairs.push((Instant::now() + time, Repair::Release(line)));
    }
}
