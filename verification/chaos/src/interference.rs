//! The delay of the trainers by one hostile client and silent connections while no fault is active: their
//! waits then, beside those just before.

use std::{
    collections::BTreeMap,
    io::Read as _,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::Context as _;
use serde::Serialize;

use crate::{
    clock::Clock,
    hostile_client::Tally,
    injector::Injector,
    record::{self, Entry, Origin},
    role::World,
    silent_connections::{self, SilentConnections},
    testbed::Testbed,
};

pub(crate) const TIME: Duration = Duration::from_secs(2);

/// The longest wait of a rank for a batch while another client is hostile. Batches are ready before they are
/// requested; this is far more than one read of a batch takes, even on a busy host.
pub(crate) const WAIT_MAX: Duration = Duration::from_millis(500);

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

/// The length of each rank's record at one moment, in batches.
pub(crate) struct RecordLengths(Vec<usize>);

impl RecordLengths {
    pub(crate) fn now(testbed: &Testbed) -> anyhow::Result<Self> {
        let lines = |rank| Ok(record::read(&testbed.record(rank))?.len());
        testbed.world.ranks().map(lines).collect::<anyhow::Result<_>>().map(Self)
    }

    fn entries(&self, testbed: &Testbed) -> anyhow::Result<Vec<(u32, Entry)>> {
        let mut all = Vec::new();
        for (rank, mark) in (0..).zip(&self.0) {
            let entries = record::read(&testbed.record(rank))?.into_iter().skip(*mark);
            all.extend(entries.map(|entry| (rank, entry)));
        }
        Ok(all)
    }

    pub(crate) fn wait_max(&self, testbed: &Testbed) -> anyhow::Result<Duration> {
        let entries = self.entries(testbed)?;
        Ok(entries.iter().map(|(_, entry)| entry.waited).max().unwrap_or_default())
    }
}

impl Injector<'_> {
    /// Starts a hostile client, which ends by itself and prints its attacks.
    pub(crate) fn hostile(&self, seed: u64, time: Duration) -> anyhow::Result<Child> {
        let mut hostile = Command::new(&self.programs.own);
        hostile.args(["hostile", "--seed", &seed.to_string()]);
        hostile.arg("--socket").arg(self.testbed.agent_dir(0).join("agent.sock"));
        let rank = self.testbed.world.ranks().end;
        hostile.args(["--rank", &rank.to_string(), "--time", &format!("{} ms", time.as_millis())]);
        if let Some(manager) = self.manager {
            hostile.args(["--manager", manager]);
        }
        hostile.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        hostile.spawn().context("cannot start the hostile client")
    }
}

impl Interference {
    /// Requests metrics of manager and agent while silent connections are open, and returns the violations.
    pub(crate) fn request_metrics(
        &mut self,
        testbed: &Testbed,
        clock: Clock,
        silent: &SilentConnections,
    ) -> Vec<String> {
        let silent = silent.len();
        self.silent_min = if self.count == 0 { silent } else { self.silent_min.min(silent) };
        let mut violations = Vec::new();
        for targets in [testbed.manager_targets(), testbed.agent_targets(0)] {
            match silent_connections::scrape(clock, &targets) {
                Ok(took) if took <= silent_connections::ANSWER_MAX => {
                    self.answer_s_max = self.answer_s_max.max(took.as_secs_f64());
                }
                Ok(took) => violations.push(format!(
                    "metrics of {} took {took:?} beside {silent} silent connections",
                    targets.display()
                )),
                Err(error) => violations.push(format!(
                    "no metrics of {} beside {silent} silent connections: {error:#}",
                    targets.display()
                )),
            }
        }
        if silent == 0 {
            violations.push("no silent connection was made".to_owned());
        }
        violations
    }

    pub(crate) fn add(
        &mut self,
        testbed: &Testbed,
        marks: &RecordLengths,
        before: Duration,
        mut hostile: Child,
    ) -> anyhow::Result<Vec<String>> {
        let mut printed = String::new();
        hostile.stdout.take().context("it is piped")?.read_to_string(&mut printed)?;
        let status = hostile.wait()?;
        let tally: Tally = serde_json::from_str(&printed).with_context(|| {
            format!("the hostile client ended with {status} and printed {printed:?}")
        })?;
        let entries = marks.entries(testbed)?;
        let longest = entries.iter().map(|(_, entry)| entry.waited).max().unwrap_or_default();
        self.count += 1;
        for (kind, count) in &tally.moves {
            *self.moves.entry(kind.clone()).or_default() += count;
        }
        let share = longest.as_secs_f64() / wait_max(before).as_secs_f64();
        self.wait_share_max = self.wait_share_max.max(share);
        self.batches += entries.len() as u64;
        self.wait_s_max = self.wait_s_max.max(longest.as_secs_f64());
        self.wait_s_max_before = self.wait_s_max_before.max(before.as_secs_f64());
        Ok(violations_of(&entries, before, &tally))
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
        let (epoch, step, waited) = (entry.epoch.0, entry.step.0, entry.waited);
        if waited > allowed {
            violations.push(format!(
                "rank {rank} waited {waited:?} for epoch {epoch}, step {step} while one client was \
                 hostile; {allowed:?} are allowed, {before:?} were the most before"
            ));
        }
        if matches!(entry.origin, Origin::Late | Origin::Alone) {
            let origin = entry.origin.name();
            violations.push(format!(
                "rank {rank} read epoch {epoch}, step {step} by itself ({origin}) while one client was \
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
    use tierfeed_core::id::{Epoch, Step};

    use super::*;

    fn entry(origin: Origin, waited_ms: u64) -> Entry {
        let waited = Duration::from_millis(waited_ms);
        Entry { epoch: Epoch(0), step: Step(3), origin, samples: vec![1], waited }
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
