//! Registrations of one name that follow each other while something is under way: each operation belongs to one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proctor_model::{
    BootId, Code, CommandExit, CommandResult, Exit, Incarnation, Lifetime, Message, OperationId, OperationKind,
    Outcome, Probe, Spec, TaskId,
};
use proctor_supervise::{Action, Elder, Event, Process, Record, Registration, Request, Ticket, Time};

use super::period;
use super::world::spec;

/// A machine without a world: the test says what the host answers.
struct Bare {
    now: Time,
    machine: Process,
    /// What has not been looked at yet.
    actions: Vec<Action>,
    outcomes: BTreeMap<OperationId, Outcome>,
    disk: Option<Record>,
}

/// A spec whose pid file and commands tell which it is.
fn of(place: &str, change: impl FnOnce(&mut Spec)) -> Arc<Spec> {
    spec(|spec| {
        spec.identity.pid_path = format!("/run/{place}.pid").parse().unwrap();
        spec.control.start = Some(format!("start {place}").parse().unwrap());
        spec.control.reload = Some(format!("reload {place}").parse().unwrap());
        change(spec);
    })
}

fn life(pid: i32) -> Incarnation {
    Incarnation { boot: BootId::from("b"), pid, start_ticks: u64::try_from(pid).unwrap(), pidfd_inode: None }
}

fn operation(index: u32) -> OperationId {
    OperationId::first(TaskId::from_uuid(uuid::Uuid::nil()), index)
}

impl Bare {
    fn registered(spec: Arc<Spec>) -> Self {
        let machine = Process::new("ns/p".parse().unwrap(), spec.clone(), 7);
        let now = Time::since_boot(Duration::from_secs(1000));
        let mut bare = Self { now, machine, actions: Vec::new(), outcomes: BTreeMap::new(), disk: None };
        bare.assign(1, &spec);
        bare.see_nothing();
        bare
    }

    fn feed(&mut self, event: Event) {
        self.now = self.now + Duration::from_millis(10);
        self.machine.handle(self.now, event);
        if let Some(record) = self.machine.take_record() {
            self.disk = Some(record.clone());
        }
        while let Some(action) = self.machine.poll_action() {
            if let Action::Finish { operation, outcome } = action {
                self.outcomes.insert(operation, *outcome);
            } else {
                self.actions.push(action);
            }
        }
    }

    fn assign(&mut self, registered_at: i64, spec: &Arc<Spec>) {
        self.feed(Event::Assigned { spec: spec.clone(), managed: false, registered_at });
    }

    fn ask(&mut self, index: u32, kind: OperationKind) {
        let expires = self.now + Duration::from_secs(100_000);
        self.feed(Event::Requested(Request { operation: operation(index), kind, spec: None, expires }));
    }

    /// Takes the first action that is one of those; all before it are forgotten.
    fn take<T>(&mut self, of: impl Fn(&Action) -> Option<T>) -> T {
        let found = self.actions.iter().position(|action| of(action).is_some());
        let place = found.unwrap_or_else(|| panic!("not among {:?}", self.actions));
        let taken = of(&self.actions[place]).unwrap();
        self.actions.drain(..=place);
        taken
    }

    fn outcome(&self, index: u32) -> Option<&Outcome> {
        self.outcomes.get(&operation(index))
    }

    /// The newest look, and where.
    fn look(&mut self) -> (Ticket, String) {
        let of = |action: &Action| {
            let Action::Probe { ticket, spec, .. } = action else { return None };
            Some((*ticket, spec.identity.pid_path.as_str().to_owned()))
        };
        let newest = self.actions.iter().filter_map(of).next_back();
        self.actions.retain(|action| of(action).is_none());
        newest.expect("it looks")
    }

    fn see_nothing(&mut self) -> String {
        let (ticket, place) = self.look();
        self.feed(Event::Probed { ticket, look: Probe::Absent(Message::foreign("no pid file")) });
        place
    }

    fn see(&mut self, pid: i32) -> String {
        let (ticket, place) = self.look();
        self.feed(Event::Probed { ticket, look: Probe::Running(life(pid)) });
        place
    }

    /// The next command; it begins as this pid.
    fn begin(&mut self, pid: i32) -> (Ticket, String) {
        let (ticket, line) = self.take(|action| {
            let Action::Run { ticket, line, .. } = action else { return None };
            Some((*ticket, line.as_str().to_owned()))
        });
        self.feed(Event::CommandBegun { ticket, command: life(pid) });
        (ticket, line)
    }

    fn end(&mut self, ticket: Ticket, code: i32) {
        let end = CommandExit { result: CommandResult::Exited(Exit::Code(code)), output: String::new() };
        self.feed(Event::CommandEnded { ticket, end, alive_at: None });
    }

    /// A start of the first registration is under way.
    fn starting(first: &Arc<Spec>) -> (Self, Ticket) {
        let mut bare = Self::registered(first.clone());
        bare.ask(0, OperationKind::Start);
        bare.see_nothing();
        let (ticket, line) = bare.begin(100);
        assert_eq!(line, "start a");
        (bare, ticket)
    }

    /// A scheduled run of the first registration is under way.
    fn on_schedule() -> (Self, Ticket) {
        let first = of("a", |spec| {
            spec.policy.lifetime = Lifetime::Periodic;
            spec.policy.cycle = Some(period(60));
        });
        let mut bare = Self::registered(first);
        bare.ask(90, OperationKind::Manage);
        bare.feed(Event::RunDue { planned: 1, since_boot: None });
        let (ticket, _) = bare.begin(100);
        (bare, ticket)
    }

    fn is_detached(&self, of: Ticket) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::DetachCommand { ticket } if *ticket == of))
    }
}

fn without_check(spec: &mut Spec) {
    spec.policy.start_check = 0.try_into().unwrap();
}

#[test]
fn h9_what_was_asked_for_before_a_registration_elsewhere_runs_on_the_one_before() {
    let (first, second) = (of("a", without_check), of("b", without_check));
    let (mut bare, start) = Bare::starting(&first);
    bare.ask(1, OperationKind::Reload);
    bare.assign(2, &second);
    bare.ask(2, OperationKind::Start);

    bare.end(start, 0);
    bare.see(101);
    assert_eq!(bare.outcome(0).unwrap().code, Code::Success);
    assert_eq!(bare.see(101), "/run/a.pid", "the reload begins");
    let (reload, line) = bare.begin(102);
    assert_eq!((line.as_str(), bare.machine.spec()), ("reload a", &first));
    bare.end(reload, 0);

    assert_eq!(bare.outcome(1).unwrap().code, Code::Success);
    assert_eq!(bare.see_nothing(), "/run/b.pid", "the registration takes effect");
    assert_eq!(bare.see_nothing(), "/run/b.pid", "the start begins");
    let ticket = bare.take(|action| {
        let Action::ClearLeftovers { ticket, .. } = action else { return None };
        Some(*ticket)
    });
    let elder = bare.machine.elder().cloned().map(Box::new);
    assert_eq!(elder.as_ref().and_then(|elder| elder.life.clone()), Some(life(101)), "it is nobody's, and lives");
    bare.feed(Event::LeftoversCleared { ticket, ended: 0, left: 0, elder });
    assert_eq!(bare.begin(103).1, "start b");
}

#[test]
fn h9_a_process_whose_registration_waits_is_managed_when_that_takes_effect() {
    let second = of("b", without_check);
    let (mut bare, start) = Bare::starting(&of("a", without_check));
    bare.assign(2, &second);
    assert!(bare.machine.reason().contains("waits"), "it shows");

    bare.ask(1, OperationKind::Manage);
    assert!(bare.outcome(1).is_none() && !bare.machine.managed(), "the one before is nobody's any more");
    bare.end(start, 0);
    bare.see(101);
    bare.see_nothing();

    assert_eq!(bare.outcome(1).map(|outcome| (outcome.code, outcome.managed)), Some((Code::Success, true)));
    assert_eq!((bare.machine.managed(), bare.machine.spec()), (true, &second));
    assert!(!bare.machine.reason().contains("waits"));
}

#[test]
fn h9_a_release_of_a_registration_that_waits_counts_when_that_takes_effect() {
    let second = of("b", without_check);
    let (mut bare, start) = Bare::starting(&of("a", without_check));
    bare.feed(Event::Assigned { spec: second.clone(), managed: true, registered_at: 2 });
    bare.assign(2, &second); // delivered again

    bare.ask(1, OperationKind::Release);
    assert_eq!(bare.outcome(1).expect("at once").code, Code::Success);
    bare.end(start, 0);
    bare.see(101);

    assert_eq!((bare.machine.managed(), bare.machine.spec()), (false, &second));
}

#[test]
fn h9_a_registration_that_takes_effect_is_looked_at_before_what_waits_for_it_begins() {
    let second = of("b", without_check);
    let (mut bare, start) = Bare::starting(&of("a", without_check));
    bare.assign(2, &second);
    bare.ask(1, OperationKind::Manage);
    bare.ask(2, OperationKind::Release);
    bare.end(start, 0);
    bare.see(101);

    assert_eq!(bare.see(201), "/run/b.pid");

    assert_eq!(bare.machine.life(), Some(&life(201)));
    assert_eq!(bare.machine.released_registration(), Some(2));
    assert_eq!(bare.outcome(2).expect("after the look").code, Code::Success);
}

#[test]
fn h9_a_stop_of_a_registration_that_waits_does_not_cut_short_what_runs_for_the_one_before() {
    let (mut bare, start) = Bare::starting(&of("a", without_check));
    bare.assign(2, &of("b", without_check));
    bare.ask(1, OperationKind::Kill);

    bare.now = bare.now + Duration::from_secs(30);
    bare.feed(Event::Tick);
    assert!(bare.outcome(0).is_none(), "it goes on");
    bare.end(start, 0);
    bare.see(101);
    bare.see_nothing();

    assert_eq!(bare.outcome(0).unwrap().code, Code::Success);
    let is_signal = |action: &Action| matches!(action, Action::Signal(..) | Action::KillTree(_));
    assert!(!bare.actions.iter().any(is_signal), "{:?}", bare.actions);
}

#[test]
fn h9_operations_on_a_registration_that_never_takes_effect_are_answered() {
    let (mut bare, _) = Bare::starting(&of("a", without_check));
    bare.assign(2, &of("b", without_check));
    bare.ask(1, OperationKind::Stop);
    bare.ask(2, OperationKind::Start);
    bare.feed(Event::Cancelled { operation: operation(2) });
    assert_eq!(bare.outcome(2).unwrap().code, Code::Cancelled);

    bare.assign(3, &of("c", without_check));
    let replaced = bare.outcome(1).expect("at once").clone();
    bare.ask(3, OperationKind::Stop);
    bare.feed(Event::Unregistered);
    let forgotten = bare.outcome(3).expect("at once");

    assert_eq!((replaced.code, forgotten.code), (Code::CommandFailed, Code::CommandFailed));
    assert!(replaced.message.contains("registered with another pid file"), "{}", replaced.message);
    assert!(forgotten.message.contains("not registered"), "{}", forgotten.message);
    assert!(bare.outcome(0).is_none(), "the start goes on");
}

#[test]
fn h15_a_registration_elsewhere_does_not_wait_for_a_scheduled_run() {
    let second = of("b", without_check);
    let (mut bare, run) = Bare::on_schedule();

    bare.assign(2, &second);

    assert_eq!(bare.machine.spec(), &second, "at once");
    assert!(bare.is_detached(run), "the run goes on by itself");
    let elder = bare.machine.elder().expect("the run is known");
    assert_eq!((elder.life.as_ref(), elder.launched), (Some(&life(100)), true));
    bare.end(run, 0);
    assert_eq!(bare.see_nothing(), "/run/b.pid");
}

#[test]
fn h15_a_scheduled_run_that_has_not_begun_never_does_once_its_process_is_registered_elsewhere() {
    let second = of("b", without_check);
    let mut bare = Bare::on_schedule().0;
    bare.end(bare_ticket(&bare), 0);
    bare.see_nothing();
    bare.feed(Event::RunDue { planned: 2, since_boot: None });
    let ticket = bare.take(|action| {
        let Action::ClearLeftovers { ticket, .. } = action else { return None };
        Some(*ticket)
    });
    bare.feed(Event::LeftoversCleared { ticket, ended: 0, left: 0, elder: None });
    let run = bare.take(|action| {
        let Action::Run { ticket, .. } = action else { return None };
        Some(*ticket)
    });

    bare.assign(2, &second);
    bare.feed(Event::CommandBegun { ticket: run, command: life(105) });

    assert!(bare.actions.iter().any(|action| matches!(action, Action::KillCommand { ticket } if *ticket == run)));
    assert!(!bare.actions.iter().any(|action| matches!(action, Action::Proceed { .. })), "{:?}", bare.actions);
    assert_eq!(bare.machine.spec(), &second);
}

/// Commands are numbered one after the other, and a clearing counts as one.
fn bare_ticket(bare: &Bare) -> Ticket {
    let proceeds = bare.actions.iter().find_map(|action| {
        let Action::Proceed { ticket } = action else { return None };
        Some(*ticket)
    });
    proceeds.expect("the command runs")
}

#[test]
fn h15_a_registration_that_waited_for_a_run_when_the_agent_ended_takes_effect_in_the_next_agent() {
    let second = of("b", without_check);
    let (bare, _) = Bare::on_schedule();
    let mut record = bare.disk.clone().unwrap();
    // As an agent before this one would have left it.
    record.next = Some(Box::new(Registration { spec: second.clone(), managed: false, registered_at: 2 }));
    record.registered = false;

    let machine = Process::restore(bare.now, "ns/p".parse().unwrap(), record, true, None, 7);
    let mut next = Bare { machine, disk: None, actions: Vec::new(), outcomes: BTreeMap::new(), now: bare.now };
    next.feed(Event::Tick);
    next.see_nothing();

    assert_eq!(next.machine.spec(), &second);
    assert_eq!(next.machine.elder().and_then(|elder| elder.life.as_ref()), Some(&life(100)));
}

#[test]
fn a_run_that_is_left_and_the_process_that_it_has_brought_keep_their_own_sessions() {
    let (mut bare, _) = Bare::on_schedule();
    bare.now = bare.now + Duration::from_secs(1);
    bare.feed(Event::Tick);
    bare.see(200);

    bare.assign(2, &of("b", |_| {}));

    let elder = bare.machine.elder().unwrap();
    let leaders = |elder: &Elder| elder.sessions.iter().map(|session| session.leader).collect::<Vec<_>>();
    let known: Vec<_> = elder.all().map(|elder| (elder.life.as_ref().map(|life| life.pid), leaders(elder))).collect();
    assert_eq!(known, [(Some(200), vec![200]), (Some(100), vec![100])]);
}
