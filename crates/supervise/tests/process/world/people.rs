//! What people, the control plane and the limits want of the process.

use std::sync::Arc;
use std::time::Duration;

use proctor_model::{Code, Message, OperationId, OperationKind, Spec, TaskId};
use proctor_supervise::{Breach, Event, LimitBreach, PoolBreach, Process, Request, Resource};

use super::{Due, World};

impl World {
    /// Asks for an operation now; its id tells the tests apart.
    pub(crate) fn request(&mut self, kind: OperationKind) -> OperationId {
        self.request_until(kind, Duration::from_secs(100_000))
    }

    /// As [`Self::request`]; it must begin in time.
    pub(crate) fn request_until(&mut self, kind: OperationKind, within: Duration) -> OperationId {
        let index = u32::try_from(self.requested.len()).unwrap();
        let operation = OperationId::first(TaskId::from_uuid(uuid::Uuid::nil()), index);
        let expires = self.now + within;
        let request = Request { operation, kind, spec: Some(self.spec.clone()), expires };
        self.requested.insert(operation, request.clone());
        self.feed(Event::Requested(request));
        operation
    }

    /// A new session delivers an operation that has no outcome yet.
    pub(crate) fn deliver_again(&mut self, operation: OperationId) {
        assert!(!self.outcomes.contains_key(&operation), "the ledger answers for what has ended");
        let request = self.requested[&operation].clone();
        self.feed(Event::Requested(request));
    }

    /// The control plane takes an operation back.
    pub(crate) fn cancel(&mut self, operation: OperationId) {
        self.cancelled.insert(operation);
        let had_begun = self.begun.contains_key(&operation) || self.outcomes.contains_key(&operation);
        self.feed(Event::Cancelled { operation });
        if !had_begun && self.outcomes.contains_key(&operation) {
            assert_eq!(self.outcomes[&operation].code, Code::Cancelled);
            self.never.insert(operation);
        }
    }

    /// The ledger cannot be written: nothing of that operation may happen.
    pub(crate) fn refuse(&mut self, operation: OperationId) {
        self.feed(Event::Refused { operation, reason: Message::foreign("the disk is full") });
    }

    /// The host sleeps: its clock goes on, and nothing else does.
    pub(crate) fn suspend(&mut self, duration: Duration) {
        self.now = self.now + duration;
    }

    /// The control plane registers the process, or does so again.
    pub(crate) fn assign(&mut self, registered_at: i64, spec: Arc<Spec>) {
        self.spec = spec.clone();
        self.registered_at = registered_at;
        self.feed(Event::Assigned { spec, managed: false, registered_at });
    }

    pub(crate) fn forget(&mut self) {
        self.feed(Event::Unregistered);
    }

    /// Unregisters the process, and registers one of its name. False: something is still under way for it.
    pub(crate) fn replace(&mut self) -> bool {
        self.forget();
        let is_forgotten = self.forget_machine();
        self.assign(self.registered_at + 1, self.spec.clone());
        is_forgotten
    }

    /// As the driver does with a process that is no longer registered and rests.
    pub(crate) fn forget_machine(&mut self) -> bool {
        let is_forgettable = self.machine.can_be_dropped();
        if is_forgettable {
            let mut next = Process::new(self.machine.key().clone(), self.spec.clone(), self.seed);
            self.replaced += 1;
            next.number_from(self.replaced << 32);
            self.machine.estate(self.now).into_iter().for_each(|elder| next.inherit(elder));
            self.machine = next;
            self.watched.clear();
        }
        is_forgettable
    }

    /// A limit condemns the present life.
    pub(crate) fn exceed(&mut self) {
        if let Some(life) = self.life.clone() {
            let breach = Breach { resource: Resource::Memory, usage: 20.0, limit: 10.0 };
            self.feed(Event::Exceeded(LimitBreach { life, breach, pool: None }));
        }
    }

    /// A limit condemns the present life, with time to end.
    pub(crate) fn exceed_cpu(&mut self) {
        if let Some(life) = self.life.clone() {
            let breach = Breach { resource: Resource::Cpu, usage: 20.0, limit: 10.0 };
            self.feed(Event::Exceeded(LimitBreach { life, breach, pool: None }));
        }
    }

    /// The limit of a pool condemns the present life.
    pub(crate) fn exceed_pool(&mut self, next: Option<&str>) {
        let Some(life) = self.life.clone() else { return };
        let breach = Breach { resource: Resource::Memory, usage: 31.2, limit: 25.0 };
        let next = next.map(|key| key.parse().unwrap());
        let pool = PoolBreach { id: "web".parse().unwrap(), ranking: String::new(), next };
        self.feed(Event::Exceeded(LimitBreach { life, breach, pool: Some(pool) }));
    }

    /// A limit condemns a life of before.
    pub(crate) fn exceed_as(&mut self, pid: i32) {
        let Some(mut life) = self.life.clone() else { return };
        life.pid = pid;
        let breach = Breach { resource: Resource::Cpu, usage: 20.0, limit: 10.0 };
        self.feed(Event::Exceeded(LimitBreach { life, breach, pool: None }));
    }

    /// Another process of that name is there, started by hand.
    pub(crate) fn start_by_hand(&mut self) {
        assert!(self.life.is_none());
        self.launch_commands += 1;
        self.starts_by_hand = true;
        self.happen(Due::Appears);
    }

    pub(crate) fn due(&mut self) {
        self.planned += 1;
        self.feed(Event::RunDue { planned: self.planned, since_boot: None });
    }
}
