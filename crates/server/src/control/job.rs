//! The rule that only JOB calls have: their scope.

use proctor_model::Class;

use super::submit::Draft;
use super::{Caller, Control, ControlError, JobScope, Result};

impl Control {
    /// A host that is placed in a business is reached only under a scope that contains it. Nothing was done yet.
    pub(super) async fn check_job(&self, caller: &Caller, scope: JobScope, draft: &Draft) -> Result<()> {
        let contained: Vec<u64> = match scope {
            JobScope::Business(id) => vec![id],
            JobScope::BusinessSet(id) => {
                let sets = self.inner.store.business_sets().await?;
                sets.into_iter().filter(|set| set.id == id).flat_map(|set| set.members).collect()
            }
        };
        let outside = draft.placed.iter().filter(|(business, _)| !contained.contains(business));
        let mut outside = outside.map(|(_, host)| host.to_string()).peekable();
        if outside.peek().is_some() {
            let class = draft.classes.first().copied().unwrap_or(Class::Operate);
            return Err(ControlError::OutOfScope { scope, missing: Box::new(caller.lacking(class, outside)) });
        }
        Ok(())
    }
}
