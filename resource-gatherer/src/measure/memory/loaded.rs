//! Measures how latency grows with traffic: one core follows a chain, others make more and more traffic
//! to the same memory.
//!
//! 1. Traffic is what the generators did during the very windows in which latency was taken: they count
//!    pieces of 64 KiB, and the counts are read at the ends of each window.
//! 2. It grows by the pauses of a single generator first, because one core may already fill a CXL link,
//!    then by their number, then by the pauses of all.
//! 3. A point is contended if its latency is, or if a generator ran for less than 95 % of it: then its
//!    traffic, and all shares of the highest traffic, are too low.
//! 4. Before the first window of a point the traffic runs for a tenth of the point's time, at most half
//!    a second.

use std::hint::black_box;

use tierfeed_core::units::Nanoseconds;
use tierfeed_numa_memory::kernels::Chain;

use super::{
    arrays::PIECE,
    latency::hops_for,
    team::{Load, Team, spin},
};
use crate::{
    figures::{
        LoadedLatency, LoadedPoint, Traffic,
        estimate::{Estimate, to_f64, to_tenths},
    },
    measure::{
        allotment::Allotment,
        cell::{Cell, Occupation, Sample, StopRule},
        clock::Clock,
        sampler,
    },
};

const HALF_WIDTH: f64 = 0.03;

#[derive(Debug, Clone, Copy, PartialEq)]
struct Asked {
    generators: usize,
    /// The pause after each piece, as a multiple of the time for the piece.
    pause: f64,
}

pub(super) struct LoadedChain<'a> {
    pub(super) chain: &'a mut Chain,
    pub(super) window: Nanoseconds,
    pub(super) point: Nanoseconds,
}

/// The curve under reads, of which one generator alone makes `bytes_per_s`; `None` if there was no time
/// for two points.
pub(super) fn curve<C: Clock>(
    team: &mut Team<'_>,
    clock: &mut C,
    loaded: &mut LoadedChain<'_>,
    bytes_per_s: f64,
    allotment: Allotment<'_>,
) -> Option<LoadedLatency> {
    let piece_ns = to_f64(PIECE.0) * 1e9 / bytes_per_s;
    let round_ns = spin_round_ns(clock);
    let hops = hops_for(loaded.chain, clock, loaded.window);
    let asked = asked(team.size() - 1);
    let mut points = Vec::new();
    for (index, asked_point) in asked.iter().enumerate() {
        let now = clock.wall();
        if !allotment.goes_on(now) {
            break;
        }
        let part = allotment.share(now, 1, (asked.len() - index) as u64);
        let part = part.at_most(now, loaded.point);
        let delay_rounds = rounds(asked_point.pause * piece_ns / round_ns);
        let load = Load { generators: asked_point.generators, delay_rounds };
        let (point, generated) =
            team.load(load, |team| point(team, clock, loaded.chain, hops, load, part));
        points.extend(point.map(|point| judged(point, generated)));
    }
    (points.len() >= 2).then(|| summary(points))
}

/// About a dozen points; the first without traffic.
fn asked(generators_max: usize) -> Vec<Asked> {
    let point = |generators: usize| move |pause: f64| Asked { generators, pause };
    let idle = Asked { generators: 0, pause: 0.0 };
    if generators_max <= 1 {
        // Shares of the time from 1/65 to all of it, in steps of two.
        let pauses = [64.0, 32.0, 16.0, 8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125, 0.0];
        return [idle].into_iter().chain(pauses.map(point(generators_max))).collect();
    }
    let one = [16.0, 4.0, 1.0, 0.0].map(point(1));
    let powers = (1..).map(|power| 1 << power).take_while(|count| *count < generators_max);
    let more = powers.map(|count| Asked { generators: count, pause: 0.0 });
    let all = [0.5, 0.125, 0.0].map(point(generators_max));
    [idle].into_iter().chain(one).chain(more).chain(all).collect()
}

fn point(
    team: &Team<'_>,
    clock: &mut impl Clock,
    chain: &mut Chain,
    hops: u64,
    load: Load,
    allotment: Allotment<'_>,
) -> Option<LoadedPoint> {
    const SETTLE_MAX: Nanoseconds = Nanoseconds(500_000_000);
    let now = clock.wall();
    let settle = allotment.share(now, 1, 10).at_most(now, SETTLE_MAX);
    while settle.goes_on(clock.wall()) {
        black_box(chain.chase(hops / 4));
    }
    let time = allotment.left(clock.wall());
    let rule = StopRule { half_width: HALF_WIDTH, samples_min: 10, samples_max: 100, time };
    let mut cell = Cell::new(rule, Occupation::Computes);
    let (mut pieces, mut watched_ns) = (0, 0);
    while cell.wants_more() && allotment.goes_on(clock.wall()) {
        let before = team.pieces();
        let sample = sampler::time(clock, || {
            black_box(chain.chase(hops));
        });
        pieces += team.pieces().saturating_sub(before);
        watched_ns += sample.wall.0;
        cell.record(sample);
    }
    let hops = to_f64(hops);
    let bytes = to_f64(PIECE.0) * to_f64(pieces as u64);
    Some(LoadedPoint {
        generators: u32::try_from(load.generators).unwrap_or(u32::MAX),
        delay_rounds: load.delay_rounds,
        bytes_per_s: to_tenths(bytes * 1e9 / to_f64(watched_ns.max(1))),
        latency_ns: cell.estimate()?.divided_by(hops).rounded(),
    })
}

/// A generator that was held up made less traffic than a core can, also where the latency looks undisturbed.
fn judged(point: LoadedPoint, generated: Sample) -> LoadedPoint {
    const SHARE_MIN: f64 = 0.95;
    let ran = to_f64(generated.thread_cpu.0) >= SHARE_MIN * to_f64(generated.wall.0);
    let contended = point.latency_ns.contended || !ran;
    LoadedPoint { latency_ns: Estimate { contended, ..point.latency_ns }, ..point }
}

fn spin_round_ns(clock: &mut impl Clock) -> f64 {
    const ROUNDS: u32 = 10_000;
    const RUNS: usize = 5;
    let run = |_| {
        let start = clock.thread_cpu();
        spin(ROUNDS);
        clock.thread_cpu().0.saturating_sub(start.0)
    };
    to_f64((0..RUNS).map(run).min().unwrap_or(0).max(1)) / f64::from(ROUNDS)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a pause is positive, and the cast saturates"
)]
fn rounds(count: f64) -> u32 {
    /// A generator looks up only between two pauses, and the probe shall end within a second.
    const ROUNDS_MAX: f64 = 1e6;
    count.min(ROUNDS_MAX).round() as u32
}

/// The curve through `points`, the first of which is without traffic.
fn summary(mut points: Vec<LoadedPoint>) -> LoadedLatency {
    let idle_ns = points[0].latency_ns.median;
    points.sort_by(|a, b| a.bytes_per_s.total_cmp(&b.bytes_per_s));
    let curve = LoadedLatency {
        traffic: Traffic::Read,
        at_50_percent_ns: None,
        knee_bytes_per_s: knee(&points, 2.0 * idle_ns).map(to_tenths),
        points,
    };
    let at_50_percent_ns = curve.latency_at(0.5).map(|latency| to_tenths(latency.median));
    LoadedLatency { at_50_percent_ns, ..curve }
}

/// The traffic at which latency first reaches `limit_ns`, interpolated between two points.
fn knee(points: &[LoadedPoint], limit_ns: f64) -> Option<f64> {
    let latency = |point: &LoadedPoint| point.latency_ns.median;
    let (a, b) = points
        .windows(2)
        .map(|pair| (&pair[0], &pair[1]))
        .find(|(a, b)| latency(a) < limit_ns && latency(b) >= limit_ns)?;
    let weight = (limit_ns - latency(a)) / (latency(b) - latency(a));
    Some(a.bytes_per_s + weight * (b.bytes_per_s - a.bytes_per_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(bytes_per_s: f64, latency_ns: f64) -> LoadedPoint {
        LoadedPoint {
            generators: 1,
            delay_rounds: 0,
            bytes_per_s,
            latency_ns: Estimate { samples: 10, converged: true, ..Estimate::stated(latency_ns) },
        }
    }

    #[test]
    fn latencies_lie_on_the_line_between_two_points() {
        let points = vec![at(0.0, 100.0), at(40e9, 120.0), at(80e9, 180.0), at(100e9, 500.0)];
        let curve = summary(points);
        assert_eq!(curve.at_50_percent_ns, Some(135.0));
        assert_eq!(curve.latency_at(0.9).map(|it| it.median), Some(340.0));
        assert_eq!(curve.knee_bytes_per_s, Some(81.25e9));
    }

    #[test]
    fn points_are_sorted_by_traffic_and_idle_is_the_first_taken() {
        let points = vec![at(0.0, 100.0), at(100e9, 190.0), at(50e9, 150.0)];
        let curve = summary(points);
        assert!(curve.points.is_sorted_by_key(|point| point.bytes_per_s));
        assert_eq!((curve.at_50_percent_ns, curve.knee_bytes_per_s), (Some(150.0), None));
    }

    #[test]
    fn a_curve_without_traffic_has_no_latencies_under_load() {
        let curve = summary(vec![at(0.0, 100.0), at(0.0, 101.0)]);
        assert_eq!((curve.at_50_percent_ns, curve.knee_bytes_per_s), (None, None));
    }

    #[test]
    fn a_point_whose_generators_were_held_up_is_contended() {
        let generated = |thread_cpu| Sample {
            wall: Nanoseconds(1000),
            thread_cpu: Nanoseconds(thread_cpu),
            ..Sample::default()
        };
        assert!(!judged(at(1e9, 100.0), generated(950)).latency_ns.contended);
        assert!(judged(at(1e9, 100.0), generated(949)).latency_ns.contended);
        assert!(!judged(at(0.0, 100.0), Sample::default()).latency_ns.contended, "no generators");
        let held_up = judged(at(90e9, 200.0), generated(500));
        let points = vec![at(0.0, 100.0), at(40e9, 120.0), at(60e9, 130.0), held_up];
        let curve = summary(points);
        assert!(curve.latency_at(0.5).unwrap().contended, "half of too little");
    }

    #[test]
    fn traffic_grows_by_pauses_then_by_generators() {
        for most in [1, 2, 3, 7, 63] {
            let points = asked(most);
            assert_eq!(points[0], Asked { generators: 0, pause: 0.0 });
            assert_eq!(points[1].generators, 1, "one generator may fill a link");
            assert_eq!(points.last(), Some(&Asked { generators: most, pause: 0.0 }));
            assert!(points.len() >= 8 && points.len() <= 14, "{} of {most}", points.len());
            assert!(points.iter().all(|point| point.generators <= most));
            assert!(points.is_sorted_by_key(|point| point.generators));
        }
    }
}
