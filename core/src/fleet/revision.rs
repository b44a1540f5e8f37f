//! When a node gets the next generation of its schedule: when what it observed asks for another depth of
//! staging, or for another room for look-ahead, by more than noise.
//!
//! The depth follows from the step time, from what a step reads cold, from rate and latency of the cold
//! store, and from the times of transforms and their spread ([`depth`]); if reads did not wait for each
//! other, the cold store may give more than it gave. Only figures that
//! differ by more than [`SAME_WITHIN`] from those by which it was decided last are looked at, so that it does not
//! follow noise. It is never less than at first, because means ask for too little, and never more than staging
//! memory was laid out for: an arena does not grow. Threads that read the cold store are as many as at first; the
//! window of their reads follows what the session tries itself.
//!
//! It follows from the figures of one node, so each agent decides it for itself and tells the manager; the simulator
//! decides by the same rules.

use alloc::{format, string::String, vec::Vec};
use core::num::NonZeroU32;

use super::{
    depth::{self, Bounds, Cold},
    schedule::Schedule,
};
use crate::{
    id::Epoch,
    latency_quantiles::{LatencyQuantiles, PerMillion},
    session::{
        Cycle, Observed, ObservedLink, SetPoints, Settings, Supply,
        staging_depth::{Load, Transforming},
    },
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

/// A new room that differs from the present one by less than this part of the larger is ignored
/// (hysteresis).
const STANDS_WITHIN: u64 = 8;

/// Figures that differ by less than this part of the larger are the same (hysteresis).
const SAME_WITHIN: u64 = 4;

/// The number of reads of the cold store from which on its figures count as means.
const READS_MIN: u64 = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    pub points: SetPoints,
    /// `None` if the depth stays.
    pub depth_reason: Option<String>,
    pub reason: String,
}

impl Revision {
    fn apply(self, schedule: &mut Schedule, from: Epoch) {
        let Self { points: SetPoints { room, depth }, depth_reason, reason } = self;
        schedule.generation += 1;
        schedule.first_epoch = from;
        schedule.look_ahead = room;
        schedule.depth = depth;
        if let Some(depth_reason) = depth_reason {
            schedule.depth_reason = depth_reason;
        }
        schedule.reason = reason;
    }
}

/// The values that a schedule sets, and the bounds of later generations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub points: SetPoints,
    /// The first epoch that the schedule was made for.
    pub from: Epoch,
    /// Rooms that differ by less than a chunk count as equal.
    chunk: Bytes,
    /// The least and the greatest depth.
    depths: (u32, u32),
    /// Reads of the cold store that run at the same time.
    threads: NonZeroU32,
    /// Samples that are transformed at the same time; `None` in a job without a transform.
    transform_threads: Option<NonZeroU32>,
    decided_by: Option<DepthFigures>,
}

/// The figures that a depth follows from.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DepthFigures {
    load: Load,
    /// `None` before there were enough reads: those of the steps are then in time.
    cold: Option<ColdFigures>,
    /// `None` in a job without a transform, and before there were enough.
    transforms: Option<LatencyQuantiles>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ColdFigures {
    /// The time of a read that waits for no other.
    response: Nanoseconds,
    /// The rate with as many reads in flight as there were.
    rate: BytesPerSecond,
    /// Whether reads waited for each other. If not, the cold store may give more than `rate`.
    is_saturated: bool,
}

/// The quantile of transform times that tells a wide spread from a narrow one.
const LONG: PerMillion = PerMillion(990_000);

impl DepthFigures {
    /// `None` without a load, and before there were enough reads or transforms.
    fn of(observed: &Observed) -> Option<Self> {
        let load = observed.load?;
        let cold = ColdFigures::of(&observed.cold);
        let transforms = transform_times(observed);
        let figures = Self { load, cold, transforms };
        (figures.cold.is_some() || figures.transforms.is_some()).then_some(figures)
    }

    fn depth(
        &self,
        threads: NonZeroU32,
        transform_threads: Option<NonZeroU32>,
        bounds: &Bounds,
    ) -> (u32, String) {
        let spread = self.transforms.as_ref().zip(transform_threads);
        let transforming = spread.map(|(time, threads)| Transforming { threads, time });
        let unobserved = Cold { latency: Nanoseconds(0), rate: BytesPerSecond(0), threads };
        let (load, cold) = match &self.cold {
            Some(cold) => (self.load, cold.cold(&self.load, threads)),
            None => (Load { reads: 0, ..self.load }, unobserved),
        };
        depth::depth(&load, &cold, transforming.as_ref(), bounds)
    }

    /// Whether the figures differ by noise only, so that the depth stands.
    fn is_like(&self, other: &Self) -> bool {
        let [one, two] = [self, other].map(|it| &it.transforms);
        let has_like_transforms = match (one, two) {
            (None, None) => true,
            (Some(one), Some(two)) => {
                is_same(one.mean().0, two.mean().0) && is_same(one.at(LONG).0, two.at(LONG).0)
            }
            _ => false,
        };
        let has_like_cold = match (&self.cold, &other.cold) {
            (None, None) => true,
            (Some(one), Some(two)) => {
                is_same(one.response.0, two.response.0) && is_same(one.rate.0, two.rate.0)
            }
            _ => false,
        };
        is_same(self.load.reads.into(), other.load.reads.into())
            && is_same(self.load.step_time.0, other.load.step_time.0)
            && has_like_cold
            && has_like_transforms
    }

    fn text(&self) -> String {
        let Load { reads, read_len, step_time, .. } = self.load;
        let cold = self.cold.map(|ColdFigures { response, rate, .. }| {
            let response = rounded(response);
            format!("reads {reads} of {read_len} from a cold store that answers in {response} and gave {rate}")
        });
        let transforms = self.transforms.as_ref().map(|time| {
            let (mean, long) = (rounded(time.mean()), rounded(time.at(LONG)));
            format!("transforms samples in {mean} on average, one of a hundred in more than {long}")
        });
        let parts = cold.into_iter().chain(transforms).collect::<Vec<_>>().join(" and ");
        format!("a step of {} {parts}", rounded(step_time))
    }
}

/// Over both forms; `None` before there were enough.
fn transform_times(observed: &Observed) -> Option<LatencyQuantiles> {
    let forms: Vec<(u64, LatencyQuantiles)> =
        observed.transforms.iter().filter_map(|it| Some((it.samples, it.spread()?))).collect();
    let parts: Vec<_> = forms.iter().map(|(samples, spread)| (*samples, spread)).collect();
    let samples = parts.iter().fold(0_u64, |sum, (samples, _)| sum.saturating_add(*samples));
    LatencyQuantiles::mixed(&parts).filter(|_| samples >= READS_MIN)
}

impl ColdFigures {
    /// `None` before there were enough reads.
    fn of(link: &ObservedLink) -> Option<Self> {
        let (rate, mean) = (link.rate()?, link.latency()?);
        let response = link.response()?.min(mean);
        let is_saturated = !is_same(mean.0, response.0);
        (link.operations >= READS_MIN).then_some(Self { response, rate, is_saturated })
    }

    fn cold(&self, load: &Load, threads: NonZeroU32) -> Cold {
        let Self { response, rate, is_saturated } = *self;
        if !is_saturated {
            // It is known within a quarter, and how much longer it gets with more reads is not.
            let latency = Nanoseconds(response.0.saturating_add(response.0 / SAME_WITHIN));
            return Cold { latency, rate: BytesPerSecond(u64::MAX), threads };
        }
        let transfer = rate.time_for(load.read_len);
        Cold { latency: Nanoseconds(response.0.saturating_sub(transfer.0)), rate, threads }
    }
}

fn is_same(one: u64, two: u64) -> bool {
    one.abs_diff(two) <= one.max(two) / SAME_WITHIN
}

impl Held {
    /// For a schedule that an agent got, in a job that begins at `start`.
    #[must_use]
    pub fn of(schedule: &Schedule, start: Epoch) -> Self {
        let windows = schedule.windows;
        Self {
            points: schedule.points(),
            from: schedule.first_epoch.max(start),
            chunk: schedule.chunk,
            depths: (schedule.depth, schedule.depth_max.max(schedule.depth)),
            threads: NonZeroU32::new(windows.cold_threads).unwrap_or(NonZeroU32::MIN),
            transform_threads: schedule.transform.as_ref().map(|it| it.threads),
            decided_by: None,
        }
    }

    /// For the start of a session with these settings, where `threads` threads read the cold store.
    #[must_use]
    pub fn at_first(settings: &Settings, threads: NonZeroU32) -> Self {
        Self {
            points: settings.first_points(),
            from: settings.order.start.epoch,
            chunk: settings.chunk,
            depths: (settings.staged_batches, settings.staged_max()),
            threads,
            transform_threads: settings.transform.as_ref().map(|it| it.threads),
            decided_by: None,
        }
    }

    /// The next generation of `schedule`, in a job of so many epochs, if the observations ask for one.
    pub fn next(
        &mut self,
        schedule: &Schedule,
        epochs: u32,
        observed: &Observed,
    ) -> Option<Schedule> {
        let next = Epoch(observed.planned.0 + 1);
        if next.0 >= epochs {
            return None;
        }
        let revision = self.revise(observed)?;
        let mut schedule = schedule.clone();
        revision.apply(&mut schedule, next);
        Some(schedule)
    }

    /// Returns what the next generation sets, for the epoch after those that are planned, if the observations ask
    /// for one.
    pub fn revise(&mut self, observed: &Observed) -> Option<Revision> {
        let depth = self.other_depth(observed);
        let room = self.other_room(observed);
        let reasons = [depth.as_ref().map(|it| &*it.1), room.as_ref().map(|it| &*it.1)];
        let reason = reasons.into_iter().flatten().collect::<Vec<_>>().join("; ");
        let points = SetPoints {
            depth: depth.as_ref().map_or(self.points.depth, |(depth, _)| *depth),
            room: room.as_ref().map_or(self.points.room, |(room, _)| *room),
        };
        if points == self.points {
            return None;
        }
        self.points = points;
        self.from = Epoch(observed.planned.0 + 1);
        Some(Revision { points, depth_reason: depth.map(|(_, reason)| reason), reason })
    }

    /// The new depth and the reason; `None` if the present one stands.
    fn other_depth(&mut self, observed: &Observed) -> Option<(u32, String)> {
        let (least, most) = self.depths;
        if least == most {
            return None;
        }
        let figures = DepthFigures::of(observed)?;
        if self.decided_by.as_ref().is_some_and(|before| before.is_like(&figures)) {
            return None;
        }
        let held = self.points.depth;
        let limit = "staging memory was laid out for";
        let bounds = Bounds { usual: least, most, limit, if_too_slow: held };
        let (depth, why) = figures.depth(self.threads, self.transform_threads, &bounds);
        let reason = format!("{}: {depth} staged batches instead of {held}, {why}", figures.text());
        self.decided_by = Some(figures);
        (depth != held).then_some((depth, reason))
    }

    /// The new room for samples to come and the reason; `None` if the present one stands.
    fn other_room(&self, observed: &Observed) -> Option<(Bytes, String)> {
        let room = self.points.room;
        let supply = observed.supply.as_ref()?;
        if observed.cycle.is_none() && observed.planned <= self.from {
            // A pause that the job file declares may still come: its room holds for two cycles an epoch.
            return None;
        }
        let worth = observed.cycle.map_or(Bytes(0), |cycle| cycle.room(supply));
        let noise = (worth.max(room).0 / STANDS_WITHIN).max(self.chunk.0);
        if worth.0.abs_diff(room.0) < noise {
            return None;
        }
        let reason = match observed.cycle {
            Some(cycle) => reason(cycle, supply, worth),
            None => format!("trainers do not pause: {room} for samples to come are worth nothing"),
        };
        Some((worth, reason))
    }
}

/// The reason that a room is worth most.
#[must_use]
pub fn reason(cycle: Cycle, supply: &Supply, worth: Bytes) -> String {
    let (idle, busy) = (rounded(cycle.idle), rounded(cycle.busy));
    format!(
        "trainers pause for {idle} after {busy} in which they consume {}, and the cold store gives {}: \
         {worth} of {} for samples to come are worth most",
        cycle.consumed, supply.cold, supply.capacity
    )
}

/// Down to whole milliseconds, if there are any: enough for a sentence.
fn rounded(time: Nanoseconds) -> Nanoseconds {
    Nanoseconds(time.0 - time.0 % 1_000_000_u64.min(time.0.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{ObservedTransforms, SHARES};

    const CHUNK: Bytes = Bytes(10);

    /// Trainers that consume 2,500 bytes in a second, then pause for one.
    fn observed(rate: u64) -> Observed {
        let second = Nanoseconds(1_000_000_000);
        let cycle = Some(Cycle { consumed: Bytes(2_500), busy: second, idle: second });
        let (epoch, capacity) = (Bytes(100_000), Bytes(2_000));
        let cold = BytesPerSecond(rate);
        let supply = Some(Supply { epoch, capacity, staged: Bytes(0), hits: 20_000, cold });
        let (planned, cold) = (Epoch(1), ObservedLink::default());
        let transforms = Default::default();
        Observed { planned, cold, tiers: Vec::new(), transforms, load: None, cycle, supply }
    }

    /// For a schedule that was made for the first epoch, while the second is planned. It stages four
    /// batches, and has room for sixteen.
    fn held(room: u64) -> Held {
        Held {
            points: SetPoints { room: Bytes(room), depth: 4 },
            from: Epoch(0),
            chunk: CHUNK,
            depths: (4, 16),
            threads: NonZeroU32::new(32).unwrap(),
            transform_threads: NonZeroU32::new(2),
            decided_by: None,
        }
    }

    fn room(room: u64, observed: &Observed) -> Option<u64> {
        held(room).revise(observed).map(|revision| revision.points.room.0)
    }

    /// Steps of `step_ms` of 4 reads of 100 kB each, on a cold store that gives the first byte after
    /// `latency_ms` and then 100 MB/s.
    fn steps(step_ms: u64, latency_ms: u64) -> Observed {
        let (ms, reads) = (1_000_000, 800);
        let response_time = Nanoseconds(100 * (latency_ms + 1) * ms);
        let cold = ObservedLink {
            bytes: Bytes(reads * 100_000),
            operations: reads,
            busy: Nanoseconds(reads * ms),
            in_flight: Nanoseconds(reads * 2 * (latency_ms + 1) * ms),
            responses: 100,
            response_time,
        };
        let step_time = Nanoseconds(step_ms * ms);
        let load = Some(Load { samples: 4, reads: 4, read_len: Bytes(100_000), step_time });
        Observed { cold, load, cycle: None, supply: None, ..observed(1_300) }
    }

    fn depths(held: &mut Held, observed: &[Observed]) -> Vec<u32> {
        observed.iter().map(|it| held.revise(it).map_or(0, |it| it.points.depth)).collect()
    }

    #[test]
    fn a_far_cold_store_gets_the_depth_that_hides_it_within_what_is_laid_out_and_says_why() {
        let mut far = held(0);
        let revision = far.revise(&steps(20, 100)).unwrap();
        assert_eq!(revision.points.depth, 8, "{revision:?}");
        let why = "a step of 20 ms reads 4 of 97.65 KiB from a cold store that answers in 101 ms and gave 100 MB/s: \
                   8 staged batches instead of 4, 8 are in time in 100 % of all steps";
        assert_eq!(revision.reason, why);
        assert_eq!(depths(&mut far, &[steps(20, 20)]), [4], "no less than at first");
        let mut one = steps(10, 200);
        one.load.iter_mut().for_each(|load| load.reads = 1);
        assert_eq!(depths(&mut held(0), &[one]), [16], "of 24");
        assert_eq!(depths(&mut held(0), &[steps(7, 100)]), [0], "slower than the steps");
    }

    /// Transforms of which one in `count` takes 200 ms, and the others a millisecond.
    fn one_of(count: u64) -> ObservedTransforms {
        let ms = |ms| Nanoseconds(ms * 1_000_000);
        let time = |share: PerMillion| {
            let is_long = u64::from(share.0) > 1_000_000 - 1_000_000 / count;
            ms(if is_long { 200 } else { 1 })
        };
        let time_of_all = ms(100 * count - 100 + 200 * 100);
        ObservedTransforms { samples: 100 * count, time: time_of_all, quantiles: SHARES.map(time) }
    }

    #[test]
    fn transforms_whose_times_spread_get_the_depth_that_hides_the_long_ones_and_say_why() {
        let mut spread = steps(20, 10);
        spread.transforms[0] = one_of(90);
        let revision = held(0).revise(&spread).unwrap();
        assert!(revision.points.depth > 8, "{revision:?}");
        assert!(revision.reason.contains("one of a hundred in more than 200 ms"), "{revision:?}");
        let mut hits = Observed { cold: ObservedLink::default(), ..spread.clone() };
        assert!(held(0).revise(&hits).unwrap().points.depth > 8, "nothing needs to be read cold");
        hits.transforms[0].samples = 10;
        assert_eq!(held(0).revise(&hits), None, "too few");
        let mut even = spread.clone();
        even.transforms[0].quantiles = [Nanoseconds(3_000_000); SHARES.len()];
        let mut changes = held(0);
        let deep = revision.points.depth;
        assert_eq!(depths(&mut changes, &[even, spread.clone(), spread]), [0, deep, 0]);
        let mut slow = steps(20, 10);
        slow.transforms[1] =
            ObservedTransforms { quantiles: [Nanoseconds(20_000_000); SHARES.len()], ..one_of(90) };
        assert_eq!(depths(&mut changes, &[slow]), [0], "slower than the steps, it stays");
    }

    #[test]
    fn a_cold_store_whose_reads_do_not_wait_for_each_other_may_give_more() {
        let mut idle = steps(20, 100);
        idle.cold.bytes.0 /= 5;
        assert_eq!(depths(&mut held(0), &[idle.clone()]), [0], "as slow as the steps");
        idle.cold.in_flight.0 /= 2;
        assert_eq!(depths(&mut held(0), &[idle]), [8]);
    }

    #[test]
    fn figures_that_are_the_same_within_a_quarter_make_no_generation() {
        let mut far = held(0);
        let noise = [steps(20, 100), steps(24, 100), steps(20, 120), steps(18, 90)];
        assert_eq!(depths(&mut far, &noise), [8, 0, 0, 0]);
        assert_eq!(depths(&mut far, &[steps(30, 100)]), [5]);
    }

    #[test]
    fn a_depth_without_room_for_another_and_too_few_reads_decide_nothing() {
        let mut fixed = Held { depths: (4, 4), ..held(0) };
        assert_eq!(depths(&mut fixed, &[steps(20, 100)]), [0]);
        let mut early = steps(20, 100);
        early.cold.operations = 10;
        assert_eq!(depths(&mut held(0), &[early]), [0]);
    }

    #[test]
    fn pauses_beside_a_slow_cold_store_get_room_and_say_why() {
        let revision = held(0).revise(&observed(1_300)).unwrap();
        assert!(revision.points.room > Bytes(1_000), "{revision:?}");
        let why = "trainers pause for 1 s after 1 s in which they consume 2.44 KiB, and the cold store gives \
                   1.30 kB/s";
        assert!(revision.reason.starts_with(why), "{}", revision.reason);
    }

    #[test]
    fn what_differs_by_little_stands() {
        let worth = room(0, &observed(1_300)).unwrap();
        assert_eq!(room(worth, &observed(1_300)), None);
        assert_eq!(room(worth - worth / 10, &observed(1_300)), None);
        assert_eq!(room(worth + worth / 10, &observed(1_300)), None);
        assert_eq!(room(worth / 2, &observed(1_300)), Some(worth));
        let still = Observed { cycle: None, ..observed(1_300) };
        assert_eq!((room(0, &still), room(5, &still), room(worth, &still)), (None, None, Some(0)));
    }

    #[test]
    fn declared_pauses_that_did_not_come_yet_keep_their_room_through_the_first_half_epoch() {
        let early = Observed { cycle: None, planned: Epoch(0), ..observed(1_300) };
        assert_eq!(room(500, &early), None);
        assert_eq!(room(500, &Observed { planned: Epoch(1), ..early }), Some(0));
    }

    #[test]
    fn without_a_rate_of_the_cold_store_nothing_changes() {
        let unknown = Observed { supply: None, ..observed(1_300) };
        assert_eq!(room(500, &unknown), None);
    }
}
