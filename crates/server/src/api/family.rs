//! Families of endpoints, and the names under which tasks remember the dialect they came from.

/// A family of endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    /// `/api/c/compapi/v2/gse/…`
    GseEsb,
    /// `/api/bk-gse/{stage}/api/v2/…` and its two other prefixes.
    GseGateway,
    /// `/procapi/v1|v2/proc/…`: what an ESB calls behind it.
    GseBackend,
    /// `/api/c/compapi/v2/job/…` and `…/jobv3/…`
    Job,
}

impl Family {
    /// Where the family is served.
    pub(crate) fn prefixes(self) -> &'static [&'static str] {
        match self {
            Self::GseEsb => &["/api/c/compapi/v2/gse"],
            Self::GseGateway => &["/api/bk-gse/{stage}/api/v2", "/api/v2", "/api/c/compapi/v2/gse/api/v2"],
            Self::GseBackend => &["/procapi"],
            Self::Job => &["/api/c/compapi/v2/job", "/api/c/compapi/v2/jobv3"],
        }
    }

    /// The family that answers for a path which nothing serves.
    pub(crate) fn of_path(path: &str) -> Self {
        let is_in =
            |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if ["/api/bk-gse", "/api/v2", "/api/c/compapi/v2/gse/api/v2"].into_iter().any(is_in) {
            Self::GseGateway
        } else if Self::Job.prefixes().iter().copied().any(is_in) {
            Self::Job
        } else if is_in("/procapi") {
            Self::GseBackend
        } else {
            Self::GseEsb
        }
    }
}

/// By hosts, with a supplier, and a stored registration.
pub(super) const GSE_V1: &str = "gse_v1";
/// By hosts or agent ids, with the whole spec in each call.
pub(super) const GSE_V2: &str = "gse_v2";
pub(super) const JOB: &str = "job";

/// In these, a status shows the name of the meta data instead of that of the executable.
pub(super) const SHOWS_META_NAME: [&str; 1] = [GSE_V2];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_nothing_serves_belongs_to_a_family() {
        assert_eq!(Family::of_path("/api/bk-gse/prod/nothing"), Family::GseGateway);
        assert_eq!(Family::of_path("/api/v2"), Family::GseGateway);
        assert_eq!(Family::of_path("/api/v20"), Family::GseEsb);
        assert_eq!(Family::of_path("/api/c/compapi/v2/gse/api/v2/proc/x"), Family::GseGateway);
        assert_eq!(Family::of_path("/api/c/compapi/v2/gse/x"), Family::GseEsb);
        assert_eq!(Family::of_path("/api/c/compapi/v2/jobv3/x"), Family::Job);
        assert_eq!(Family::of_path("/procapi/v3/proc/x"), Family::GseBackend);
    }
}
