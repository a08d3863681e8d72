//! Operations whose paths are being resolved, in order of arrival per process.
//!
//! Promised: at most [`ARRIVED_MAX`] operations per process wait, plus a few more that end something; each knows the
//! registration it was submitted for.
//! Absent: resolving paths.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use proctor_model::{OperationId, ProcessKey, Spec};
use proctor_supervise::Request;

/// Operations of one process that may wait for their paths; more are refused.
pub(super) const ARRIVED_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Arrivals(HashMap<ProcessKey, VecDeque<ArrivedOperation>>);

/// An operation whose paths are to be resolved.
#[derive(Debug)]
pub(super) struct ArrivedOperation {
    pub(super) request: Request,
    /// What it refers to if it brings no spec: the registration that was current when it arrived.
    pub(super) registration: Option<(i64, Arc<Spec>)>,
}

impl ArrivedOperation {
    pub(super) fn spec(&self) -> Option<Arc<Spec>> {
        let registered = self.registration.as_ref().map(|(_, spec)| spec);
        self.request.spec.as_ref().or(registered).cloned()
    }

    /// Whether another process has got the name since.
    pub(super) fn is_outdated(&self, now: Option<(i64, Arc<Spec>)>) -> bool {
        let Some((registered_at, spec)) = &self.registration else { return false };
        now.is_none_or(|(at, now)| at != *registered_at && now.identity.is_other_process(&spec.identity))
    }
}

impl Arrivals {
    /// How many wait; None: the paths of none are being resolved.
    pub(super) fn waiting(&self, key: &ProcessKey) -> Option<usize> {
        self.0.get(key).map(VecDeque::len)
    }

    pub(super) fn contains(&self, key: &ProcessKey, operation: OperationId) -> bool {
        self.0.get(key).is_some_and(|queue| queue.iter().any(|arrived| arrived.request.operation == operation))
    }

    pub(super) fn push(&mut self, key: ProcessKey, arrived: ArrivedOperation) {
        self.0.entry(key).or_default().push_back(arrived);
    }

    /// The next whose paths are to be resolved.
    pub(super) fn first(&self, key: &ProcessKey) -> Option<&ArrivedOperation> {
        self.0.get(key)?.front()
    }

    /// Where none is left, the next one to arrive need not wait.
    pub(super) fn settle(&mut self, key: &ProcessKey) {
        if self.waiting(key) == Some(0) {
            self.0.remove(key);
        }
    }

    /// The first, if it is this one: it may have been cancelled.
    pub(super) fn take_first(&mut self, key: &ProcessKey, operation: OperationId) -> Option<ArrivedOperation> {
        self.0.get_mut(key)?.pop_front_if(|arrived| arrived.request.operation == operation)
    }

    /// Takes those of the operations that wait here.
    pub(super) fn take_all(&mut self, wanted: &HashSet<OperationId>) -> Vec<(ProcessKey, OperationId)> {
        let mut taken = Vec::new();
        for (key, queue) in &mut self.0 {
            queue.retain(|ArrivedOperation { request, .. }| {
                let is_wanted = wanted.contains(&request.operation);
                taken.extend(is_wanted.then(|| (key.clone(), request.operation)));
                !is_wanted
            });
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use proctor_model::samples::spec;
    use proctor_model::{OperationKind, TaskId};

    use super::*;

    fn operation(index: u32) -> OperationId {
        OperationId::first(TaskId::from_uuid(uuid::Uuid::nil()), index)
    }

    fn arrived(index: u32, registration: Option<(i64, Arc<Spec>)>) -> ArrivedOperation {
        let expires = proctor_supervise::Time::default();
        let request = Request { operation: operation(index), kind: OperationKind::Stop, spec: None, expires };
        ArrivedOperation { request, registration }
    }

    #[test]
    fn operations_keep_their_order_and_one_that_is_cancelled_is_gone() {
        let key: ProcessKey = "ns/p".parse().unwrap();
        let mut arrivals = Arrivals::default();
        (0..3).for_each(|index| arrivals.push(key.clone(), arrived(index, None)));

        let cancelled = arrivals.take_all(&HashSet::from([operation(0), operation(9)]));

        assert_eq!(cancelled, [(key.clone(), operation(0))]);
        assert!(!arrivals.contains(&key, operation(0)) && arrivals.contains(&key, operation(2)));
        assert!(arrivals.take_first(&key, operation(0)).is_none(), "its answer comes late");
        let mut order = Vec::new();
        while let Some(operation) = arrivals.first(&key).map(|first| first.request.operation) {
            order.push(arrivals.take_first(&key, operation).unwrap().request.operation);
        }
        assert_eq!((order, arrivals.waiting(&key)), (vec![operation(1), operation(2)], Some(0)));
        arrivals.settle(&key);
        assert_eq!(arrivals.waiting(&key), None);
    }

    #[test]
    fn an_operation_whose_paths_were_resolved_is_outdated_where_another_process_has_its_name() {
        let of = |place: &str| spec(|spec| spec.identity.pid_path = place.parse().unwrap());

        let asked = arrived(0, Some((1, of("/run/a.pid"))));

        assert!(!asked.is_outdated(Some((1, of("/run/b.pid")))), "the registration was changed");
        assert!(!asked.is_outdated(Some((2, of("/run/a.pid")))), "it is the same process");
        assert!(asked.is_outdated(Some((2, of("/run/b.pid")))));
        assert!(asked.is_outdated(None), "it was unregistered");
        assert!(!arrived(0, None).is_outdated(Some((2, of("/run/b.pid")))), "it brings a spec, or never had one");
    }
}
