//! `tierfeed bench chaos`: a live training of two ranks to which everything happens that can happen.
//!
//! Manager, agent and trainers are processes of their own. A seed draws faults, several at a time: kills,
//! stops, a full tier, a tier that is gone, memory that is taken, short or lent, objects that vanish, are
//! cut or hang, a store that refuses, a second agent, a process that keeps the socket of a dead trainer.
//! Trainers compare every sample with the checksum of the file as it was made, and write down what they
//! used; at the end that is compared with the order. In the second part the agent lives, so that its
//! growth can be seen; in the third nothing happens, so that the growth of everybody can.
//!
//! The draws follow from the seed alone, so a seed that failed can be played again. When each fault finds
//! the processes is up to the machine.

mod cast;
mod clock;
mod cold;
mod fault;
mod footprint;
mod group;
pub mod idle;
mod record;
mod scene;
mod store;
pub mod trainer;
mod verdict;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context as _, bail};
use nix::sys::signal::Signal;
use serde::Serialize;
use tierfeed_core::{id::Rank, units::Bytes};
use tierfeed_workload_analyzer::{Index, Job};

use self::{
    cast::{Cast, Endings, Part, tail},
    clock::{Clock, pause},
    fault::{Cure, Deck, Kind, Range, Tools},
    scene::{RANKS, Scene},
    verdict::{given_back, leftovers, seconds, shared_memory},
};
pub use self::{
    footprint::Footprint,
    verdict::{Growth, Sample},
};
use crate::files;

/// Files of the dataset.
const FILES: u64 = 300;

/// What a rank computes in a step.
const STEP: Duration = Duration::from_millis(20);

const POLL_EVERY: Duration = Duration::from_millis(10);

/// After so many faults all are healed, and everybody must get on.
const FAULTS_BETWEEN_CALMS: u32 = 10;

/// How long a calm lasts before what the agent holds is looked at.
const CALM: Duration = Duration::from_millis(1500);

/// Parts of the time: all faults, those that the agent survives, none.
const TWELFTHS: [u32; 3] = [5, 5, 2];

/// Between two looks at what everybody holds while nothing happens.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A fault that is drawn so often was possible at some of these times.
const DRAWN_MIN: u64 = 3;

/// In a calm every rank gets its batches from the agent again within this time.
const RECOVERY_MAX: Duration = Duration::from_secs(60);

/// What to run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The `tierfeed` binary.
    pub tierfeed: PathBuf,
    /// Where files are made, and removed afterwards.
    pub folder: PathBuf,
    /// For how long faults are inflicted.
    pub time: Duration,
    /// Of the faults.
    pub seed: u64,
    /// How much memory is taken at a time, and what the control group of the agent may have.
    pub pressure: Bytes,
    /// The S3 server that the dataset is read from, or `None` to read files.
    pub server: Option<PathBuf>,
}

/// What happened.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// Of the faults.
    pub seed: u64,
    /// For how long faults were inflicted.
    pub time_s: f64,
    /// How often each fault was inflicted.
    pub faults: BTreeMap<&'static str, u64>,
    /// All of them.
    pub fault_count: u64,
    /// Faults that could not be inflicted here at all, and why.
    pub left_out: Vec<String>,
    /// Batches that trainers used.
    pub batches: u64,
    /// Samples that trainers used and compared.
    pub samples: u64,
    /// Batches by where they came from.
    pub batches_by_origin: BTreeMap<&'static str, u64>,
    /// xxh3-64 of the samples that were used, and of those of the order.
    pub digest: String,
    /// As the order says.
    pub digest_expected: String,
    /// How often each part was started.
    pub starts: BTreeMap<String, u32>,
    /// The longest that everybody took to get on after all faults were healed.
    pub recovery_s_max: f64,
    /// What an agent said that did not start while its tier was full or gone.
    pub excused: Vec<String>,
    /// What each part held over its longest life: the agent with faults, all others without.
    pub growth: Vec<Growth>,
    /// Times at which the last agent gave memory back because too little was free.
    pub memory_given_back: usize,
    /// Everything that is not as it should be; empty if all is well.
    pub violations: Vec<String>,
}

/// Makes a dataset, trains, inflicts faults, and looks at what came of it.
///
/// # Errors
///
/// If the folder cannot be written or a process cannot be started. What goes wrong in the run itself is
/// in [`Outcome::violations`].
pub fn run(settings: &Settings, say: &mut dyn FnMut(&str)) -> anyhow::Result<Outcome> {
    files::in_folder(&settings.folder, |folder| {
        let memory = Some(settings.pressure);
        let scene = Scene::make(folder, FILES, settings.server.as_deref(), memory)?;
        let mut outcome = Outcome::new(settings, &scene);
        let shared_before = shared_memory();
        let clock = Clock::start();
        let mut cast = Cast::new(settings.tierfeed.clone(), clock, STEP);
        let mut play = Play::new(settings, &scene, clock);
        if let Err(error) = play.all(&mut cast, &mut outcome, say) {
            outcome.violations.push(format!("{error:#}"));
            for part in Part::all() {
                say(&format!("{} said last:\n{}", part.name(), tail(&scene, part)));
            }
        }
        outcome.starts = Part::all().map(|part| (part.name(), cast.starts(part))).collect();
        outcome.excused = std::mem::take(&mut cast.excused);
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
            starts: BTreeMap::new(),
            recovery_s_max: 0.0,
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
        let Play { scene, samples, pressed, .. } = play;
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
        self.growth = Growth::of_all(samples);
        self.violations.extend(self.growth.iter().flat_map(Growth::excess));
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
        if *pressed >= DRAWN_MIN && self.memory_given_back == 0 {
            let what = format!("memory was short {pressed} times, and the agent gave nothing back");
            self.violations.push(what);
        }
        Ok(())
    }

    /// What was drawn and never took place was not tested.
    fn note_untested(&mut self, drawn: &BTreeMap<&'static str, u64>) {
        for (name, count) in drawn {
            if *count >= DRAWN_MIN && self.faults.get(name) == Some(&0) {
                self.violations.push(format!("{name}: drawn {count} times, and never inflicted"));
            }
        }
    }
}

/// A fault that lasts.
#[derive(Debug)]
struct Active {
    until: Duration,
    cure: Cure,
}

/// One chaos run.
struct Play<'a> {
    settings: &'a Settings,
    scene: &'a Scene,
    clock: Clock,
    active: Vec<Active>,
    samples: Vec<Sample>,
    drawn: BTreeMap<&'static str, u64>,
    possible: Vec<Kind>,
    /// How often memory was short in the life of the last agent.
    pressed: u64,
}

impl<'a> Play<'a> {
    fn new(settings: &'a Settings, scene: &'a Scene, clock: Clock) -> Self {
        let possible = Kind::ALL.into_iter().filter(|kind| kind.left_out(scene).is_none());
        Self {
            settings,
            scene,
            clock,
            active: Vec::new(),
            samples: Vec::new(),
            drawn: BTreeMap::new(),
            possible: possible.collect(),
            pressed: 0,
        }
    }

    fn all(
        &mut self,
        cast: &mut Cast,
        outcome: &mut Outcome,
        say: &mut dyn FnMut(&str),
    ) -> anyhow::Result<()> {
        cast.begin(self.scene)?;
        self.calm(cast, outcome)?;
        let [all, lives, steady] = TWELFTHS.map(|part| self.settings.time * part / 12);
        for (range, time) in [(Range::All, all), (Range::AgentLives, lives)] {
            let mut deck = Deck::new(self.settings.seed, range, &self.possible);
            let begin = self.clock.now();
            self.pressed = 0;
            while self.clock.since(begin) < time {
                for _ in 0..FAULTS_BETWEEN_CALMS {
                    self.inflict(&mut deck, cast, outcome)?;
                }
                self.heal(cast)?;
                self.calm(cast, outcome)?;
                say(&format!("{} faults so far", outcome.fault_count));
            }
        }
        self.watch(steady, cast)?;
        outcome.note_untested(&self.drawn);
        self.end(cast)
    }

    /// Lets everybody train, and looks at what they hold.
    fn watch(&mut self, time: Duration, cast: &mut Cast) -> anyhow::Result<()> {
        let begin = self.clock.now();
        while self.clock.since(begin) < time {
            self.pass(LOOK_EVERY, cast)?;
            Part::all().try_for_each(|part| self.look(part, cast))?;
        }
        Ok(())
    }

    /// Takes note of what a part holds.
    fn look(&mut self, part: Part, cast: &Cast) -> anyhow::Result<()> {
        let is_gone = || format!("{} is there in a calm", part.name());
        let held = cast.pid(part).and_then(footprint::of).with_context(is_gone)?;
        let (at_s, life) = (seconds(self.clock.now()), cast.starts(part));
        self.samples.push(Sample { part: part.name(), at_s, life, held });
        Ok(())
    }

    /// Inflicts the next fault, and lets the pause after it pass.
    fn inflict(
        &mut self,
        deck: &mut Deck,
        cast: &mut Cast,
        outcome: &mut Outcome,
    ) -> anyhow::Result<()> {
        let fault = deck.draw();
        *self.drawn.entry(fault.kind.name()).or_default() += 1;
        if fault.kind.ends_agent() && self.active.iter().any(|it| it.cure.needs_agent()) {
            return self.pass(fault.pause, cast);
        }
        let tools = Tools {
            scene: self.scene,
            clock: self.clock,
            tierfeed: &self.settings.tierfeed,
            pressure: self.settings.pressure,
        };
        if let Some(cure) = tools.inflict(fault, cast)? {
            *outcome.faults.entry(fault.kind.name()).or_default() += 1;
            outcome.fault_count += 1;
            self.pressed += u64::from(fault.kind == Kind::MemoryShort);
            self.active.push(Active { until: self.clock.now() + fault.lasts, cure });
        }
        self.pass(fault.pause, cast)
    }

    /// Lets time pass: heals what is over, starts again what was killed.
    fn pass(&mut self, time: Duration, cast: &mut Cast) -> anyhow::Result<()> {
        let end = self.clock.now() + time;
        while self.clock.now() < end {
            let now = self.clock.now();
            let is_over =
                |it: &mut Active| it.until <= now && it.cure.is_ready(now.saturating_sub(it.until));
            let over: Vec<Active> = self.active.extract_if(.., is_over).collect();
            over.into_iter().try_for_each(|it| it.cure.apply(cast, self.scene))?;
            self.supervise(cast)?;
            pause(POLL_EVERY);
        }
        Ok(())
    }

    fn supervise(&self, cast: &mut Cast) -> anyhow::Result<()> {
        let is_excused = self.active.iter().any(|it| it.cure.excuses_agent());
        let endings = if is_excused { Endings::AgentMayFail } else { Endings::Unexpected };
        cast.supervise(self.scene, endings)
    }

    fn heal(&mut self, cast: &mut Cast) -> anyhow::Result<()> {
        while !self.active.is_empty() {
            self.pass(POLL_EVERY, cast)?;
        }
        Ok(())
    }

    /// Without faults: every rank gets on by the agent, within a limit. Then what the agent holds.
    fn calm(&mut self, cast: &mut Cast, outcome: &mut Outcome) -> anyhow::Result<()> {
        let begin = self.clock.now();
        let served = |scene: &Scene| -> Vec<u64> {
            (0..RANKS).map(|rank| record::served(&scene.record(rank))).collect()
        };
        let before = served(self.scene);
        while served(self.scene).iter().zip(&before).any(|(now, before)| now <= before) {
            let took = self.clock.since(begin);
            if took > RECOVERY_MAX {
                bail!("not every rank gets batches from the agent {took:?} after the last fault");
            }
            self.pass(POLL_EVERY * 5, cast)?;
        }
        outcome.recovery_s_max = outcome.recovery_s_max.max(seconds(self.clock.since(begin)));
        // Until here the agent had to do without their end.
        cast.end_orphans();
        self.pass(CALM, cast)?;
        self.look(Part::Agent, cast)
    }

    /// Has everybody end in good order.
    fn end(&mut self, cast: &mut Cast) -> anyhow::Result<()> {
        std::fs::write(self.scene.stop(), "")?;
        let trainers = (0..RANKS).map(Part::Trainer);
        for part in trainers.chain([Part::Agent, Part::Manager]) {
            if !matches!(part, Part::Trainer(_)) {
                cast.signal(part, Signal::SIGTERM)?;
            }
            let status = cast.end(part)?;
            if !status.success() {
                let said = tail(self.scene, part);
                bail!("{} was asked to end and ended with {status}:\n{said}", part.name());
            }
        }
        Ok(())
    }
}

/// The outcome for people.
#[must_use]
pub fn table(outcome: &Outcome) -> String {
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
    for said in &outcome.excused {
        _ = writeln!(text, "an agent did not start without its tier: {said}");
    }
    _ = writeln!(text, "memory given back {} times", outcome.memory_given_back);
    for Growth { part, over_s, first, last } in &outcome.growth {
        let mib = |held: &Footprint| held.memory_bytes >> 20;
        _ = writeln!(
            text,
            "{part} over {over_s:.0} s: {} to {} MiB, {} to {} descriptors, {} to {} files without a \
             name, {} to {} threads",
            mib(first),
            mib(last),
            first.descriptors,
            last.descriptors,
            first.files,
            last.files,
            first.threads,
            last.threads
        );
    }
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
