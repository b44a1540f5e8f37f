//! What goes wrong in a chaos run: drawn from a seed, inflicted, and healed after a while.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use nix::{
    fcntl::OFlag,
    sys::{signal::Signal, stat::Mode},
    unistd::{Pid, mkfifo},
};
use tierfeed_core::{spread::Draws, units::Bytes};
use tierfeed_prefetcher::handoff::MemoryClient;

use super::{
    cast::{Cast, Part},
    clock::{Clock, pause},
    scene::{Disk, RANKS, SCRATCH_DISK_BYTES, Scene, Source},
    store::Trouble,
};

/// An agent of this age surely has its run directory.
const SETTLED: Duration = Duration::from_secs(5);

/// A second agent is turned away within this time, however busy the machine is.
const REFUSAL_MAX: Duration = Duration::from_secs(30);

/// A trainer that is neither stopped nor waits for the cold store looks around several times a second.
const FORK_MAX: Duration = Duration::from_secs(3);

/// Some looks of the agent.
const PRESSURE_MIN: Duration = Duration::from_secs(2);

/// For a loan of memory, which an agent that is stopped does not answer.
const LOAN_PATIENCE: Duration = Duration::from_millis(500);
const LOAN: Bytes = Bytes::mib(4);

/// Objects that vanish or change at a time.
const OBJECTS_AT_A_TIME: usize = 8;

/// Everything that can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    AgentKilled,
    TrainerKilled,
    ManagerKilled,
    AgentStopped,
    TrainerStopped,
    ManagerStopped,
    TierFull,
    TierLost,
    MemoryTaken,
    MemoryShort,
    MemoryLent,
    ObjectsVanished,
    ObjectsCut,
    ObjectStalled,
    StoreRefuses,
    TrainerOrphaned,
    SecondAgent,
}

impl Kind {
    pub(super) const ALL: [Self; 17] = [
        Self::AgentKilled,
        Self::TrainerKilled,
        Self::ManagerKilled,
        Self::AgentStopped,
        Self::TrainerStopped,
        Self::ManagerStopped,
        Self::TierFull,
        Self::TierLost,
        Self::MemoryTaken,
        Self::MemoryShort,
        Self::MemoryLent,
        Self::ObjectsVanished,
        Self::ObjectsCut,
        Self::ObjectStalled,
        Self::StoreRefuses,
        Self::TrainerOrphaned,
        Self::SecondAgent,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::AgentKilled => "agent killed",
            Self::TrainerKilled => "trainer killed",
            Self::ManagerKilled => "manager killed",
            Self::AgentStopped => "agent stopped",
            Self::TrainerStopped => "trainer stopped",
            Self::ManagerStopped => "manager stopped",
            Self::TierFull => "tier full",
            Self::TierLost => "tier directory gone",
            Self::MemoryTaken => "memory taken",
            Self::MemoryShort => "memory short",
            Self::MemoryLent => "tier memory lent",
            Self::ObjectsVanished => "objects vanished",
            Self::ObjectsCut => "objects cut short",
            Self::ObjectStalled => "object stalled",
            Self::StoreRefuses => "store refuses",
            Self::TrainerOrphaned => "trainer orphaned",
            Self::SecondAgent => "second agent",
        }
    }

    /// Whether this fault ends the life of the agent.
    pub(super) const fn ends_agent(self) -> bool {
        matches!(self, Self::AgentKilled | Self::TierLost)
    }

    /// Why this fault cannot be inflicted at all in this run.
    pub(super) fn left_out(self, scene: &Scene) -> Option<String> {
        match (self, &scene.disk, &scene.source, &scene.group) {
            (Self::TierFull, Disk::Shared { reason }, ..)
            | (Self::MemoryShort, .., Err(reason)) => Some(reason.clone()),
            (Self::StoreRefuses, _, Source::Files, _) => {
                Some("files answer at once; --source bucket has a store".to_owned())
            }
            _ => None,
        }
    }
}

/// Which faults may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Range {
    All,
    /// Those that the agent survives, so that its growth can be seen.
    AgentLives,
}

/// Draws faults: each kind once, in random order, then all of them again.
#[derive(Debug)]
pub(super) struct Deck {
    kinds: Vec<Kind>,
    draws: Draws,
    left: Vec<Kind>,
}

impl Deck {
    /// The faults of a seed, of the kinds that are possible. Ranges are drawn apart, so that the end of
    /// one moves nothing in the other.
    pub(super) fn new(seed: u64, range: Range, possible: &[Kind]) -> Self {
        let stream = match range {
            Range::All => 0,
            Range::AgentLives => 1,
        };
        let is_in_range = |kind: &Kind| range == Range::All || !kind.ends_agent();
        let kinds = possible.iter().copied().filter(is_in_range).collect();
        Self { kinds, draws: Draws::of(seed, stream), left: Vec::new() }
    }

    pub(super) fn draw(&mut self) -> Fault {
        if self.left.is_empty() {
            self.left.clone_from(&self.kinds);
        }
        let draws = &mut self.draws;
        let kind = self.left.swap_remove(below(draws, self.left.len() as u64));
        let victim = draws.word();
        let least = if kind == Kind::MemoryShort { PRESSURE_MIN } else { Duration::ZERO };
        let lasts = least + Duration::from_millis(100 + below(draws, 2400) as u64);
        let pause = Duration::from_millis(100 + below(draws, 900) as u64);
        Fault { kind, victim, lasts, pause }
    }
}

/// A fault as it was drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    /// Which rank or object it hits.
    victim: u64,
    /// How long it lasts.
    pub(super) lasts: Duration,
    /// How long after it the next one comes.
    pub(super) pause: Duration,
}

impl Fault {
    fn rank(self) -> u32 {
        u32::try_from(self.victim % u64::from(RANKS)).expect("below the number of ranks")
    }
}

fn below(draws: &mut Draws, end: u64) -> usize {
    usize::try_from(draws.word() % end).expect("below a small number")
}

fn below_len(word: u64, len: usize) -> usize {
    usize::try_from(word % len as u64).expect("below the length")
}

/// How a fault ends.
#[derive(Debug)]
pub(super) enum Cure {
    /// By itself.
    None,
    Continue(Part),
    Remove(PathBuf),
    /// A directory that was put aside comes back.
    Return {
        from: PathBuf,
        to: PathBuf,
    },
    Restore(Vec<Displaced>),
    /// The control group of the agent has too little memory.
    Relax,
    /// The store has made trouble of this number.
    Pacify(u64),
    TakeBack(#[expect(dead_code, reason = "held for its drop")] Box<MemoryClient>),
    End(Child),
    /// It must have been turned away.
    Refused(Child),
}

/// An object that is elsewhere while a fault has its place.
#[derive(Debug)]
pub(super) struct Displaced {
    object: PathBuf,
    aside: PathBuf,
}

/// What a fault needs beside the cast.
#[derive(Debug)]
pub(super) struct Tools<'a> {
    pub(super) scene: &'a Scene,
    pub(super) clock: Clock,
    pub(super) tierfeed: &'a Path,
    /// How much memory the hogger takes.
    pub(super) pressure: Bytes,
}

impl Tools<'_> {
    /// Inflicts a fault. `None` if it cannot be inflicted now.
    pub(super) fn inflict(&self, fault: Fault, cast: &mut Cast) -> anyhow::Result<Option<Cure>> {
        let kill = |cast: &mut Cast, part| cast.kill(part, fault.lasts);
        let is_done = |done: bool, cure: Cure| done.then_some(cure);
        Ok(match fault.kind {
            Kind::AgentKilled => is_done(kill(cast, Part::Agent)?, Cure::None),
            Kind::TrainerKilled => is_done(kill(cast, Part::Trainer(fault.rank()))?, Cure::None),
            Kind::ManagerKilled => is_done(kill(cast, Part::Manager)?, Cure::None),
            Kind::AgentStopped => stop(cast, Part::Agent)?,
            Kind::TrainerStopped => stop(cast, Part::Trainer(fault.rank()))?,
            Kind::ManagerStopped => stop(cast, Part::Manager)?,
            Kind::TierFull => self.fill_tier()?,
            Kind::TierLost => self.lose_tier(fault, cast)?,
            Kind::MemoryTaken => Some(Cure::End(self.hog(fault)?)),
            Kind::MemoryShort => self.press(cast)?,
            Kind::MemoryLent => self.borrow(),
            Kind::ObjectsVanished | Kind::ObjectsCut | Kind::ObjectStalled => self.damage(fault)?,
            Kind::StoreRefuses => self.trouble(Trouble::Refuse, &[])?,
            Kind::TrainerOrphaned => is_done(self.orphan(fault, cast)?, Cure::None),
            Kind::SecondAgent => match cast.age(Part::Agent) {
                Some(age) if age > SETTLED => Some(Cure::Refused(cast.second_agent(self.scene)?)),
                _ => None,
            },
        })
    }

    fn fill_tier(&self) -> anyhow::Result<Option<Cure>> {
        let filler = self.scene.filler();
        if self.scene.disk != Disk::Own || filler.exists() {
            return Ok(None);
        }
        let mut file = File::create(&filler)?;
        let noise = vec![0x5a; 64 << 10];
        // No more than the RAM disk has: what lies there now may be a directory of everybody's disk.
        for _ in 0..SCRATCH_DISK_BYTES / noise.len() {
            if file.write_all(&noise).is_err() {
                break;
            }
        }
        Ok(Some(Cure::Remove(filler)))
    }

    /// Takes the directory away and kills the agent, so that the next one finds it missing.
    fn lose_tier(&self, fault: Fault, cast: &mut Cast) -> anyhow::Result<Option<Cure>> {
        let (to, from) = (self.scene.scratch(), self.scene.scratch().with_extension("gone"));
        if from.exists() || !cast.kill(Part::Agent, fault.lasts / 2)? {
            return Ok(None);
        }
        fs::rename(&to, &from)?;
        Ok(Some(Cure::Return { from, to }))
    }

    fn hog(&self, fault: Fault) -> anyhow::Result<Child> {
        let mut hog = Command::new(self.tierfeed);
        hog.args(["hog", "--take", &format!("{} B", self.pressure.0)]);
        hog.args(["--for", &format!("{} ms", fault.lasts.as_millis())]);
        hog.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        hog.spawn().context("cannot start the hogger")
    }

    /// Takes what the control group of the agent has left. What the agent has by then is left to it, and
    /// to the one after it.
    fn press(&self, cast: &Cast) -> anyhow::Result<Option<Cure>> {
        let Ok(group) = &self.scene.group else { return Ok(None) };
        if cast.age(Part::Agent).is_none_or(|age| age < SETTLED) {
            return Ok(None);
        }
        group.squeeze()?;
        Ok(Some(Cure::Relax))
    }

    /// Kills a trainer whose socket another process keeps open, as a forked loader worker does.
    fn orphan(&self, fault: Fault, cast: &mut Cast) -> anyhow::Result<bool> {
        let rank = fault.rank();
        let (fork, number) = (self.scene.fork(rank), self.scene.orphan(rank));
        if cast.pid(Part::Trainer(rank)).is_none() {
            return Ok(false);
        }
        // Of a trainer that answered too late.
        drop(fs::remove_file(&number));
        fs::write(&fork, "")?;
        let begin = self.clock.now();
        while !number.exists() && self.clock.since(begin) < FORK_MAX {
            pause(Duration::from_millis(5));
        }
        // It is there if the trainer is stopped, or has no agent.
        drop(fs::remove_file(&fork));
        let Ok(number) = fs::read_to_string(&number) else { return Ok(false) };
        cast.adopt(Pid::from_raw(number.trim().parse()?));
        cast.kill(Part::Trainer(rank), fault.lasts)
    }

    /// Damages some objects, be they files or in the store.
    fn damage(&self, fault: Fault) -> anyhow::Result<Option<Cure>> {
        match (&self.scene.source, fault.kind) {
            (Source::Files, Kind::ObjectsCut) => self.displace(fault, OBJECTS_AT_A_TIME, put_half),
            (Source::Files, Kind::ObjectStalled) => self.displace(fault, 1, put_fifo),
            (Source::Files, _) => self.displace(fault, OBJECTS_AT_A_TIME, |_, _| Ok(())),
            (Source::Bucket(_), kind) => {
                let trouble = match kind {
                    Kind::ObjectsCut => Trouble::Cut,
                    Kind::ObjectStalled => Trouble::Stall,
                    _ => Trouble::Hide,
                };
                let objects = self.victims(fault, OBJECTS_AT_A_TIME);
                let keys = objects.map(|it| self.scene.key(it)).collect::<Result<Vec<_>, _>>()?;
                self.trouble(trouble, &keys)
            }
        }
    }

    fn trouble(&self, trouble: Trouble, keys: &[String]) -> anyhow::Result<Option<Cure>> {
        let Source::Bucket(store) = &self.scene.source else { return Ok(None) };
        Ok(Some(Cure::Pacify(store.begin(trouble, keys)?)))
    }

    /// Neighbours among the objects.
    fn victims(&self, fault: Fault, count: usize) -> impl Iterator<Item = &Path> {
        let objects = &self.scene.objects;
        let first = below_len(fault.victim, objects.len());
        objects.iter().cycle().skip(first).take(count).map(PathBuf::as_path)
    }

    /// Chunks of a tier for a workload, which the cache must give up.
    fn borrow(&self) -> Option<Cure> {
        let socket = self.scene.agent_dir().join("agent.sock");
        let client = MemoryClient::connect(&socket, LOAN_PATIENCE).ok()?;
        client.allocate(LOAN, LOAN_PATIENCE).ok()?;
        Some(Cure::TakeBack(Box::new(client)))
    }

    /// Moves some objects aside and puts something else in their place.
    fn displace(
        &self,
        fault: Fault,
        count: usize,
        put: fn(&Path, &Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<Option<Cure>> {
        let mut displaced = Vec::new();
        for object in self.victims(fault, count) {
            let name = object.file_name().context("an object has a name")?;
            let aside = self.scene.path("aside").join(name);
            // Another fault may have it already.
            if aside.exists() {
                continue;
            }
            fs::rename(object, &aside)?;
            put(object, &aside)?;
            displaced.push(Displaced { object: object.to_owned(), aside });
        }
        Ok((!displaced.is_empty()).then_some(Cure::Restore(displaced)))
    }
}

fn stop(cast: &mut Cast, part: Part) -> anyhow::Result<Option<Cure>> {
    Ok(cast.signal(part, Signal::SIGSTOP)?.then_some(Cure::Continue(part)))
}

fn put_half(object: &Path, aside: &Path) -> anyhow::Result<()> {
    let bytes = fs::read(aside)?;
    Ok(fs::write(object, &bytes[..bytes.len() / 2])?)
}

/// Whoever opens a pipe for reading waits until somebody writes, as on a file server that is gone.
fn put_fifo(object: &Path, _: &Path) -> anyhow::Result<()> {
    Ok(mkfifo(object, Mode::S_IRUSR | Mode::S_IWUSR)?)
}

impl Cure {
    /// Whether the fault can end, `late` after its time.
    pub(super) fn is_ready(&mut self, late: Duration) -> bool {
        match self {
            Self::Refused(child) => late > REFUSAL_MAX || !matches!(child.try_wait(), Ok(None)),
            _ => true,
        }
    }

    /// Ends a fault.
    pub(super) fn apply(self, cast: &mut Cast, scene: &Scene) -> anyhow::Result<()> {
        match self {
            Self::None | Self::TakeBack(_) => Ok(()),
            // A part that was killed meanwhile and started again is not stopped; the signal is harmless.
            Self::Continue(part) => cast.signal(part, Signal::SIGCONT).map(drop),
            Self::Remove(path) => Ok(fs::remove_file(path)?),
            Self::Return { from, to } => bring_back(&from, &to),
            Self::Restore(displaced) => displaced.iter().try_for_each(restore),
            Self::Relax => scene.group.as_ref().map_or(Ok(()), |group| Ok(group.relax()?)),
            Self::Pacify(number) => match &scene.source {
                Source::Bucket(store) => store.end(number),
                Source::Files => Ok(()),
            },
            Self::End(mut child) => {
                // An error means that it ended before.
                let _ = child.kill();
                child.wait()?;
                Ok(())
            }
            Self::Refused(mut child) => match child.try_wait()? {
                Some(status) if status.code() == Some(2) => Ok(()),
                Some(status) => bail!("a second agent was not turned away: {status}"),
                None => {
                    child.kill()?;
                    child.wait()?;
                    bail!("a second agent was let in")
                }
            },
        }
    }

    /// Whether a second agent is about to be turned away, which must find the first.
    pub(super) const fn needs_agent(&self) -> bool {
        matches!(self, Self::Refused(_))
    }

    /// Whether the agent may end by itself as long as the fault lasts.
    pub(super) const fn excuses_agent(&self) -> bool {
        matches!(self, Self::Return { .. } | Self::Remove(_))
    }
}

fn bring_back(from: &Path, to: &Path) -> anyhow::Result<()> {
    // An agent that came meanwhile made another; it has it open, and chunks have no names.
    match fs::remove_dir(to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("{}: left behind", to.display()));
        }
        _ => (),
    }
    Ok(fs::rename(from, to)?)
}

fn restore(displaced: &Displaced) -> anyhow::Result<()> {
    let Displaced { object, aside } = displaced;
    // Lets go whoever waits in the pipe; there is nobody to let go in an error.
    let mut options = OpenOptions::new();
    let flags = OFlag::O_NONBLOCK.bits();
    drop(options.write(true).custom_flags(flags).open(object));
    Ok(fs::rename(aside, object)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_faults_again() {
        let drawn = |seed| {
            let mut deck = Deck::new(seed, Range::All, &Kind::ALL);
            std::iter::repeat_with(|| deck.draw()).take(100).collect::<Vec<_>>()
        };
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }

    #[test]
    fn every_kind_comes_before_one_comes_again() {
        let mut deck = Deck::new(1, Range::All, &Kind::ALL);
        for _ in 0..5 {
            let mut kinds: Vec<Kind> = Kind::ALL.iter().map(|_| deck.draw().kind).collect();
            kinds.sort_unstable();
            let mut all = Kind::ALL.to_vec();
            all.sort_unstable();
            assert_eq!(kinds, all);
        }
    }

    #[test]
    fn what_is_impossible_here_never_comes() {
        let mut deck = Deck::new(1, Range::All, &[Kind::AgentKilled, Kind::ManagerStopped]);
        assert!((0..100).all(|_| deck.draw().kind != Kind::StoreRefuses));
    }

    #[test]
    fn no_fault_of_the_second_half_ends_the_agent() {
        let mut deck = Deck::new(1, Range::AgentLives, &Kind::ALL);
        assert!((0..100).all(|_| !deck.draw().kind.ends_agent()));
    }
}
