//! Starts the processes under test, a manager, an agent on each node and a trainer for each rank, and
//! restarts each after it was killed, as job scripts and supervisors do.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    net::SocketAddr,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::Serialize;
use tierfeed_harness::{
    clock::{now, pause},
    programs::Programs,
};

use crate::{failpoint::Failpoint, role::Role, testbed::Testbed, workers};

/// A process that ended by itself is restarted after this time.
const RESTART_AFTER: Duration = Duration::from_millis(500);

/// A process starts or ends within this time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process older than this has started up: an agent has its run directory.
pub(crate) const STARTUP_MAX: Duration = Duration::from_secs(5);

const POLL_EVERY: Duration = Duration::from_millis(10);

#[derive(Debug)]
struct Process {
    child: Option<Child>,
    /// When it started, or is to be restarted.
    since: Instant,
    starts: u32,
    /// With which it runs, or is to be restarted.
    failpoint: Option<Failpoint>,
}

/// Whether it is a failure if a process ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exits {
    /// For every process.
    Unexpected,
    /// Not for an agent, which does not start without the directory of its tier.
    AgentMayFail,
}

/// What happened to processes under faults.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Seen {
    pub(crate) panics: BTreeMap<&'static str, u64>,
    /// Injected failures of system calls, by call and error.
    pub(crate) failed_calls: BTreeMap<String, u64>,
    /// The last line of each agent that did not start while its tier was full or gone.
    pub(crate) excused: Vec<String>,
}

/// All processes under test; killed when dropped.
#[derive(Debug)]
pub(crate) struct Supervisor<'a> {
    pub(crate) testbed: &'a Testbed,
    pub(crate) programs: &'a Programs,
    step: Duration,
    /// The address of the first manager, once it listens: later ones listen there, too.
    pub(crate) address: Option<String>,
    processes: BTreeMap<Role, Process>,
    /// Processes that outlive the trainer that started them.
    orphans: Vec<Pid>,
    pub(crate) seen: Seen,
}

impl<'a> Supervisor<'a> {
    pub(crate) fn new(testbed: &'a Testbed, programs: &'a Programs, step: Duration) -> Self {
        let process = || Process { child: None, since: now(), starts: 0, failpoint: None };
        let processes = testbed.world.roles().map(|role| (role, process())).collect();
        let (address, orphans, seen) = (None, Vec::new(), Seen::default());
        Self { testbed, programs, step, address, processes, orphans, seen }
    }

    /// Starts all processes, and waits until manager and agent listen.
    pub(crate) fn start_all(&mut self) -> anyhow::Result<()> {
        let (folder, world) = (&self.testbed.folder, self.testbed.world);
        self.start(Role::Manager)?;
        let file = folder.run_dir(Role::Manager).join("manager.address");
        let address = || fs::read_to_string(&file).ok().filter(|it| it.ends_with('\n'));
        let address = wait("the manager listens", || Ok(address()))?;
        self.address = Some(address.trim().to_owned());
        world.agents().try_for_each(|agent| self.start(agent))?;
        for agent in world.agents() {
            let file = folder.run_dir(agent).join("trainer.json");
            wait("the agents listen", || Ok(file.exists().then_some(())))?;
        }
        world.trainers().try_for_each(|trainer| self.start(trainer))
    }

    /// Restarts the processes that were killed. Fails if one ended by itself.
    pub(crate) fn restart_killed(&mut self, exits: Exits) -> anyhow::Result<()> {
        for role in self.testbed.world.roles() {
            let process = self.process(role);
            if let Some(child) = &mut process.child
                && let Some(status) = child.try_wait()?
            {
                process.child = None;
                process.since = now() + RESTART_AFTER;
                if let Some(failpoint) = process.failpoint.take()
                    && failpoint.note_exit(status)
                {
                    *self.seen.panics.entry(failpoint.place()).or_default() += 1;
                    continue;
                }
                let log = tail(self.testbed, role);
                if !matches!(role, Role::Agent(_)) || exits == Exits::Unexpected {
                    bail!("{role} ended with {status}:\n{log}");
                }
                self.seen.excused.push(log.lines().last().unwrap_or_default().to_owned());
            }
            let process = self.process(role);
            if process.child.is_none() && process.since <= now() {
                self.start(role)?;
            }
        }
        Ok(())
    }

    /// Kills a process, which is restarted `after` this time. False if it does not run.
    pub(crate) fn kill(&mut self, role: Role, after: Duration) -> anyhow::Result<bool> {
        let process = self.process(role);
        let Some(mut child) = process.child.take() else { return Ok(false) };
        child.kill()?;
        child.wait()?;
        process.since = now() + after;
        if let Some(failpoint) = process.failpoint.take() {
            failpoint.note_kill();
        }
        Ok(true)
    }

    /// Kills a process, which is restarted at once with a failpoint. False if it does not run.
    pub(crate) fn restart_with_failpoint(
        &mut self,
        role: Role,
        failpoint: Failpoint,
    ) -> anyhow::Result<bool> {
        let is_killed = self.kill(role, Duration::ZERO)?;
        if is_killed {
            self.process(role).failpoint = Some(failpoint);
        }
        Ok(is_killed)
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
    pub(crate) fn signal(&self, role: Role, signal: Signal) -> anyhow::Result<bool> {
        let Some(pid) = self.pid(role) else { return Ok(false) };
        kill(Pid::from_raw(i32::try_from(pid)?), signal)?;
        Ok(true)
    }

    /// The id of a running process. The process was not waited for, so no other process can have this id.
    pub(crate) fn pid(&self, role: Role) -> Option<u32> {
        self.processes[&role].child.as_ref().map(Child::id)
    }

    pub(crate) fn workers(&self, role: Role) -> Vec<Pid> {
        self.pid(role).map(workers::of).unwrap_or_default()
    }

    /// The time since a process started, or `None` if it does not run.
    pub(crate) fn age(&self, role: Role) -> Option<Duration> {
        let process = &self.processes[&role];
        process.child.as_ref().map(|_| process.since.elapsed())
    }

    pub(crate) fn has_failpoint(&self, role: Role) -> bool {
        self.processes[&role].failpoint.is_some()
    }

    pub(crate) fn starts(&self, role: Role) -> u32 {
        self.processes[&role].starts
    }

    /// Waits for a process to end, and returns its status.
    pub(crate) fn wait_for_exit(&mut self, role: Role) -> anyhow::Result<ExitStatus> {
        let child = self.process(role).child.take();
        let mut child = child.with_context(|| format!("{role} does not run"))?;
        let status = wait(&format!("{role} ends"), || Ok(child.try_wait()?));
        if status.is_err() {
            end(&mut child);
        }
        status
    }

    /// Starts another agent for a node, which must be refused.
    pub(crate) fn second(&self, agent: Role) -> anyhow::Result<Child> {
        let mut command = self.command(agent)?;
        Ok(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
    }

    fn start(&mut self, role: Role) -> anyhow::Result<()> {
        let log =
            OpenOptions::new().create(true).append(true).open(self.testbed.folder.log(role))?;
        let mut command = self.command(role)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = self.process(role);
        if let Some(failpoint) = &process.failpoint {
            failpoint.arm(&mut command);
        }
        process.child = Some(command.spawn().with_context(|| format!("cannot start {role}"))?);
        process.since = now();
        process.starts += 1;
        Ok(())
    }

    fn command(&self, role: Role) -> anyhow::Result<Command> {
        let folder = &self.testbed.folder;
        let mut command = self.testbed.command(role, &self.programs.tierfeed)?;
        let any_port = SocketAddr::new(self.testbed.address(role), 0).to_string();
        command.env_remove("TIERFEED_RUN_DIR").env("TIERFEED_LOG", "info");
        match role {
            Role::Manager => {
                let listen = self.address.as_deref().unwrap_or(&any_port);
                command.arg("manager").arg(folder.job()).args(["--listen", listen]);
                command.arg("--run-dir").arg(folder.run_dir(role));
                command.args(["--metrics", &any_port]);
            }
            Role::Agent(node) => {
                let address = self.address.as_deref().context("no manager was started")?;
                command.args(["agent", "--manager", address]);
                command.arg("--token-file").arg(folder.run_dir(Role::Manager).join("token"));
                command.arg("--run-dir").arg(folder.run_dir(role));
                command.args(["--node", &node.to_string(), "--metrics", &any_port]);
            }
            Role::Trainer(rank) => {
                let agent = Role::Agent(self.testbed.world.node_of(rank));
                command.arg("exec").arg("--run-dir").arg(folder.run_dir(agent)).arg("--");
                command.arg(&self.programs.own).arg("trainer").arg("--folder").arg(folder.path());
                command.arg("--step").arg(format!("{} us", self.step.as_micros()));
                command.env("TIERFEED_RANK", rank.to_string());
            }
        }
        Ok(command)
    }

    fn process(&mut self, role: Role) -> &mut Process {
        self.processes.get_mut(&role).expect("every role has a process")
    }
}

impl Drop for Supervisor<'_> {
    fn drop(&mut self) {
        self.kill_orphans();
        self.processes.values_mut().filter_map(|it| it.child.as_mut()).for_each(end);
    }
}

/// Kills a process, and waits for it.
pub(crate) fn end(child: &mut Child) {
    // An error means that it ended before.
    let _ = child.kill();
    let _ = child.wait();
}

/// Asks until there is an answer.
fn wait<T>(
    claim: &str,
    mut answer: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let begin = now();
    loop {
        if let Some(answer) = answer()? {
            return Ok(answer);
        }
        if begin.elapsed() > PATIENCE {
            bail!("not within {PATIENCE:?}: {claim}");
        }
        pause(POLL_EVERY);
    }
}

/// The last lines that a process wrote.
pub(crate) fn tail(testbed: &Testbed, role: Role) -> String {
    let text = fs::read(testbed.folder.log(role)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
