//! A time in which nothing goes wrong but one hostile client: what its neighbours waited then, beside what
//! they waited just before.

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
    hostile::Tally,
    inflict::Tools,
    part::RANKS,
    record::{self, Entry, Origin},
    scene::Scene,
    silence::{self, Silence},
};

/// For how long the hostile client is left alone with the trainers.
pub(crate) const TIME: Duration = Duration::from_secs(2);

/// A rank may wait so long for a batch while another client is hostile. Batches are ready before they are
/// asked for; this is far more than one read of a batch takes, and what a busy host costs.
pub(crate) const WAIT_MAX: Duration = Duration::from_millis(500);

/// On a machine that is busy itself, waits may be so many times what they were just before.
const TIMES_BEFORE: u32 = 4;

/// What trainers waited while one client was hostile.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Sieges {
    /// How often a hostile client was alone with the trainers.
    pub(crate) count: u64,
    /// What it did.
    pub(crate) moves: BTreeMap<String, u64>,
    /// Batches that were used meanwhile.
    pub(crate) batches: u64,
    /// The longest wait for one of them.
    pub(crate) wait_s_max: f64,
    /// The longest wait in as long a time before each.
    pub(crate) wait_s_max_before: f64,
    /// The most that a wait was of what was allowed then.
    pub(crate) wait_share_max: f64,
    /// Connections that said nothing meanwhile, each time at least.
    pub(crate) silent_min: u64,
    /// The longest that manager or agent took to answer on the network beside them.
    pub(crate) answer_s_max: f64,
}

/// How far the record of each rank has come.
pub(crate) struct Marks(Vec<usize>);

impl Marks {
    pub(crate) fn set(scene: &Scene) -> anyhow::Result<Self> {
        let lines = |rank| Ok(record::read(&scene.record(rank))?.len());
        (0..RANKS).map(lines).collect::<anyhow::Result<_>>().map(Self)
    }

    /// What every rank used since.
    fn entries(&self, scene: &Scene) -> anyhow::Result<Vec<(u32, Entry)>> {
        let mut all = Vec::new();
        for (rank, mark) in (0..).zip(&self.0) {
            let entries = record::read(&scene.record(rank))?.into_iter().skip(*mark);
            all.extend(entries.map(|entry| (rank, entry)));
        }
        Ok(all)
    }

    pub(crate) fn wait_max(&self, scene: &Scene) -> anyhow::Result<Duration> {
        let entries = self.entries(scene)?;
        Ok(entries.iter().map(|(_, entry)| entry.waited).max().unwrap_or_default())
    }
}

impl Tools<'_> {
    /// A hostile client that ends by itself and prints what it did.
    pub(crate) fn hostile(&self, seed: u64, time: Duration) -> anyhow::Result<Child> {
        let mut hostile = Command::new(&self.programs.own);
        hostile.args(["hostile", "--seed", &seed.to_string()]);
        hostile.arg("--socket").arg(self.scene.agent_dir().join("agent.sock"));
        hostile.args(["--rank", &RANKS.to_string(), "--time", &format!("{} ms", time.as_millis())]);
        if let Some(manager) = self.manager {
            hostile.args(["--manager", manager]);
        }
        hostile.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        hostile.spawn().context("cannot start the hostile client")
    }
}

impl Sieges {
    /// Asks manager and agent for metrics beside silent connections, and returns what went wrong.
    pub(crate) fn ask(&mut self, scene: &Scene, clock: Clock, silence: &Silence) -> Vec<String> {
        let silent = silence.len();
        self.silent_min = if self.count == 0 { silent } else { self.silent_min.min(silent) };
        let mut faults = Vec::new();
        for targets in [scene.manager_targets(), scene.agent_targets()] {
            match silence::scrape(clock, &targets) {
                Ok(took) if took <= silence::ANSWER_MAX => {
                    self.answer_s_max = self.answer_s_max.max(took.as_secs_f64());
                }
                Ok(took) => faults.push(format!(
                    "metrics of {} took {took:?} beside {silent} silent connections",
                    targets.display()
                )),
                Err(error) => faults.push(format!(
                    "no metrics of {} beside {silent} silent connections: {error:#}",
                    targets.display()
                )),
            }
        }
        if silent == 0 {
            faults.push("no silent connection was made".to_owned());
        }
        faults
    }

    /// Takes note of one, and returns what was not as it should be.
    pub(crate) fn note(
        &mut self,
        scene: &Scene,
        marks: &Marks,
        before: Duration,
        mut hostile: Child,
    ) -> anyhow::Result<Vec<String>> {
        let mut said = String::new();
        hostile.stdout.take().context("it is piped")?.read_to_string(&mut said)?;
        let status = hostile.wait()?;
        let tally: Tally = serde_json::from_str(&said)
            .with_context(|| format!("the hostile client ended with {status} and said {said:?}"))?;
        let entries = marks.entries(scene)?;
        let longest = entries.iter().map(|(_, entry)| entry.waited).max().unwrap_or_default();
        self.count += 1;
        for (kind, count) in &tally.moves {
            *self.moves.entry(kind.clone()).or_default() += count;
        }
        let share = longest.as_secs_f64() / bound(before).as_secs_f64();
        self.wait_share_max = self.wait_share_max.max(share);
        self.batches += entries.len() as u64;
        self.wait_s_max = self.wait_s_max.max(longest.as_secs_f64());
        self.wait_s_max_before = self.wait_s_max_before.max(before.as_secs_f64());
        Ok(faults_of(&entries, before, &tally))
    }
}

/// What a rank may wait that waited so long at most before.
fn bound(before: Duration) -> Duration {
    WAIT_MAX.max(before * TIMES_BEFORE)
}

fn faults_of(entries: &[(u32, Entry)], before: Duration, tally: &Tally) -> Vec<String> {
    let mut faults = Vec::new();
    let bound = bound(before);
    for (rank, entry) in entries {
        let (epoch, step, waited) = (entry.epoch.0, entry.step.0, entry.waited);
        if waited > bound {
            faults.push(format!(
                "rank {rank} waited {waited:?} for epoch {epoch}, step {step} while one client was \
                 hostile; {bound:?} are allowed, {before:?} were the most before"
            ));
        }
        if matches!(entry.origin, Origin::Late | Origin::Alone) {
            let origin = entry.origin.name();
            faults.push(format!(
                "rank {rank} read epoch {epoch}, step {step} by itself ({origin}) while one client was \
                 hostile"
            ));
        }
    }
    for rank in 0..RANKS {
        if !entries.iter().any(|(of, _)| *of == rank) {
            faults.push(format!("rank {rank} used no batch for {TIME:?} beside a hostile client"));
        }
    }
    if tally.let_in > 0 {
        faults.push(format!("a client was let in {} times as a rank that lives", tally.let_in));
    }
    faults.truncate(10);
    faults
}

#[cfg(test)]
mod tests {
    use tierfeed_core::id::{Epoch, Step};

    use super::*;

    fn entry(origin: Origin, waited_ms: u64) -> Entry {
        let waited = Duration::from_millis(waited_ms);
        Entry { epoch: Epoch(0), step: Step(3), origin, samples: vec![1], waited }
    }

    fn faults(entries: &[(u32, Entry)], before_ms: u64, let_in: u64) -> Vec<String> {
        let tally = Tally { moves: BTreeMap::new(), let_in };
        faults_of(entries, Duration::from_millis(before_ms), &tally)
    }

    #[test]
    fn neighbours_of_a_hostile_client_are_served_on_time_and_keep_their_ranks() {
        let both = |origin, waited| [(0, entry(Origin::Agent, 1)), (1, entry(origin, waited))];
        assert_eq!(faults(&both(Origin::Agent, 499), 1, 0), Vec::<String>::new());
        assert_eq!(faults(&both(Origin::Agent, 900), 300, 0), Vec::<String>::new());
        let late = faults(&both(Origin::Agent, 501), 1, 0);
        assert!(late[0].contains("rank 1 waited 501ms"), "{late:?}");
        for origin in [Origin::Late, Origin::Alone] {
            assert!(faults(&both(origin, 1), 1, 0)[0].contains("by itself"));
        }
        assert!(faults(&both(Origin::Agent, 1)[..1], 1, 0)[0].contains("rank 1 used no batch"));
        assert!(faults(&both(Origin::Agent, 1), 1, 2)[0].contains("let in 2 times"));
    }
}
