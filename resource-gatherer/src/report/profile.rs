//! What the classification looked at in a tier of a report, for a later classification.

use tierfeed_core::tier::Kind;

use super::{Basis, Report, Tier};
use crate::{
    classify::Profile,
    figures::{Transfer, estimate::Estimate},
};

impl Report {
    /// The figures of `tier`, one of this report; `None` if its place rests on no figure that was measured.
    #[must_use]
    pub fn profile(&self, tier: &Tier) -> Option<Profile> {
        let is_measured = matches!(tier.source, Basis::Measured | Basis::Config);
        if tier.emulated || !is_measured {
            return None;
        }
        let figures = &tier.estimates;
        let copy = into_main_memory(&self.transfers, &tier.name).or(figures.copy_bytes_per_s);
        let profile = Profile {
            latency_ns: figures.idle_latency_ns,
            read_bytes_per_s: figures.read_bytes_per_s,
            copy_bytes_per_s: copy,
            ..Profile::unmeasured(tier.kind)
        };
        profile.chunk_cost_ns().map(|_| profile)
    }
}

/// The best that was measured from tier `from` into main memory.
pub(crate) fn into_main_memory(transfers: &[Transfer], from: &str) -> Option<Estimate> {
    let main = Kind::MainMemory.name();
    let of_tier = transfers.iter().filter(|it| it.from == from && it.to == main);
    of_tier.map(|it| it.bytes_per_s).max_by(|a, b| a.median.total_cmp(&b.median))
}
