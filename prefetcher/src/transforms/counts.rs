//! Counters of what the pool did, and the number of its tasks and workers now.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{EnumCount, IntoStaticStr, VariantArray};

use super::TransformError;

#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumCount, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Rejection {
    Damaged,
    /// It has more pixels than the job allows.
    TooLarge,
    /// It is sound, but the steps of the job are not for it.
    Unsuitable,
    OutOfMemory,
    Crashed,
    TimedOut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    pub transformed: u64,
    /// By [`Rejection`], in the order of its variants.
    pub rejected: [u64; Rejection::COUNT],
    /// Samples that wait for a worker now.
    pub waiting: usize,
    pub started: u64,
    /// Workers that ended by themselves, or by another process.
    pub crashed: u64,
    /// Workers that were ended because a sample took too long.
    pub timed_out: u64,
    /// The processor time that workers needed for samples.
    pub worked: Duration,
    /// How long workers had samples that they answered: longer than they worked if they waited for a
    /// processor.
    pub held: Duration,
    /// Workers that take tasks now.
    pub working: usize,
}

impl Counts {
    /// The samples that did not become rows, by the name of the reason, without reasons that have none.
    pub fn rejections(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = Rejection::VARIANTS.iter().map(<&str>::from);
        names.zip(self.rejected).filter(|(_, count)| *count > 0)
    }

    pub(super) fn reject(&mut self, error: &TransformError) {
        if let Some(rejection) = error.rejection() {
            self.rejected[rejection as usize] += 1;
        }
    }
}
