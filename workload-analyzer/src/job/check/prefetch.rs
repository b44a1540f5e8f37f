//! Checks what stands below `prefetch`.

use tierfeed_core::session::assignment::Assignment;

use super::Check;
use crate::{
    job::{JobError, Reason},
    job_file::PrefetchFile,
};

const BATCHES: u32 = 4;
/// Two, or no batch could be filled while another is read.
const BATCHES_MIN: u32 = 2;
const BATCHES_MAX: u32 = 1_024;

impl Check<'_> {
    pub(super) fn prefetch_batches(&self, typed: Option<&PrefetchFile>) -> Result<u32, JobError> {
        match typed.and_then(|typed| typed.batches) {
            None => Ok(BATCHES),
            Some(count) => self.whole(&["prefetch", "batches"], count, BATCHES_MIN..=BATCHES_MAX),
        }
    }

    pub(super) fn assignment(&self, typed: Option<&PrefetchFile>) -> Result<Assignment, JobError> {
        let typed = typed.and_then(|typed| typed.assignment.as_ref());
        let Some(typed) = typed else { return Ok(Assignment::Shared) };
        let invalid = |reason| self.invalid(&["prefetch", "assignment"], &typed.0, reason);
        match typed.0.parse() {
            Ok(Assignment::Lobster) => Err(invalid(Reason::NeedsMeasuredRates)),
            Ok(rule) => Ok(rule),
            Err(_) => Err(invalid(Reason::NotOneOf { allowed: "shared, proportional" })),
        }
    }
}
