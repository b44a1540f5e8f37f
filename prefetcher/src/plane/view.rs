//! Finds the memory of a sample that a tier keeps, for a peer.

use tierfeed_core::{id::SampleId, session::Place, units::Bytes};

use crate::{peers::Held, plane::state::PlaneState};

impl PlaneState {
    pub(crate) fn view(&self, sample: SampleId, place: &Place, len: Bytes) -> Option<Held> {
        let segments = self.tier(place.tier).ok()?.tier.segments(&place.pieces).ok()?;
        if segments.iter().any(|segment| segment.store.bus_errors() > 0) {
            return None;
        }
        let first = segments.first()?;
        let sum = first.store.sums().get(first.offset, sample)?;
        Held::in_tier(segments, len, sum.xxh3())
    }
}
