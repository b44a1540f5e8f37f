//! The input of the classification for a tier of a report, for a later classification.

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
        let copy = into_main_memory(&self.transfers, &tier.name);
        let copy_bytes_per_s = copy.or(tier.estimates.copy_bytes_per_s);
        tier.profile().map(|profile| Profile { copy_bytes_per_s, ..profile })
    }
}

impl Tier {
    /// The figures of the tier, without copies that a report has beside it; `None` if its place rests on no
    /// figure that was measured.
    #[must_use]
    pub fn profile(&self) -> Option<Profile> {
        let is_measured = matches!(self.source, Basis::Measured | Basis::Config);
        let figures = &self.estimates;
        let profile = Profile {
            latency_ns: figures.idle_latency_ns,
            read_bytes_per_s: figures.read_bytes_per_s,
            copy_bytes_per_s: figures.copy_bytes_per_s,
            ..Profile::unmeasured(self.kind)
        };
        let has_cost = profile.chunk_cost_ns().is_some();
        (is_measured && has_cost && !self.emulated).then_some(profile)
    }
}

/// The best measured copy from tier `from` into main memory.
pub(crate) fn into_main_memory(transfers: &[Transfer], from: &str) -> Option<Estimate> {
    let main = Kind::MainMemory.name();
    let of_tier = transfers.iter().filter(|it| it.from == from && it.to == main);
    of_tier.map(|it| it.bytes_per_s).max_by(|a, b| a.median.total_cmp(&b.median))
}
