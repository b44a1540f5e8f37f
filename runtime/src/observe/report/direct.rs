//! Whether trainers read samples of a tier in place, and why.

use serde::Serialize;
use tierfeed_core::retention::in_place::{Choice, Way};

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

impl From<Choice> for DirectEntry {
    fn from(choice: Choice) -> Self {
        Self {
            asked: choice.wish.name(),
            used: choice.way == Way::Direct,
            why: choice.to_string(),
            copied_ns_per_mib: choice.costs.map(|costs| costs.copied.0),
            direct_ns_per_mib: choice.costs.map(|costs| costs.direct.0),
        }
    }
}
