//! What a job adjusts of a policy changes what a run does, as the papers say.

use super::*;
use crate::retention::policy::{Aim, Fetches, Rates, SampleCount, Source, Tuning};

/// Two tiers that hold half of 500 photographs, with DELI's fetches.
fn with_fetches(size: SampleCount, threshold: SampleCount) -> (Settings, Outcome) {
    let (mut settings, _) = with_half_cached(policy::Kind::Deli);
    settings.look_ahead = LookAhead::Auto;
    settings.windows.cold = NonZeroU32::new(16).unwrap();
    settings.aim.tuning.deli = Some(Fetches { size, threshold });
    let outcome = simulate(&settings, &pausing());
    (settings, outcome)
}

/// A machine whose cold store has the time between steps to read ahead all that there is room for.
fn pausing() -> Model {
    let pause = Pause { every: NonZeroU32::new(8).unwrap(), time: Nanoseconds(400_000_000) };
    Model { pause: Some(pause), ..model(2) }
}

fn ahead(outcome: &Outcome) -> Vec<u64> {
    outcome.epochs.iter().map(|epoch| epoch.read.ahead.0).collect()
}

#[test]
fn a_larger_fetch_of_deli_and_an_earlier_one_leave_fewer_waits() {
    let waited = |size, threshold| {
        let (_, outcome) =
            with_fetches(SampleCount::Samples(size), SampleCount::Samples(threshold));
        outcome.epochs.iter().map(|epoch| epoch.stall.0).sum::<u64>()
    };
    let (small, large) = (waited(4, 0), waited(60, 0));
    assert!(large < small, "figure 6: {large} with a larger fetch, {small} with a small one");
    let early = waited(60, 60);
    assert!(early < large, "figure 8: {early} with a threshold, {large} without");
}

#[test]
fn by_the_rule_of_halves_all_tiers_hold_what_is_fetched_ahead() {
    let (settings, outcome) = with_fetches(SampleCount::Share(50), SampleCount::Share(50));
    let cold = outcome.epochs.iter().map(|epoch| epoch.read.cold.0);
    assert_eq!(cold.sum::<u64>(), 3 * total(&settings), "no used sample stays");
    let ahead = ahead(&outcome);
    assert!(ahead.iter().all(|bytes| *bytes > total(&settings) / 2), "{ahead:?}");
    let (settings, outcome) = with_fetches(SampleCount::Share(5), SampleCount::Share(5));
    let cold = outcome.epochs[1].read.cold.0;
    assert!(cold < total(&settings), "nine tenths of the tiers keep used samples");
}

#[test]
fn no_more_is_fetched_ahead_than_a_fetch_and_its_threshold() {
    for (size, threshold) in [(16, 0), (40, 20), (10, 90)] {
        let (mut settings, _) = with_half_cached(policy::Kind::Deli);
        settings.look_ahead = LookAhead::Auto;
        let fetches = Fetches {
            size: SampleCount::Samples(size),
            threshold: SampleCount::Samples(threshold),
        };
        settings.aim.tuning.deli = Some(fetches);
        let mut session = Session::new(settings.clone());
        let ranks = settings.order.world.ranks_per_node;
        for rank in 0..ranks {
            let (connection, rank) = (crate::id::ConnectionId(rank.into()), crate::id::Rank(rank));
            session.handle(Event::Attached { connection, rank }, Nanoseconds(0));
        }
        loop {
            session.run_jobs();
            let Some(command) = session.poll_command() else { break };
            if let Command::Start { op, .. } = command {
                session.handle(Event::Completed { op, outcome: Ok(()) }, Nanoseconds(0));
            }
        }
        // No trainer takes anything: a fetch begins as long as no more than the threshold is left.
        let ahead = session.fetched_ahead() as u64;
        let per_rank = u64::from(threshold / size * size + size);
        let all = u64::from(ranks) * per_rank;
        // A little room stays empty beside what stays.
        assert!(ahead <= all && ahead * 100 >= all * 95, "{fetches:?}: {ahead} of {all}");
    }
}

#[test]
fn nopfs_reads_a_sample_where_it_comes_fastest() {
    let rate = |mb: u64| Some(BytesPerSecond(mb * 1_000_000));
    let run = |source, rates| {
        let (mut settings, _) = with_half_cached(policy::Kind::NoPfs);
        let tuning = Tuning { nopfs: source, ..Tuning::default() };
        settings.aim = Aim { tuning, rates, ..Aim::default() };
        let outcome = simulate(&settings, &model(2));
        let read = &outcome.epochs[2].read;
        (read.cold.0, read.from_tier.iter().map(|it| it.0).collect::<Vec<_>>(), outcome.digest)
    };
    let rates = |tiers| Rates { tiers, cold: rate(100) };
    let (cold, tiers, digest) = run(Source::Tier, rates(vec![rate(900), rate(50)]));
    assert!(tiers.iter().all(|bytes| *bytes > 0));
    let (with_cold, with_tiers, _) = run(Source::Fastest, rates(vec![rate(900), rate(50)]));
    assert_eq!(with_tiers, [tiers[0], 0], "the second tier is slower than the cold store");
    assert_eq!(with_cold, cold + tiers[1]);
    for rates in [rates(vec![rate(900), rate(100)]), rates(vec![rate(900), None]), Rates::default()]
    {
        assert_eq!(
            run(Source::Fastest, rates).2,
            digest,
            "of equals the nearest; without figures too"
        );
    }
}

/// A cold store with time to read ahead, and room that no sample takes: all of it in the first epoch.
#[test]
fn every_policy_has_free_room_used_ahead_of_staging_and_keeps_as_much_as_without() {
    for policy in policy::Kind::ALL {
        let run = |look_ahead| {
            let (mut settings, _) = with_half_cached(policy);
            settings.windows.cold = NonZeroU32::new(16).unwrap();
            simulate(&Settings { look_ahead, ..settings }, &pausing())
        };
        let (without, with) = (run(LookAhead::Off), run(LookAhead::Room(Bytes(0))));
        let cold = |outcome: &Outcome| outcome.epochs.iter().map(|it| it.read.cold.0).sum::<u64>();
        let stall = |outcome: &Outcome| outcome.epochs[0].stall.0;
        assert!(ahead(&with)[0] > ahead(&without)[0], "{policy}: nothing was fetched ahead");
        let (less, more) = (stall(&with), stall(&without));
        assert!(less < more, "{policy}: waited {less} ns with it and {more} without");
        let (with, without) = (cold(&with), cold(&without));
        assert!(with * 200 <= without * 201, "{policy} reads {with} instead of {without} bytes");
    }
}

/// Most of a dataset that is much larger than the tiers is used again long after a buffer gave it up.
#[test]
fn buffers_of_deepmemory_that_hold_nothing_needed_soon_are_room_for_what_is_to_come() {
    for (samples, epochs) in [(500, 1), (3_000, 2)] {
        let run = |look_ahead| {
            let (mut settings, _) = with_half_cached(policy::Kind::DeepMemory);
            settings.order.samples = samples;
            settings.order.epochs = epochs;
            settings.sizes = photographs(samples);
            settings.windows.cold = NonZeroU32::new(16).unwrap();
            simulate(&Settings { look_ahead, ..settings }, &pausing())
        };
        let (without, with) = (run(LookAhead::Off), run(LookAhead::Room(Bytes(0))));
        let stall = |outcome: &Outcome| outcome.epochs.iter().map(|it| it.stall.0).sum::<u64>();
        assert!(stall(&with) * 2 < stall(&without), "{samples} samples: {}", stall(&with));
        let cold = |outcome: &Outcome| outcome.epochs.iter().map(|it| it.read.cold.0).sum::<u64>();
        assert!(cold(&with) * 100 <= cold(&without) * 101, "{} bytes", cold(&with));
    }
}
