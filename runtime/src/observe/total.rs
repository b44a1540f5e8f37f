//! The sums over the epochs of a session.

use tierfeed_core::{
    session::{EpochProgress, Progress},
    units::Bytes,
};

#[must_use]
pub fn total(progress: &Progress) -> EpochProgress {
    let mut total = EpochProgress::default();
    progress.epochs.iter().for_each(|epoch| add(&mut total, epoch));
    total
}

/// Adds the figures of another epoch.
pub(crate) fn add(total: &mut EpochProgress, epoch: &EpochProgress) {
    for (sum, part) in [
        (&mut total.batches, epoch.batches),
        (&mut total.samples, epoch.samples),
        (&mut total.skipped, epoch.skipped),
        (&mut total.self_read_batches, epoch.self_read_batches),
        (&mut total.self_read_samples, epoch.self_read_samples),
        (&mut total.self_read.0, epoch.self_read.0),
        (&mut total.demand.0, epoch.demand.0),
        (&mut total.cold.0, epoch.cold.0),
        (&mut total.ahead.0, epoch.ahead.0),
        (&mut total.received.0, epoch.received.0),
        (&mut total.received_samples, epoch.received_samples),
        (&mut total.unreceived, epoch.unreceived),
        (&mut total.misses, epoch.misses),
        (&mut total.in_place.0, epoch.in_place.0),
        (&mut total.in_place_samples, epoch.in_place_samples),
        (&mut total.ready.0, epoch.ready.0),
        (&mut total.late, epoch.late),
        (&mut total.stall.0, epoch.stall.0),
    ] {
        *sum = sum.saturating_add(part);
    }
    let bytes = |sum: &mut Bytes, part: &Bytes| sum.0 = sum.0.saturating_add(part.0);
    add_each(&mut total.from_tier, &epoch.from_tier, bytes);
    add_each(&mut total.written, &epoch.written, bytes);
    add_each(&mut total.hits, &epoch.hits, |sum, part| *sum += part);
    for (sum, part) in total.transforms.iter_mut().zip(&epoch.transforms) {
        sum.samples += part.samples;
        sum.failed += part.failed;
        bytes(&mut sum.read, &part.read);
        bytes(&mut sum.made, &part.made);
        sum.time.0 = sum.time.0.saturating_add(part.time.0);
    }
    total.causes.add(&epoch.causes);
    for (rank, refused) in &epoch.refused {
        let sum = total.refused.entry(*rank).or_default();
        sum.batches += refused.batches;
        sum.waited.0 = sum.waited.0.saturating_add(refused.waited.0);
    }
}

fn add_each<T: Clone + Default>(sums: &mut Vec<T>, parts: &[T], add: impl Fn(&mut T, &T)) {
    sums.resize(sums.len().max(parts.len()), T::default());
    sums.iter_mut().zip(parts).for_each(|(sum, part)| add(sum, part));
}
