//! Finds the memory of a sample that a tier keeps, for a peer.

use tierfeed_core::{id::SampleId, session::Place, units::Bytes};

use crate::{peers::Held, plane::DataPlane};

impl DataPlane {
    /// A view of a sample of `len` bytes that a tier keeps in memory, for a peer; `None` if it lies on a
    /// disk, is not complete, or its memory is broken. The caller keeps the place as it is while the view
    /// lives.
    #[must_use]
    pub fn view(&self, sample: SampleId, place: &Place, len: Bytes) -> Option<Held> {
        let segments = self.state.tier(place.tier).ok()?.tier.segments(&place.pieces).ok()?;
        if segments.iter().any(|segment| segment.store.bus_errors() > 0) {
            return None;
        }
        let first = segments.first()?;
        let sum = first.store.sums().get(first.offset, sample)?;
        Held::in_tier(segments, len, sum.xxh3())
    }
}
