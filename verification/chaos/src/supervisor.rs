//! Starts the processes under test, a manager, an agent on each node and a trainer for each rank, and
//! restarts each after it was killed, as job scripts and supervisors do.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    net::SocketAddr,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tierfeed_harness::{clock::pause, programs::Programs};

use crate::{
    clock::Clock,
    failpoint::Failpoint,
    role::{Role, World},
    samples::Samples,
    testbed::Testbed,
    workers,
};

/// A process that ended by itself is restarted after this time.
const RESTART_AFTER: Duration = Duration::from_millis(500);

/// A process starts or ends within this time.
const PATIENCE: Duration = Duration::from_secs(60);

const POLL_EVERY: Duration = Duration::from_millis(10);

#[derive(Debug)]
struct Process {
    role: Role,
    child: Option<Child>,
    /// When it started, or is to be restarted.
    since: Duration,
    starts: u32,
    failpoint: Option<Failpoint>,
    next_failpoint: Option<Failpoint>,
}

/// Whether it is a failure if a process ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exits {
    /// For every process.
    Unexpected,
    /// Not for an agent, which does not start without the directory of its tier.
    AgentMayFail,
}

/// All processes under test; killed when dropped.
#[derive(Debug)]
pub(crate) struct Supervisor {
    programs: Programs,
    clock: Clock,
    step: Duration,
    /// The address of the first manager: later ones listen there, too.
    address: Option<String>,
    processes: Vec<Process>,
    /// Processes that outlive the trainer that started them.
    orphans: Vec<Pid>,
    /// The last line of each agent that failed when it was allowed to.
    pub(crate) excused: Vec<String>,
    pub(crate) panics: BTreeMap<&'static str, u64>,
    /// Injected failures of system calls, by call and error.
    pub(crate) failed_calls: BTreeMap<String, u64>,
}

impl Supervisor {
    pub(crate) fn new(programs: Programs, world: World, clock: Clock, step: Duration) -> Self {
        let process = |role| Process {
            role,
            child: None,
            since: Duration::ZERO,
            starts: 0,
            failpoint: None,
            next_failpoint: None,
        };
        let processes = world.roles().map(process).collect();
        Self {
            programs,
            clock,
            step,
            address: None,
            processes,
            orphans: Vec::new(),
            excused: Vec::new(),
            panics: BTreeMap::new(),
            failed_calls: BTreeMap::new(),
        }
    }

    /// Starts all processes, and waits until manager and agent listen.
    pub(crate) fn start_all(&mut self, testbed: &Testbed) -> anyhow::Result<()> {
        self.start(testbed, Role::Manager)?;
        let file = testbed.manager_dir().join("manager.address");
        self.wait("the manager listens", || {
            fs::read_to_string(&file).is_ok_and(|it| it.ends_with('\n'))
        })?;
        self.address = Some(fs::read_to_string(&file)?.trim().to_owned());
        for node in testbed.world.nodes() {
            self.start(testbed, Role::Agent(node))?;
        }
        let mut files = testbed.world.nodes().map(|it| testbed.agent_dir(it).join("trainer.json"));
        self.wait("the agents listen", || files.all(|file| file.exists()))?;
        for rank in testbed.world.ranks() {
            self.start(testbed, Role::Trainer(rank))?;
        }
        Ok(())
    }

    /// Restarts the processes that were killed. Fails if one ended by itself.
    pub(crate) fn restart_killed(&mut self, testbed: &Testbed, exits: Exits) -> anyhow::Result<()> {
        let now = self.clock.now();
        for role in testbed.world.roles() {
            let process = self.process(role);
            if let Some(child) = &mut process.child
                && let Some(status) = child.try_wait()?
            {
                process.child = None;
                process.since = now + RESTART_AFTER;
                if let Some(failpoint) = process.failpoint.take()
                    && failpoint.note_exit(status)
                {
                    *self.panics.entry(failpoint.place()).or_default() += 1;
                    continue;
                }
                if !matches!(role, Role::Agent(_)) || exits == Exits::Unexpected {
                    bail!("{} ended with {status}:\n{}", role.name(), tail(testbed, role));
                }
                self.excused
                    .push(tail(testbed, role).lines().last().unwrap_or_default().to_owned());
            }
            let process = self.process(role);
            if process.child.is_none() && process.since <= now {
                self.start(testbed, role)?;
            }
        }
        Ok(())
    }

    /// Kills a process, which is restarted `after` this time. False if it does not run.
    pub(crate) fn kill(&mut self, role: Role, after: Duration) -> anyhow::Result<bool> {
        let now = self.clock.now();
        let process = self.process(role);
        let Some(mut child) = process.child.take() else { return Ok(false) };
        child.kill()?;
        child.wait()?;
        process.since = now + after;
        if let Some(failpoint) = process.failpoint.take() {
            failpoint.note_kill();
        }
        Ok(true)
    }

    /// Kills a process, which is restarted `after` this time with a failpoint. False if it does not run.
    pub(crate) fn restart_with_failpoint(
        &mut self,
        role: Role,
        after: Duration,
        failpoint: Failpoint,
    ) -> anyhow::Result<bool> {
        let is_killed = self.kill(role, after)?;
        if is_killed {
            self.process(role).next_failpoint = Some(failpoint);
        }
        Ok(is_killed)
    }

    /// The address of the manager, or `None` before the first one listened.
    pub(crate) fn address(&self) -> Option<String> {
        self.address.clone()
    }

    /// Remembers a process whose parent is about to be killed.
    pub(crate) fn track_orphan(&mut self, orphan: Pid) {
        self.orphans.push(orphan);
    }

    pub(crate) fn kill_orphans(&mut self) {
        for orphan in self.orphans.drain(..) {
            // An error means that it ended before.
            let _ = kill(orphan, Signal::SIGKILL);
        }
    }

    /// Sends a signal to a process. False if it does not run.
    pub(crate) fn signal(&mut self, role: Role, signal: Signal) -> anyhow::Result<bool> {
        let Some(pid) = self.pid(role) else { return Ok(false) };
        kill(Pid::from_raw(i32::try_from(pid)?), signal)?;
        Ok(true)
    }

    /// The id of a running process. The process was not waited for, so no other process can have this id.
    pub(crate) fn pid(&self, role: Role) -> Option<u32> {
        let process = self.processes.iter().find(|process| process.role == role)?;
        process.child.as_ref().map(Child::id)
    }

    pub(crate) fn workers(&self, role: Role) -> Vec<Pid> {
        self.pid(role).map(workers::of).unwrap_or_default()
    }

    /// The time since a process started, or `None` if it does not run.
    pub(crate) fn age(&self, role: Role) -> Option<Duration> {
        let process = self.processes.iter().find(|process| process.role == role)?;
        process.child.as_ref().map(|_| self.clock.now().saturating_sub(process.since))
    }

    pub(crate) fn has_failpoint(&self, role: Role) -> bool {
        self.processes.iter().any(|process| process.role == role && process.failpoint.is_some())
    }

    pub(crate) fn starts(&self, role: Role) -> u32 {
        self.processes
            .iter()
            .find(|process| process.role == role)
            .map_or(0, |process| process.starts)
    }

    /// Waits for a process to end, and returns its status.
    pub(crate) fn wait_for_exit(&mut self, role: Role) -> anyhow::Result<ExitStatus> {
        let begin = self.clock.now();
        let clock = self.clock;
        let process = self.process(role);
        let child =
            process.child.as_mut().with_context(|| format!("{} does not run", role.name()))?;
        loop {
            if let Some(status) = child.try_wait()? {
                process.child = None;
                return Ok(status);
            }
            if clock.since(begin) > PATIENCE {
                bail!("{} does not end within {PATIENCE:?}", role.name());
            }
            pause(POLL_EVERY);
        }
    }

    /// Starts another agent for a node, which must be refused.
    pub(crate) fn second_agent(&self, testbed: &Testbed, node: u32) -> anyhow::Result<Child> {
        let mut command = self.command(testbed, Role::Agent(node))?;
        Ok(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
    }

    fn start(&mut self, testbed: &Testbed, role: Role) -> anyhow::Result<()> {
        let log = testbed.log(&role.name());
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        let mut command = self.command(testbed, role)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let failpoint = self.process(role).next_failpoint.take();
        if let Some(failpoint) = &failpoint {
            failpoint.arm(&mut command);
        }
        let child = command.spawn().with_context(|| format!("cannot start {}", role.name()))?;
        let now = self.clock.now();
        let process = self.process(role);
        process.child = Some(child);
        process.since = now;
        process.starts += 1;
        process.failpoint = failpoint;
        Ok(())
    }

    fn command(&self, testbed: &Testbed, role: Role) -> anyhow::Result<Command> {
        let mut command = testbed.command(role, &self.programs.tierfeed)?;
        let any_port = SocketAddr::new(testbed.address(role), 0).to_string();
        command.env_remove("TIERFEED_RUN_DIR").env("TIERFEED_LOG", "info");
        match role {
            Role::Manager => {
                let listen = self.address.as_deref().unwrap_or(&any_port);
                command.arg("manager").arg(testbed.job()).args(["--listen", listen]);
                command.arg("--run-dir").arg(testbed.manager_dir());
                command.args(["--metrics", &any_port]);
            }
            Role::Agent(node) => {
                let address = self.address.as_deref().context("no manager was started")?;
                command.args(["agent", "--manager", address]);
                command.arg("--token-file").arg(testbed.manager_dir().join("token"));
                command.arg("--run-dir").arg(testbed.agent_dir(node));
                command.args(["--node", &node.to_string(), "--metrics", &any_port]);
            }
            Role::Trainer(rank) => {
                let run_dir = testbed.agent_dir(testbed.world.node_of(rank));
                command.arg("exec").arg("--run-dir").arg(run_dir).arg("--");
                command.arg(&self.programs.own).arg("trainer");
                command.arg("--sums").arg(testbed.sums());
                if testbed.samples == Samples::Images {
                    command.arg("--rows").arg(testbed.rows());
                }
                command.arg("--record").arg(testbed.record(rank));
                command.arg("--stop").arg(testbed.stop());
                command.arg("--fork").arg(testbed.fork(rank));
                command.arg("--orphan").arg(testbed.orphan(rank));
                command.arg("--step").arg(format!("{} us", self.step.as_micros()));
                command.env("TIERFEED_RANK", rank.to_string());
                if testbed.world.nodes > 1 {
                    command.arg("--steps").arg(testbed.steps());
                }
            }
        }
        Ok(command)
    }

    fn process(&mut self, role: Role) -> &mut Process {
        let process = self.processes.iter_mut().find(|process| process.role == role);
        process.expect("every role has a process")
    }

    fn wait(&self, claim: &str, mut is_so: impl FnMut() -> bool) -> anyhow::Result<()> {
        let begin = self.clock.now();
        while !is_so() {
            if self.clock.since(begin) > PATIENCE {
                bail!("not within {PATIENCE:?}: {claim}");
            }
            pause(POLL_EVERY);
        }
        Ok(())
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.kill_orphans();
        for child in self.processes.iter_mut().filter_map(|process| process.child.as_mut()) {
            // An error means that it ended before.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(crate) fn tail(testbed: &Testbed, role: Role) -> String {
    let text = fs::read(testbed.log(&role.name())).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
