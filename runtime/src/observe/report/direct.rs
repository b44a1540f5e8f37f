//! Whether trainers read samples of a tier in place, and why.

use serde::Serialize;
use tierfeed_core::retention::in_place::{InPlaceDecision, ReadPath};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DirectEntry {
    /// The job's setting: `auto`, `always` or `never`.
    pub asked: &'static str,
    /// Whether samples are read in place.
    pub used: bool,
    pub why: String,
    /// `None` if the rates are not known.
    pub copied_ns_per_mib: Option<u64>,
    /// `None` if the rates are not known.
    pub direct_ns_per_mib: Option<u64>,
}

impl From<InPlaceDecision> for DirectEntry {
    fn from(choice: InPlaceDecision) -> Self {
        Self {
            asked: choice.mode.name(),
            used: choice.path == ReadPath::Direct,
            why: choice.to_string(),
            copied_ns_per_mib: choice.costs.map(|costs| costs.copied.0),
            direct_ns_per_mib: choice.costs.map(|costs| costs.direct.0),
        }
    }
}
