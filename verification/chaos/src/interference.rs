//! The delay of the trainers by one hostile client and silent connections while no fault is active: their
//! waits then, beside those just before.

use std::{collections::BTreeMap, io::Read as _, process::Child, time::Duration};

use anyhow::Context as _;
use serde::Serialize;

use crate::{
    hostile_client::Tally,
    metrics::{self, ANSWER_MAX},
    record::{Entry, Tail},
    role::World,
    silent_connections::SilentConnections,
    testbed::Testbed,
};

pub(crate) const TIME: Duration = Duration::from_secs(2);

/// The longest wait of a rank for a batch while another client is hostile. Batches are ready before they are
/// requested; this is far more than one read of a batch takes, even on a busy host.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// On a busy machine, waits may be this many times those of just before.
const WAIT_FACTOR: u32 = 4;

#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Interference {
    pub(crate) count: u64,
    pub(crate) moves: BTreeMap<String, u64>,
    pub(crate) batches: u64,
    /// The longest wait for one of them.
    pub(crate) wait_s_max: f64,
    /// The longest wait in an equal time before each measurement.
    pub(crate) wait_s_max_before: f64,
    /// The largest share of the allowed wait that was used.
    pub(crate) wait_share_max: f64,
    pub(crate) silent_min: u64,
    /// The longest time that manager or agent took to serve metrics meanwhile.
    pub(crate) answer_s_max: f64,
}

/// The batches that each rank used since the last call.
pub(crate) fn used(records: &mut [Tail]) -> anyhow::Result<Vec<(u32, Entry)>> {
    let mut used = Vec::new();
    for (rank, record) in (0..).zip(records) {
        used.extend(record.read()?.into_iter().map(|entry| (rank, entry)));
    }
    Ok(used)
}

pub(crate) fn longest_wait(used: &[(u32, Entry)]) -> Duration {
    used.iter().map(|(_, entry)| entry.waited).max().unwrap_or_default()
}

impl Interference {
    /// Requests metrics of manager and agent while silent connections are open, and returns the violations.
    pub(crate) fn request_metrics(
        &mut self,
        testbed: &Testbed,
        silent: &SilentConnections,
    ) -> Vec<String> {
        let silent = silent.len();
        self.silent_min = if self.count == 0 { silent } else { self.silent_min.min(silent) };
        let mut violations = Vec::new();
        for role in testbed.world.servers() {
            let beside = format!("{role} beside {silent} silent connections");
            match metrics::scrape(&testbed.folder.targets(role)) {
                Ok(took) if took <= ANSWER_MAX => {
                    self.answer_s_max = self.answer_s_max.max(took.as_secs_f64());
                }
                Ok(took) => violations.push(format!("metrics took {took:?}: {beside}")),
                Err(error) => violations.push(format!("no metrics: {beside}: {error:#}")),
            }
        }
        if silent == 0 {
            violations.push("no silent connection was made".to_owned());
        }
        violations
    }

    /// Adds what the ranks used beside a hostile client, and returns the violations.
    pub(crate) fn add(
        &mut self,
        used: &[(u32, Entry)],
        before: Duration,
        mut hostile: Child,
    ) -> anyhow::Result<Vec<String>> {
        let mut printed = String::new();
        hostile.stdout.take().context("it is piped")?.read_to_string(&mut printed)?;
        let status = hostile.wait()?;
        let tally: Tally = serde_json::from_str(&printed).with_context(|| {
            format!("the hostile client ended with {status} and printed {printed:?}")
        })?;
        for (kind, count) in &tally.moves {
            *self.moves.entry(kind.clone()).or_default() += count;
        }
        self.count += 1;
        self.batches += used.len() as u64;
        let longest = longest_wait(used).as_secs_f64();
        let share = longest / wait_max(before).as_secs_f64();
        self.wait_share_max = self.wait_share_max.max(share);
        self.wait_s_max = self.wait_s_max.max(longest);
        self.wait_s_max_before = self.wait_s_max_before.max(before.as_secs_f64());
        Ok(violations_of(used, before, &tally))
    }
}

/// The longest allowed wait after the longest wait `before`.
fn wait_max(before: Duration) -> Duration {
    WAIT_MAX.max(before * WAIT_FACTOR)
}

fn violations_of(entries: &[(u32, Entry)], before: Duration, tally: &Tally) -> Vec<String> {
    let mut violations = Vec::new();
    let allowed = wait_max(before);
    for (rank, entry) in entries {
        let (epoch, step, waited) = (entry.epoch.0, entry.step, entry.waited);
        if waited > allowed {
            violations.push(format!(
                "rank {rank} waited {waited:?} for epoch {epoch}, step {step} while one client was \
                 hostile; {allowed:?} are allowed, {before:?} were the most before"
            ));
        }
        if entry.origin.lacked_agent() {
            let origin = entry.origin;
            violations.push(format!(
                "rank {rank} read epoch {epoch}, step {step} by itself ({origin:?}) while one client was \
                 hostile"
            ));
        }
    }
    for rank in World::ONE_NODE.ranks() {
        if !entries.iter().any(|(of, _)| *of == rank) {
            violations
                .push(format!("rank {rank} used no batch for {TIME:?} beside a hostile client"));
        }
    }
    if tally.impersonations > 0 {
        violations.push(format!(
            "a client was accepted {} times as a rank of another process",
            tally.impersonations
        ));
    }
    violations.truncate(10);
    violations
}

#[cfg(test)]
mod tests {
    use tierfeed_core::id::Epoch;

    use super::*;
    use crate::record::Origin;

    fn entry(origin: Origin, waited_ms: u64) -> Entry {
        let waited = Duration::from_millis(waited_ms);
        Entry { epoch: Epoch(0), step: 3, origin, samples: vec![1], waited }
    }

    fn violations(entries: &[(u32, Entry)], before_ms: u64, impersonations: u64) -> Vec<String> {
        let tally = Tally { moves: BTreeMap::new(), impersonations };
        violations_of(entries, Duration::from_millis(before_ms), &tally)
    }

    #[test]
    fn ranks_beside_a_hostile_client_are_served_on_time_and_stay_theirs() {
        let both = |origin, waited| [(0, entry(Origin::Agent, 1)), (1, entry(origin, waited))];
        assert_eq!(violations(&both(Origin::Agent, 499), 1, 0), Vec::<String>::new());
        assert_eq!(violations(&both(Origin::Agent, 900), 300, 0), Vec::<String>::new());
        let late = violations(&both(Origin::Agent, 501), 1, 0);
        assert!(late[0].contains("rank 1 waited 501ms"), "{late:?}");
        for origin in [Origin::Late, Origin::Alone] {
            assert!(violations(&both(origin, 1), 1, 0)[0].contains("by itself"));
        }
        assert!(violations(&both(Origin::Agent, 1)[..1], 1, 0)[0].contains("rank 1 used no batch"));
        assert!(violations(&both(Origin::Agent, 1), 1, 2)[0].contains("accepted 2 times"));
    }
}
