//! Operations in progress that no single machine knows as a whole.
//!
//! Promised: a redelivered operation is recognised; one on several instances finishes once, with its last part.
//! Absent: carrying them out.

use std::collections::{BTreeMap, HashMap, HashSet};

use proctor_model::{OperationId, Outcome};

use super::local::LocalOperation;

#[derive(Debug, Default)]
pub(super) struct OperationsUnderWay {
    /// On processes with several instances, by the number of the instance. None: that part is in progress.
    parts: HashMap<OperationId, BTreeMap<u32, Option<Outcome>>>,
    /// Those that somebody on this host waits for.
    pub(super) local: HashMap<OperationId, LocalOperation>,
    status: HashSet<OperationId>,
}

impl OperationsUnderWay {
    pub(super) fn is_split(&self, operation: OperationId) -> bool {
        self.parts.contains_key(&operation)
    }

    pub(super) fn split(&mut self, operation: OperationId, parts: BTreeMap<u32, Option<Outcome>>) {
        self.parts.insert(operation, parts);
    }

    /// A part of an operation that a previous agent had begun; None: in progress.
    pub(super) fn resume_part(&mut self, part: OperationId, outcome: Option<Outcome>) {
        if part.part > 0 {
            self.parts.entry(part.whole()).or_default().insert(part.part, outcome);
        }
    }

    /// False: nobody gathers the parts of that operation.
    pub(super) fn end_part(&mut self, part: OperationId, outcome: Outcome) -> bool {
        let parts = self.parts.get_mut(&part.whole());
        parts.map(|parts| parts.insert(part.part, Some(outcome))).is_some()
    }

    /// All parts in their order, when the last has ended.
    pub(super) fn take_complete(&mut self, whole: OperationId) -> Option<Vec<(u32, Outcome)>> {
        let is_complete = self.parts.get(&whole)?.values().all(Option::is_some);
        let parts = if is_complete { self.parts.remove(&whole) } else { None }?;
        Some(parts.into_iter().filter_map(|(number, outcome)| Some((number, outcome?))).collect())
    }

    /// False: that status query is already in progress.
    pub(super) fn begin_status(&mut self, operation: OperationId) -> bool {
        self.status.insert(operation)
    }

    /// False: it was cancelled meanwhile.
    pub(super) fn end_status(&mut self, operation: OperationId) -> bool {
        self.status.remove(&operation)
    }

    /// Takes those of the operations that are status queries.
    pub(super) fn take_status(&mut self, wanted: &HashSet<OperationId>) -> Vec<OperationId> {
        self.status.extract_if(|operation| wanted.contains(operation)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proctor_model::TaskId;

    use super::*;

    fn operation(index: u32) -> OperationId {
        OperationId::first(TaskId::from_uuid(uuid::Uuid::nil()), index)
    }

    #[test]
    fn an_operation_on_several_instances_ends_once_with_its_last_part() {
        let mut operations = OperationsUnderWay::default();
        let whole = operation(1);
        operations.split(whole, BTreeMap::from([(2, None), (1, Some(Outcome::success(true)))]));

        assert!(operations.is_split(whole) && operations.take_complete(whole).is_none());
        assert!(operations.end_part(whole.part(2), Outcome::success(false)));
        let parts = operations.take_complete(whole).unwrap();

        assert_eq!(parts.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2]);
        assert!(operations.take_complete(whole).is_none() && !operations.is_split(whole));
        assert!(!operations.end_part(whole.part(2), Outcome::success(true)), "nobody gathers it any more");
    }

    #[test]
    fn parts_of_an_agent_before_are_gathered_and_an_operation_without_parts_is_not() {
        let mut operations = OperationsUnderWay::default();
        operations.resume_part(operation(1), None);
        operations.resume_part(operation(2).part(1), Some(Outcome::success(true)));
        operations.resume_part(operation(2).part(2), None);

        assert!(!operations.is_split(operation(1)));
        assert!(operations.take_complete(operation(2)).is_none());
        assert!(operations.end_part(operation(2).part(2), Outcome::success(true)));
        assert_eq!(operations.take_complete(operation(2)).map(|parts| parts.len()), Some(2));
    }

    #[test]
    fn a_status_query_is_under_way_once_until_it_ends_or_is_cancelled() {
        let mut operations = OperationsUnderWay::default();

        assert!(operations.begin_status(operation(1)) && !operations.begin_status(operation(1)));
        assert!(operations.begin_status(operation(2)));
        assert_eq!(operations.take_status(&HashSet::from([operation(1), operation(9)])), [operation(1)]);

        assert!(!operations.end_status(operation(1)) && operations.end_status(operation(2)));
    }
}
