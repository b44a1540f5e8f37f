//! The processes of a chaos run: one manager, one agent, one trainer for each rank, each started again
//! when it was killed, as job scripts and supervisors do.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tierfeed_harness::programs::Programs;

use crate::{
    clock::{Clock, pause},
    panics::Drill,
    part::{Part, RANKS},
    scene::Scene,
};

/// A process that does not start is tried again after this time.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// What has to start or end within this time.
const PATIENCE: Duration = Duration::from_secs(60);

const POLL_EVERY: Duration = Duration::from_millis(10);

/// A part that is being played, or will be again.
#[derive(Debug)]
struct Role {
    part: Part,
    child: Option<Child>,
    /// When it began, or will begin again.
    since: Duration,
    starts: u32,
    /// The order to panic that its process has.
    drill: Option<Drill>,
    /// The one that its next process gets.
    next_drill: Option<Drill>,
}

/// Whether a part that ended by itself is a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endings {
    /// Nobody asked it to.
    Unexpected,
    /// An agent whose tier is not there does not start.
    AgentMayFail,
}

/// All processes of a run; killed when dropped.
#[derive(Debug)]
pub(crate) struct Cast {
    programs: Programs,
    clock: Clock,
    step: Duration,
    /// Where the first manager listened: those after it listen there again.
    address: Option<String>,
    roles: Vec<Role>,
    /// Processes that outlive the trainer which started them.
    orphans: Vec<Pid>,
    /// How often an agent did not start that had an excuse, and what it said.
    pub(crate) excused: Vec<String>,
    /// How often a thread panicked on purpose, by its place.
    pub(crate) panics: BTreeMap<&'static str, u64>,
    /// How many system calls failed on purpose, by call and error.
    pub(crate) failed_calls: BTreeMap<String, u64>,
}

impl Cast {
    pub(crate) fn new(programs: Programs, clock: Clock, step: Duration) -> Self {
        let role = |part| Role {
            part,
            child: None,
            since: Duration::ZERO,
            starts: 0,
            drill: None,
            next_drill: None,
        };
        let roles = Part::all().map(role).collect();
        Self {
            programs,
            clock,
            step,
            address: None,
            roles,
            orphans: Vec::new(),
            excused: Vec::new(),
            panics: BTreeMap::new(),
            failed_calls: BTreeMap::new(),
        }
    }

    /// Starts all parts and waits until they are there.
    pub(crate) fn begin(&mut self, scene: &Scene) -> anyhow::Result<()> {
        self.start(scene, Part::Manager)?;
        let file = scene.manager_dir().join("manager.address");
        self.wait("the manager listens", || {
            fs::read_to_string(&file).is_ok_and(|it| it.ends_with('\n'))
        })?;
        self.address = Some(fs::read_to_string(&file)?.trim().to_owned());
        self.start(scene, Part::Agent)?;
        let file = scene.agent_dir().join("trainer.json");
        self.wait("the agent listens", || file.exists())?;
        for rank in 0..RANKS {
            self.start(scene, Part::Trainer(rank))?;
        }
        Ok(())
    }

    /// Starts again what was killed. Fails if a part ended that nobody killed.
    pub(crate) fn supervise(&mut self, scene: &Scene, endings: Endings) -> anyhow::Result<()> {
        let now = self.clock.now();
        for part in Part::all() {
            let role = self.role(part);
            if let Some(child) = &mut role.child
                && let Some(status) = child.try_wait()?
            {
                role.child = None;
                role.since = now + RETRY_AFTER;
                if let Some(drill) = role.drill.take()
                    && drill.end(status)
                {
                    *self.panics.entry(drill.place()).or_default() += 1;
                    continue;
                }
                if part != Part::Agent || endings == Endings::Unexpected {
                    bail!("{} ended with {status}:\n{}", part.name(), tail(scene, part));
                }
                self.excused.push(tail(scene, part).lines().last().unwrap_or_default().to_owned());
            }
            let role = self.role(part);
            if role.child.is_none() && role.since <= now {
                self.start(scene, part)?;
            }
        }
        Ok(())
    }

    /// Kills a part, which begins again `after` this. False if it is not there.
    pub(crate) fn kill(&mut self, part: Part, after: Duration) -> anyhow::Result<bool> {
        let now = self.clock.now();
        let role = self.role(part);
        let Some(mut child) = role.child.take() else { return Ok(false) };
        child.kill()?;
        child.wait()?;
        role.since = now + after;
        if let Some(drill) = role.drill.take() {
            drill.lose();
        }
        Ok(true)
    }

    /// Has a part begin again `after` this, with the order to panic. False if it is not there.
    pub(crate) fn drill(
        &mut self,
        part: Part,
        after: Duration,
        drill: Drill,
    ) -> anyhow::Result<bool> {
        let is_there = self.kill(part, after)?;
        if is_there {
            self.role(part).next_drill = Some(drill);
        }
        Ok(is_there)
    }

    /// Where the manager listens, once one did.
    pub(crate) fn address(&self) -> Option<String> {
        self.address.clone()
    }

    /// Takes note of a process whose parent is about to be killed.
    pub(crate) fn adopt(&mut self, orphan: Pid) {
        self.orphans.push(orphan);
    }

    /// Ends the processes that outlived their trainers.
    pub(crate) fn end_orphans(&mut self) {
        for orphan in self.orphans.drain(..) {
            // An error means that it ended before.
            let _ = kill(orphan, Signal::SIGKILL);
        }
    }

    /// Sends a signal to a part. False if it is not there.
    pub(crate) fn signal(&mut self, part: Part, signal: Signal) -> anyhow::Result<bool> {
        let Some(pid) = self.pid(part) else { return Ok(false) };
        kill(Pid::from_raw(i32::try_from(pid)?), signal)?;
        Ok(true)
    }

    /// The process of a part, which was not waited for, so that nobody else has its number.
    pub(crate) fn pid(&self, part: Part) -> Option<u32> {
        let role = self.roles.iter().find(|role| role.part == part)?;
        role.child.as_ref().map(Child::id)
    }

    /// How long a part has been there.
    pub(crate) fn age(&self, part: Part) -> Option<Duration> {
        let role = self.roles.iter().find(|role| role.part == part)?;
        role.child.as_ref().map(|_| self.clock.now().saturating_sub(role.since))
    }

    /// Whether a part was told to panic.
    pub(crate) fn has_drill(&self, part: Part) -> bool {
        self.roles.iter().any(|role| role.part == part && role.drill.is_some())
    }

    /// How often a part began.
    pub(crate) fn starts(&self, part: Part) -> u32 {
        self.roles.iter().find(|role| role.part == part).map_or(0, |role| role.starts)
    }

    /// Waits for the end of a part.
    pub(crate) fn end(&mut self, part: Part) -> anyhow::Result<ExitStatus> {
        let begin = self.clock.now();
        let clock = self.clock;
        let role = self.role(part);
        let child = role.child.as_mut().with_context(|| format!("{} is not there", part.name()))?;
        loop {
            if let Some(status) = child.try_wait()? {
                role.child = None;
                return Ok(status);
            }
            if clock.since(begin) > PATIENCE {
                bail!("{} does not end within {PATIENCE:?}", part.name());
            }
            pause(POLL_EVERY);
        }
    }

    /// Another agent for the same node, which must be turned away.
    pub(crate) fn second_agent(&self, scene: &Scene) -> anyhow::Result<Child> {
        let mut command = self.command(scene, Part::Agent)?;
        Ok(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
    }

    fn start(&mut self, scene: &Scene, part: Part) -> anyhow::Result<()> {
        let log = scene.log(&part.name());
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        let mut command = self.command(scene, part)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let drill = self.role(part).next_drill.take();
        if let Some(drill) = &drill {
            drill.give(&mut command);
        }
        let child = command.spawn().with_context(|| format!("cannot start {}", part.name()))?;
        let now = self.clock.now();
        let role = self.role(part);
        role.child = Some(child);
        role.since = now;
        role.starts += 1;
        role.drill = drill;
        Ok(())
    }

    fn command(&self, scene: &Scene, part: Part) -> anyhow::Result<Command> {
        let mut command = match (&scene.group, part) {
            (Ok(group), Part::Agent) => group.enter(&self.programs.tierfeed),
            _ => Command::new(&self.programs.tierfeed),
        };
        command.env_remove("TIERFEED_RUN_DIR").env("TIERFEED_LOG", "info");
        match part {
            Part::Manager => {
                let listen = self.address.as_deref().unwrap_or("127.0.0.1:0");
                command.arg("manager").arg(scene.job()).args(["--listen", listen]);
                command.arg("--run-dir").arg(scene.manager_dir());
                command.args(["--metrics", "127.0.0.1:0"]);
            }
            Part::Agent => {
                let address = self.address.as_deref().context("no manager was started")?;
                command.args(["agent", "--manager", address]);
                command.arg("--token-file").arg(scene.manager_dir().join("token"));
                command.arg("--run-dir").arg(scene.agent_dir());
                command.args(["--metrics", "127.0.0.1:0"]);
            }
            Part::Trainer(rank) => {
                command.arg("exec").arg("--run-dir").arg(scene.agent_dir()).arg("--");
                command.arg(&self.programs.own).arg("trainer");
                command.arg("--sums").arg(scene.sums());
                command.arg("--record").arg(scene.record(rank));
                command.arg("--stop").arg(scene.stop());
                command.arg("--fork").arg(scene.fork(rank));
                command.arg("--orphan").arg(scene.orphan(rank));
                command.arg("--step").arg(format!("{} us", self.step.as_micros()));
                command.env("TIERFEED_RANK", rank.to_string());
            }
        }
        Ok(command)
    }

    fn role(&mut self, part: Part) -> &mut Role {
        let role = self.roles.iter_mut().find(|role| role.part == part);
        role.expect("every part has a role")
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

impl Drop for Cast {
    fn drop(&mut self) {
        self.end_orphans();
        for child in self.roles.iter_mut().filter_map(|role| role.child.as_mut()) {
            // An error means that it ended before.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What a part said last.
pub(crate) fn tail(scene: &Scene, part: Part) -> String {
    let text = fs::read(scene.log(&part.name())).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
