//! Just in time: future misses are fetched in the order in which they are needed, as far ahead as staging has
//! room.

use super::{Bandwidth, Tally};

/// Room for samples that were fetched ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Staging {
    pub(super) slots: u32,
}

impl Staging {
    /// A hundredth of the cache, and at least 64 samples.
    pub(super) fn of(cache: u32) -> Self {
        Self { slots: (cache / 100).max(64) }
    }
}

/// `misses` says of each read whether its sample is not kept; an epoch has `accesses` reads.
pub(super) fn run(misses: &[bool], accesses: u32, staging: Staging, bandwidth: Bandwidth) -> Tally {
    let mut tally = Tally::default();
    let mut credit = Bandwidth(0);
    // The next read that may be fetched ahead; all misses before it that lie in the future are staged.
    let mut ahead = 0;
    let mut staged = 0;
    for (now, is_miss) in misses.iter().copied().enumerate() {
        credit.0 += bandwidth.0;
        ahead = now.max(ahead);
        ahead += misses[ahead..].iter().take_while(|is_miss| !**is_miss).count();
        if staged == staging.slots || ahead == misses.len() {
            credit = credit.min(Bandwidth::WHOLE);
        } else if credit >= Bandwidth::WHOLE {
            credit.0 -= Bandwidth::WHOLE.0;
            staged += 1;
            ahead += 1;
        }
        let is_staged = is_miss && now < ahead;
        staged -= u32::from(is_staged);
        tally.read(now >= accesses as usize, !is_miss || is_staged);
        tally.cold += u64::from(is_miss);
    }
    tally
}
