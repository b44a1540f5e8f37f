//! Injects the faults of the schedule: kills and stops processes, fills disks, takes memory, damages objects.

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
    bucket::StoreFault,
    failpoint::Failpoint,
    fault::{Fault, Kind},
    memory_cgroup::Phase,
    recovery::{Displaced, Recovery},
    role::Role,
    silent_connections::SilentConnections,
    supervisor::Supervisor,
    syscall_faults::SyscallFaults,
    testbed::{Disk, SCRATCH_DISK_BYTES, Source, Testbed},
    workers,
};

/// A process older than this has started up: an agent has its run directory.
const STARTUP_MAX: Duration = Duration::from_secs(5);

/// The time in which an agent has to lend memory; a stopped one does not answer.
const LOAN_PATIENCE: Duration = Duration::from_millis(500);
const LOAN: Bytes = Bytes::mib(4);

const OBJECTS_PER_FAULT: usize = 8;

#[derive(Debug)]
pub(crate) struct Injector<'a> {
    pub(crate) testbed: &'a Testbed,
    pub(crate) programs: &'a Programs,
    pub(crate) manager: Option<&'a str>,
    pub(crate) pressure: Bytes,
}

impl Injector<'_> {
    /// Injects a fault, and returns how it ends. `None` if it cannot be injected now.
    pub(crate) fn inject(
        &self,
        fault: Fault,
        supervisor: &mut Supervisor,
    ) -> anyhow::Result<Option<Recovery>> {
        let (rank, node) = (fault.rank(self.testbed.world), fault.node(self.testbed.world));
        let (trainer, agent) = (Role::Trainer(rank), Role::Agent(node));
        let kill = |supervisor: &mut Supervisor, role| supervisor.kill(role, fault.duration);
        let killed = |is_killed: bool| is_killed.then_some(Recovery::None);
        Ok(match fault.kind {
            Kind::AgentKilled => killed(kill(supervisor, agent)?),
            Kind::TrainerKilled => killed(kill(supervisor, trainer)?),
            Kind::ManagerKilled => killed(kill(supervisor, Role::Manager)?),
            Kind::AgentStopped => stop(supervisor, agent)?,
            Kind::TrainerStopped => stop(supervisor, trainer)?,
            Kind::ManagerStopped => stop(supervisor, Role::Manager)?,
            Kind::TierFull => self.fill_tier()?,
            Kind::TierLost => self.lose_tier(fault, supervisor)?,
            Kind::MemoryTaken => Some(Recovery::Kill(self.hog(fault)?)),
            Kind::MemoryShort => self.limit_memory(supervisor)?,
            Kind::MemoryLent => self.borrow(node),
            Kind::ObjectsVanished | Kind::ObjectsCut | Kind::ObjectStalled => self.damage(fault)?,
            Kind::StoreRefuses => self.fail_store(StoreFault::Refuse, &[])?,
            Kind::TrainerOrphaned => self.orphan(fault)?,
            Kind::SecondAgent => match supervisor.age(agent) {
                Some(age) if age > STARTUP_MAX && !supervisor.has_failpoint(agent) => {
                    Some(Recovery::ExpectRefusal(supervisor.second_agent(self.testbed, node)?))
                }
                _ => None,
            },
            Kind::AgentPanics => self.panic(agent, fault, supervisor)?,
            Kind::ManagerPanics => self.panic(Role::Manager, fault, supervisor)?,
            Kind::AgentCallsFail => self.fail_calls(agent, fault, supervisor)?,
            Kind::ManagerCallsFail => self.fail_calls(Role::Manager, fault, supervisor)?,
            Kind::SilentPeers => {
                Some(Recovery::Close(SilentConnections::open(self.testbed, self.manager)))
            }
            Kind::LinkDrops | Kind::HostCutOff | Kind::LinkSlow => self.disturb_network(fault)?,
            Kind::WorkersKilled => {
                killed(workers::signal(&supervisor.workers(agent), Signal::SIGKILL))
            }
            Kind::WorkersStopped => {
                let workers = supervisor.workers(agent);
                workers::signal(&workers, Signal::SIGSTOP)
                    .then_some(Recovery::ContinueWorkers(workers))
            }
            Kind::HostileClient => {
                Some(Recovery::Kill(self.hostile(fault.target, fault.duration)?))
            }
        })
    }

    /// Restarts a process with a failpoint at which one of its threads panics.
    fn panic(
        &self,
        role: Role,
        fault: Fault,
        supervisor: &mut Supervisor,
    ) -> anyhow::Result<Option<Recovery>> {
        let has_bucket = matches!(self.testbed.source, Source::Bucket(_));
        let failpoint = Failpoint::select(role, has_bucket, fault.target);
        let is_killed =
            supervisor.restart_with_failpoint(role, Duration::ZERO, failpoint.clone())?;
        Ok(is_killed.then_some(Recovery::Panic { role, failpoint }))
    }

    /// Lets system calls of a process fail, but only after its start: a starting process may end when they
    /// fail.
    fn fail_calls(
        &self,
        role: Role,
        fault: Fault,
        supervisor: &Supervisor,
    ) -> anyhow::Result<Option<Recovery>> {
        let log = self.testbed.path(&format!("calls-{}", role.name()));
        let has_started =
            supervisor.age(role).is_some_and(|age| age > STARTUP_MAX) && !log.exists();
        let Some(pid) = supervisor.pid(role).filter(|_| has_started) else { return Ok(None) };
        Ok(Some(Recovery::EndSyscallFaults(SyscallFaults::begin(role, pid, log, fault.target)?)))
    }

    /// Drops packets between two nodes, or between a host and all others, or slows the link of a node.
    fn disturb_network(&self, fault: Fault) -> anyhow::Result<Option<Recovery>> {
        let Ok(network) = &self.testbed.network else { return Ok(None) };
        let node = fault.node(self.testbed.world);
        let nodes = self.testbed.world.nodes;
        let pairs = match fault.kind {
            Kind::LinkSlow => {
                return Ok(network.slow(node)?.then_some(Recovery::RestoreRate(node)));
            }
            Kind::LinkDrops => {
                let distance =
                    1 + u32::try_from(fault.target / u64::from(nodes) % u64::from(nodes - 1))?;
                vec![pair(node, (node + distance) % nodes)]
            }
            _ => {
                let host = fault.below(nodes + 1);
                (0..=nodes).filter(|it| *it != host).map(|it| pair(host, it)).collect()
            }
        };
        let cut = network.cut(&pairs)?;
        Ok((!cut.is_empty()).then_some(Recovery::Join(cut)))
    }

    fn fill_tier(&self) -> anyhow::Result<Option<Recovery>> {
        let filler = self.testbed.filler();
        if self.testbed.disk != Disk::Own || filler.exists() {
            return Ok(None);
        }
        let mut file = File::create(&filler)?;
        let noise = vec![0x5a; 64 << 10];
        // No more than the RAM disk has: if it is unmounted, the directory lies on a shared disk.
        for _ in 0..SCRATCH_DISK_BYTES / noise.len() {
            if file.write_all(&noise).is_err() {
                break;
            }
        }
        Ok(Some(Recovery::Remove(filler)))
    }

    /// Moves the directory of the tier away and kills the agent, so that the next agent finds it missing.
    fn lose_tier(
        &self,
        fault: Fault,
        supervisor: &mut Supervisor,
    ) -> anyhow::Result<Option<Recovery>> {
        let (to, from) = (self.testbed.scratch(), self.testbed.scratch().with_extension("gone"));
        if from.exists() || !supervisor.kill(Role::Agent(0), fault.duration / 2)? {
            return Ok(None);
        }
        fs::rename(&to, &from)?;
        Ok(Some(Recovery::MoveBack { from, to }))
    }

    fn hog(&self, fault: Fault) -> anyhow::Result<Child> {
        let mut hog = Command::new(&self.programs.tierfeed);
        hog.args(["hog", "--take", &format!("{} B", self.pressure.0)]);
        hog.args(["--for", &format!("{} ms", fault.duration.as_millis())]);
        hog.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        hog.spawn().context("cannot start `tierfeed hog`")
    }

    /// Lowers the memory limit of the agent's control group to what is used and a headroom, which is larger
    /// for an agent that starts.
    fn limit_memory(&self, supervisor: &Supervisor) -> anyhow::Result<Option<Recovery>> {
        let (Ok(cgroup), Some(age)) = (&self.testbed.cgroup, supervisor.age(Role::Agent(0))) else {
            return Ok(None);
        };
        cgroup.lower_limit(if age < STARTUP_MAX { Phase::Starting } else { Phase::Running })?;
        Ok(Some(Recovery::RestoreLimit))
    }

    /// Tells a trainer to start a process that keeps its socket open, as a forked loader worker does. The
    /// trainer does so when it runs and is connected to an agent, which may take a while.
    fn orphan(&self, fault: Fault) -> anyhow::Result<Option<Recovery>> {
        let rank = fault.rank(self.testbed.world);
        let (fork, number) = (self.testbed.fork(rank), self.testbed.orphan(rank));
        // Another fault may wait for this trainer.
        if fork.exists() || number.exists() {
            return Ok(None);
        }
        fs::write(&fork, "")?;
        Ok(Some(Recovery::Orphan { fork, number, rank, restart_after: fault.duration }))
    }

    fn damage(&self, fault: Fault) -> anyhow::Result<Option<Recovery>> {
        match (&self.testbed.source, fault.kind) {
            (Source::Files, Kind::ObjectsCut) => self.displace(fault, OBJECTS_PER_FAULT, put_half),
            (Source::Files, Kind::ObjectStalled) => self.displace(fault, 1, put_fifo),
            (Source::Files, _) => self.displace(fault, OBJECTS_PER_FAULT, |_, _| Ok(())),
            (Source::Bucket(_), kind) => {
                let store_fault = match kind {
                    Kind::ObjectsCut => StoreFault::Cut,
                    Kind::ObjectStalled => StoreFault::Stall,
                    _ => StoreFault::Hide,
                };
                let objects = self.targets(fault, OBJECTS_PER_FAULT);
                let keys = objects.map(|it| self.testbed.key(it)).collect::<Result<Vec<_>, _>>()?;
                self.fail_store(store_fault, &keys)
            }
        }
    }

    fn fail_store(
        &self,
        store_fault: StoreFault,
        keys: &[String],
    ) -> anyhow::Result<Option<Recovery>> {
        let Source::Bucket(store) = &self.testbed.source else { return Ok(None) };
        Ok(Some(Recovery::EndStoreFault(store.begin(store_fault, keys)?)))
    }

    /// Consecutive objects, from the one that the fault selects.
    fn targets(&self, fault: Fault, count: usize) -> impl Iterator<Item = &Path> {
        let objects = &self.testbed.objects;
        let first = below_len(fault.target, objects.len());
        objects.iter().cycle().skip(first).take(count).map(PathBuf::as_path)
    }

    /// Borrows memory of a tier, which the cache must give up.
    fn borrow(&self, node: u32) -> Option<Recovery> {
        let socket = self.testbed.agent_dir(node).join("agent.sock");
        let client = MemoryClient::connect(&socket, LOAN_PATIENCE).ok()?;
        client.allocate(LOAN, LOAN_PATIENCE).ok()?;
        Some(Recovery::ReturnLoan(Box::new(client)))
    }

    /// Moves some objects aside and puts something else in their place.
    fn displace(
        &self,
        fault: Fault,
        count: usize,
        put: fn(&Path, &Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<Option<Recovery>> {
        let mut displaced = Vec::new();
        for object in self.targets(fault, count) {
            let name = object.file_name().context("an object has a name")?;
            let aside = self.testbed.path("aside").join(name);
            // Another fault may have moved it already.
            if aside.exists() {
                continue;
            }
            fs::rename(object, &aside)?;
            put(object, &aside)?;
            displaced.push(Displaced { object: object.to_owned(), aside });
        }
        Ok((!displaced.is_empty()).then_some(Recovery::Restore(displaced)))
    }
}

fn stop(supervisor: &mut Supervisor, role: Role) -> anyhow::Result<Option<Recovery>> {
    Ok(supervisor.signal(role, Signal::SIGSTOP)?.then_some(Recovery::Continue(role)))
}

fn pair(one: u32, other: u32) -> (u32, u32) {
    (one.min(other), one.max(other))
}

fn put_half(object: &Path, aside: &Path) -> anyhow::Result<()> {
    let bytes = fs::read(aside)?;
    Ok(fs::write(object, &bytes[..bytes.len() / 2])?)
}

/// A process that opens a pipe for reading waits for a writer, as for a file server that is gone.
fn put_fifo(object: &Path, _: &Path) -> anyhow::Result<()> {
    Ok(mkfifo(object, Mode::S_IRUSR | Mode::S_IWUSR)?)
}

fn below_len(word: u64, len: usize) -> usize {
    usize::try_from(word % len as u64).expect("below the length")
}
