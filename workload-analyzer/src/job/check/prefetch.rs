//! Checks the keys below `prefetch`.

use tierfeed_core::session::{LookAhead, assignment::Assignment};

use super::Check;
use crate::{
    job::{JobError, PREFETCH_BATCHES_MAX, Reason, keys::parse_size},
    job_file::PrefetchFile,
};

/// With fewer than two, no batch could be filled while another is read.
const BATCHES_MIN: u32 = 2;

impl Check<'_> {
    pub(super) fn prefetch_batches(
        &self,
        typed: Option<&PrefetchFile>,
    ) -> Result<Option<u32>, JobError> {
        let typed = typed.and_then(|typed| typed.batches);
        let whole =
            |count| self.whole(&["prefetch", "batches"], count, BATCHES_MIN..=PREFETCH_BATCHES_MAX);
        typed.map(whole).transpose()
    }

    pub(super) fn look_ahead(&self, typed: Option<&PrefetchFile>) -> Result<LookAhead, JobError> {
        let typed = typed.and_then(|typed| typed.look_ahead.as_ref());
        match typed.map(|typed| typed.0.as_str()) {
            None | Some("auto") => Ok(LookAhead::Auto),
            Some("off") => Ok(LookAhead::Off),
            Some(size) => parse_size(size).map(LookAhead::Room).ok_or_else(|| {
                let reason = Reason::NotOneOf { allowed: "auto, off, a size such as 4 GiB" };
                self.invalid(&["prefetch", "look_ahead"], size, reason)
            }),
        }
    }

    pub(super) fn assignment(&self, typed: Option<&PrefetchFile>) -> Result<Assignment, JobError> {
        let typed = typed.and_then(|typed| typed.assignment.as_ref());
        let Some(typed) = typed else { return Ok(Assignment::Shared) };
        let invalid = |reason| self.invalid(&["prefetch", "assignment"], &typed.0, reason);
        match typed.0.parse() {
            Ok(rule) => Ok(rule),
            Err(_) => Err(invalid(Reason::NotOneOf { allowed: "shared, proportional, lobster" })),
        }
    }
}
