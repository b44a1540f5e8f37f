//! A campaign: makes a dataset, trains, injects faults, and compares what came of it with the order.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::PathBuf,
    time::Duration,
};

use serde::Serialize;
use tierfeed_core::{id::Rank, units::Bytes};
use tierfeed_dataset::Index;
use tierfeed_harness::files;
use tierfeed_workload_analyzer::Job;

use crate::{
    cast::{Cast, tail},
    clock::Clock,
    fault::Kind,
    part::{Part, RANKS},
    play::Play,
    record,
    scene::Scene,
    settings::Settings,
    siege::Sieges,
    verdict::{Growth, Sample, given_back, leftovers, seconds, shared_memory},
};

/// Files of the dataset.
const FILES: u64 = 300;

/// What a rank computes in a step.
const STEP: Duration = Duration::from_millis(20);

/// A fault that is drawn so often was possible at some of these times.
const DRAWN_MIN: u64 = 3;

/// What happened.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    /// Of the faults.
    pub(crate) seed: u64,
    /// For how long faults were inflicted.
    pub(crate) time_s: f64,
    /// How often each fault was inflicted.
    pub(crate) faults: BTreeMap<&'static str, u64>,
    /// All of them.
    pub(crate) fault_count: u64,
    /// Faults that could not be inflicted here at all, and why.
    pub(crate) left_out: Vec<String>,
    /// Batches that trainers used.
    pub(crate) batches: u64,
    /// Samples that trainers used and compared.
    pub(crate) samples: u64,
    /// Batches by where they came from.
    pub(crate) batches_by_origin: BTreeMap<&'static str, u64>,
    /// xxh3-64 of the samples that were used, and of those of the order.
    pub(crate) digest: String,
    /// As the order says.
    pub(crate) digest_expected: String,
    /// How often a thread panicked on purpose, by its place.
    pub(crate) panics: BTreeMap<&'static str, u64>,
    /// How many system calls failed on purpose, by call and error.
    pub(crate) failed_calls: BTreeMap<String, u64>,
    /// How often each part was started.
    pub(crate) starts: BTreeMap<String, u32>,
    /// The longest that everybody took to get on after all faults were healed.
    pub(crate) recovery_s_max: f64,
    /// What trainers waited while one client was hostile and nothing else went wrong.
    pub(crate) sieges: Sieges,
    /// What an agent said that did not start while its tier was full or gone.
    pub(crate) excused: Vec<String>,
    /// What each part held over its longest life: the agent with faults, all others without. Chunks of
    /// tiers are compared with the books of the agent instead.
    pub(crate) growth: Vec<Growth>,
    /// Times at which the last agent gave memory back because too little was free.
    pub(crate) memory_given_back: usize,
    /// Everything that is not as it should be; empty if all is well.
    pub(crate) violations: Vec<String>,
}

/// Makes a dataset, trains, inflicts faults, and looks at what came of it.
///
/// # Errors
///
/// If the folder cannot be written or a process cannot be started. What goes wrong in the run itself is
/// in [`Outcome::violations`].
pub(crate) fn run(settings: &Settings, say: &mut dyn FnMut(&str)) -> anyhow::Result<Outcome> {
    files::in_folder(&settings.folder, |folder| {
        let memory = Some(settings.pressure);
        let scene = Scene::make(folder, FILES, settings.server.as_deref(), memory)?;
        let mut outcome = Outcome::new(settings, &scene);
        let shared_before = shared_memory();
        let clock = Clock::start();
        let mut cast = Cast::new(settings.programs.clone(), clock, STEP);
        let mut play = Play::new(settings, &scene, clock);
        match play.all(&mut cast, say) {
            Ok(()) => outcome.note_untested(&play),
            Err(error) => {
                outcome.violations.push(format!("{error:#}"));
                for part in Part::all() {
                    say(&format!("{} said last:\n{}", part.name(), tail(&scene, part)));
                }
            }
        }
        outcome.starts = Part::all().map(|part| (part.name(), cast.starts(part))).collect();
        outcome.excused = std::mem::take(&mut cast.excused);
        outcome.panics = std::mem::take(&mut cast.panics);
        outcome.failed_calls = std::mem::take(&mut cast.failed_calls);
        drop(cast);
        outcome.conclude(&play, &shared_before)?;
        Ok(outcome)
    })
}

impl Outcome {
    fn new(settings: &Settings, scene: &Scene) -> Self {
        let why = |kind: Kind| Some(format!("{}: {}", kind.name(), kind.left_out(scene)?));
        Self {
            seed: settings.seed,
            time_s: seconds(settings.time),
            faults: Kind::ALL.into_iter().map(|kind| (kind.name(), 0)).collect(),
            fault_count: 0,
            left_out: Kind::ALL.into_iter().filter_map(why).collect(),
            batches: 0,
            samples: 0,
            batches_by_origin: BTreeMap::new(),
            digest: String::new(),
            digest_expected: String::new(),
            panics: BTreeMap::new(),
            failed_calls: BTreeMap::new(),
            starts: BTreeMap::new(),
            recovery_s_max: 0.0,
            sieges: Sieges::default(),
            excused: Vec::new(),
            growth: Vec::new(),
            memory_given_back: 0,
            violations: Vec::new(),
        }
    }

    fn conclude(
        &mut self,
        play: &Play<'_>,
        shared_before: &BTreeSet<String>,
    ) -> anyhow::Result<()> {
        let scene = play.scene;
        let index = Index::open(&scene.manager_dir().join("dataset.index"))?;
        let order = Job::load(&scene.job())?.order(index.len())?;
        let paths: Vec<PathBuf> = (0..RANKS).map(|rank| scene.record(rank)).collect();
        let records: Vec<_> = (0..).map(Rank).zip(paths.iter().map(PathBuf::as_path)).collect();
        let compared = record::compare(&order, &records)?;
        self.batches = compared.batches;
        self.samples = compared.samples;
        self.batches_by_origin = compared.by_origin;
        self.digest = format!("{:016x}", compared.digest);
        self.digest_expected = format!("{:016x}", compared.digest_expected);
        self.violations.extend(compared.differing.into_iter().take(10));
        if self.digest != self.digest_expected {
            self.violations.push("what was used is not what the order says".to_owned());
        }
        self.faults.clone_from(&play.inflicted);
        self.fault_count = self.faults.values().sum();
        self.recovery_s_max = seconds(play.recovery_max);
        self.sieges = play.sieges.clone();
        self.violations.extend(play.violations.iter().cloned());
        self.growth = Growth::of_all(&play.samples);
        self.violations.extend(self.growth.iter().flat_map(Growth::excess));
        self.violations.extend(play.samples.iter().filter_map(Sample::leak).take(10));
        self.violations.extend(leftovers(scene, shared_before));
        if let Ok(group) = &scene.group {
            let (killed, swapped) = (group.killed(), Bytes(group.swapped()));
            if (killed, swapped) != (0, Bytes(0)) {
                let what =
                    format!("under pressure {killed} processes were killed, {swapped} swapped");
                self.violations.push(what);
            }
        }
        self.memory_given_back = given_back(&scene.agent_dir().join("report.json"));
        if play.pressed >= DRAWN_MIN && self.memory_given_back == 0 {
            let what =
                format!("memory was short {} times, and the agent gave nothing back", play.pressed);
            self.violations.push(what);
        }
        Ok(())
    }

    /// What was drawn and never took place was not tested.
    fn note_untested(&mut self, play: &Play<'_>) {
        for (name, count) in &play.drawn {
            if *count >= DRAWN_MIN && play.inflicted.get(name) == Some(&0) {
                self.violations.push(format!("{name}: drawn {count} times, and never inflicted"));
            }
        }
    }
}

fn list<K: std::fmt::Display>(counts: &BTreeMap<K, u64>) -> String {
    let each: Vec<_> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    if each.is_empty() { "none".to_owned() } else { each.join(", ") }
}

fn siege_line(sieges: &Sieges) -> String {
    let Sieges { count, batches, wait_s_max, wait_s_max_before, wait_share_max, .. } = sieges;
    format!(
        "{count} times alone with a hostile client and at least {} silent connections: {batches} batches, \
         the longest wait {:.0} ms, {:.0} ms before, at most {:.0} % of what is allowed (500 ms, or four \
         times the longest before); metrics within {:.0} ms\n",
        sieges.silent_min,
        wait_s_max * 1e3,
        wait_s_max_before * 1e3,
        wait_share_max * 1e2,
        sieges.answer_s_max * 1e3
    )
}

fn growth_line(growth: &Growth) -> String {
    let Growth { part, over_s, first, last } = growth;
    let mib = |bytes: u64| bytes >> 20;
    format!(
        "{part} over {over_s:.0} s: {} to {} MiB and {} to {} MiB of chunks, {} to {} descriptors, \
             {} to {} files without a name, {} to {} threads\n",
        mib(first.memory_bytes),
        mib(last.memory_bytes),
        mib(first.cache_bytes),
        mib(last.cache_bytes),
        first.descriptors,
        last.descriptors,
        first.files,
        last.files,
        first.threads,
        last.threads
    )
}

/// The outcome for people.
#[must_use]
pub(crate) fn table(outcome: &Outcome) -> String {
    let mut text = String::new();
    _ = writeln!(
        text,
        "seed {}, {:.0} s, {} faults:",
        outcome.seed, outcome.time_s, outcome.fault_count
    );
    for (name, count) in &outcome.faults {
        _ = writeln!(text, "  {name:<22}{count:>6}");
    }
    for reason in &outcome.left_out {
        _ = writeln!(text, "  left out: {reason}");
    }
    let starts: Vec<_> = outcome.starts.iter().map(|(name, it)| format!("{name} {it}")).collect();
    _ = writeln!(text, "started: {}", starts.join(", "));
    let origins: Vec<_> =
        outcome.batches_by_origin.iter().map(|(name, it)| format!("{name} {it}")).collect();
    _ = writeln!(text, "{} batches used ({})", outcome.batches, origins.join(", "));
    _ = writeln!(
        text,
        "{} samples compared with their checksums; digest {}, of the order {}",
        outcome.samples, outcome.digest, outcome.digest_expected
    );
    _ = writeln!(text, "slowest recovery {:.1} s", outcome.recovery_s_max);
    for (what, counts) in [
        ("panics on purpose", list(&outcome.panics)),
        ("calls that failed on purpose", list(&outcome.failed_calls)),
        ("a hostile client", list(&outcome.sieges.moves)),
    ] {
        _ = writeln!(text, "{what}: {counts}");
    }
    text.push_str(&siege_line(&outcome.sieges));
    for said in &outcome.excused {
        _ = writeln!(text, "an agent did not start without its tier: {said}");
    }
    _ = writeln!(text, "memory given back {} times", outcome.memory_given_back);
    outcome.growth.iter().for_each(|it| text.push_str(&growth_line(it)));
    if !outcome.growth.iter().any(|it| it.part == Part::Agent.name()) {
        text.push_str("no agent lived long enough to tell growth\n");
    }
    match outcome.violations.len() {
        0 => text
            .push_str("no wrong byte, no lost or doubled sample, order unchanged, nothing left\n"),
        count => {
            _ = writeln!(text, "{count} violations (again with --seed {}):", outcome.seed);
            outcome.violations.iter().for_each(|it| _ = writeln!(text, "  {it}"));
        }
    }
    text
}
