//! Does what was drawn: kills and stops processes, fills disks, takes memory, damages objects.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::Context as _;
use nix::{
    sys::{signal::Signal, stat::Mode},
    unistd::mkfifo,
};
use tierfeed_core::units::Bytes;
use tierfeed_handoff::MemoryClient;
use tierfeed_harness::programs::Programs;

use crate::{
    calls::Failing,
    cast::Cast,
    cure::{Cure, Displaced},
    fault::{Fault, Kind},
    group::Stage,
    panics::Drill,
    part::Part,
    scene::{Disk, SCRATCH_DISK_BYTES, Scene, Source},
    silence::Silence,
    store::Trouble,
};

/// An agent of this age surely has its run directory.
const SETTLED: Duration = Duration::from_secs(5);

/// For a loan of memory, which an agent that is stopped does not answer.
const LOAN_PATIENCE: Duration = Duration::from_millis(500);
const LOAN: Bytes = Bytes::mib(4);

/// Objects that vanish or change at a time.
const OBJECTS_AT_A_TIME: usize = 8;

/// What a fault needs beside the cast.
#[derive(Debug)]
pub(crate) struct Tools<'a> {
    pub(crate) scene: &'a Scene,
    pub(crate) programs: &'a Programs,
    /// Where the manager listens.
    pub(crate) manager: Option<&'a str>,
    /// How much memory the hogger takes.
    pub(crate) pressure: Bytes,
}

impl Tools<'_> {
    /// Inflicts a fault. `None` if it cannot be inflicted now.
    pub(crate) fn inflict(&self, fault: Fault, cast: &mut Cast) -> anyhow::Result<Option<Cure>> {
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
            Kind::TrainerOrphaned => self.orphan(fault)?,
            Kind::SecondAgent => match cast.age(Part::Agent) {
                Some(age) if age > SETTLED && !cast.has_drill(Part::Agent) => {
                    Some(Cure::Refused(cast.second_agent(self.scene)?))
                }
                _ => None,
            },
            Kind::AgentPanics => self.panic(Part::Agent, fault, cast)?,
            Kind::ManagerPanics => self.panic(Part::Manager, fault, cast)?,
            Kind::AgentCallsFail => self.fail_calls(Part::Agent, fault, cast)?,
            Kind::ManagerCallsFail => self.fail_calls(Part::Manager, fault, cast)?,
            Kind::SilentPeers => Some(Cure::Speak(Silence::begin(self.scene, self.manager))),
            Kind::HostileClient => Some(Cure::End(self.hostile(fault.victim, fault.lasts)?)),
        })
    }

    /// Has a part begin again, and one of its threads panic.
    fn panic(&self, part: Part, fault: Fault, cast: &mut Cast) -> anyhow::Result<Option<Cure>> {
        let has_bucket = matches!(self.scene.source, Source::Bucket(_));
        let drill = Drill::drawn(part, has_bucket, fault.victim);
        let is_begun = cast.drill(part, Duration::ZERO, drill.clone())?;
        Ok(is_begun.then_some(Cure::Panic { part, drill }))
    }

    /// System calls of a part that has settled fail: one that begins may end for it.
    fn fail_calls(&self, part: Part, fault: Fault, cast: &Cast) -> anyhow::Result<Option<Cure>> {
        let log = self.scene.path(&format!("calls-{}", part.name()));
        let is_settled = cast.age(part).is_some_and(|age| age > SETTLED) && !log.exists();
        let Some(pid) = cast.pid(part).filter(|_| is_settled) else { return Ok(None) };
        Ok(Some(Cure::Work(Failing::begin(part, pid, log, fault.victim)?)))
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
        let mut hog = Command::new(&self.programs.tierfeed);
        hog.args(["hog", "--take", &format!("{} B", self.pressure.0)]);
        hog.args(["--for", &format!("{} ms", fault.lasts.as_millis())]);
        hog.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        hog.spawn().context("cannot start the hogger")
    }

    /// Takes what the control group of the agent has left. What the agent has by then is left to it, and
    /// to the one after it, also if it only begins.
    fn press(&self, cast: &Cast) -> anyhow::Result<Option<Cure>> {
        let (Ok(group), Some(age)) = (&self.scene.group, cast.age(Part::Agent)) else {
            return Ok(None);
        };
        group.squeeze(if age < SETTLED { Stage::Beginning } else { Stage::Settled })?;
        Ok(Some(Cure::Relax))
    }

    /// Tells a trainer to start a process that keeps its socket open, as a forked loader worker does. It
    /// obeys when it is not stopped and has an agent, which may be a while.
    fn orphan(&self, fault: Fault) -> anyhow::Result<Option<Cure>> {
        let rank = fault.rank();
        let (fork, number) = (self.scene.fork(rank), self.scene.orphan(rank));
        // Another fault may wait for this trainer.
        if fork.exists() || number.exists() {
            return Ok(None);
        }
        fs::write(&fork, "")?;
        Ok(Some(Cure::Orphan { fork, number, rank, after: fault.lasts }))
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

fn below_len(word: u64, len: usize) -> usize {
    usize::try_from(word % len as u64).expect("below the length")
}
