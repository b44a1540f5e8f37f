//! Faults of processes: kills, stops, panics, system calls that fail, and processes that should not be there.

use std::{fs, time::Duration};

use anyhow::bail;
use nix::{sys::signal::Signal, unistd::Pid};

use super::{Ended, Fault, Injection, ends_itself, undone_by};
use crate::{
    failpoint::{Failpoint, State},
    hostile_client,
    role::Role,
    supervisor::{STARTUP_MAX, Supervisor, end},
    syscall_faults::SyscallFaults,
    workers,
};

/// A second agent is refused within this time, even on a busy machine.
const REFUSAL_MAX: Duration = Duration::from_secs(30);

/// A trainer starts the process that keeps its socket within this time after all other faults ended.
const FORK_MAX: Duration = Duration::from_secs(30);

/// A thread reaches a failpoint within this time, if it reaches it at all.
const PANIC_MAX: Duration = Duration::from_secs(10);

/// The exit code of an agent that is refused.
const REFUSED: i32 = 2;

/// Kills a process, which is restarted after the duration of the fault.
pub(super) fn kill<'a>(at: &mut Supervisor<'a>, role: Role, fault: Fault) -> Injection<'a> {
    Ok(at.kill(role, fault.duration)?.then(ends_itself))
}

pub(super) fn stop<'a>(at: &mut Supervisor<'a>, role: Role) -> Injection<'a> {
    let is_stopped = at.signal(role, Signal::SIGSTOP)?;
    // A process that was restarted meanwhile is not stopped; the signal is harmless.
    let go_on = move |at: &mut Supervisor<'a>| at.signal(role, Signal::SIGCONT).map(drop);
    Ok(is_stopped.then(|| undone_by(go_on)))
}

pub(super) fn kill_workers<'a>(at: &mut Supervisor<'a>, fault: Fault) -> Injection<'a> {
    let workers = at.workers(fault.agent(at));
    Ok(workers::signal(&workers, Signal::SIGKILL).then(ends_itself))
}

pub(super) fn stop_workers<'a>(at: &mut Supervisor<'a>, fault: Fault) -> Injection<'a> {
    let workers = at.workers(fault.agent(at));
    let is_stopped = workers::signal(&workers, Signal::SIGSTOP);
    // Those that ended meanwhile get no signal.
    let go_on = move |_: &mut Supervisor<'a>| {
        workers::signal(&workers, Signal::SIGCONT);
        Ok(())
    };
    Ok(is_stopped.then(|| undone_by(go_on)))
}

/// Restarts a process with a failpoint at which one of its threads panics.
pub(super) fn panic<'a>(at: &mut Supervisor<'a>, role: Role, fault: Fault) -> Injection<'a> {
    let failpoint = Failpoint::select(role, at.testbed.bucket.is_some(), fault.target);
    if !at.restart_with_failpoint(role, failpoint.clone())? {
        return Ok(None);
    }
    Ok(Some(Box::new(move |at, late| match failpoint.state() {
        State::Panicked => Ok(Ended::Injected),
        State::Preempted => Ok(Ended::WithoutEffect),
        State::Armed if late <= PANIC_MAX => Ok(Ended::NotYet),
        State::Armed => {
            // A failpoint that stayed armed would fire later, while no fault is active.
            at.kill(role, Duration::ZERO)?;
            Ok(Ended::WithoutEffect)
        }
    })))
}

/// Lets system calls of a process fail, but only after its start: a starting process may end when they fail.
pub(super) fn fail_calls<'a>(at: &mut Supervisor<'a>, role: Role, fault: Fault) -> Injection<'a> {
    let log = at.testbed.folder.join(&format!("calls-{role}"));
    let has_started = at.age(role).is_some_and(|age| age > STARTUP_MAX) && !log.exists();
    let Some(pid) = at.pid(role).filter(|_| has_started) else { return Ok(None) };
    let mut faults = SyscallFaults::begin(role, pid, log, fault.target)?;
    Ok(Some(Box::new(move |at, _| {
        let failed = faults.end()?;
        let has_failed = !failed.is_empty();
        for (call, count) in failed {
            *at.seen.failed_calls.entry(call).or_default() += count;
        }
        Ok(if has_failed { Ended::Injected } else { Ended::WithoutEffect })
    })))
}

/// Starts another agent for a node, which must be refused.
pub(super) fn start_second_agent<'a>(at: &mut Supervisor<'a>, fault: Fault) -> Injection<'a> {
    let agent = fault.agent(at);
    let has_started = at.age(agent).is_some_and(|age| age > STARTUP_MAX);
    if !has_started || at.has_failpoint(agent) {
        return Ok(None);
    }
    let mut second = at.second(agent)?;
    Ok(Some(Box::new(move |_, late| match second.try_wait()? {
        Some(status) if status.code() == Some(REFUSED) => Ok(Ended::Injected),
        Some(status) => bail!("a second agent was not refused: {status}"),
        None if late <= REFUSAL_MAX => Ok(Ended::NotYet),
        None => {
            end(&mut second);
            bail!("a second agent was accepted")
        }
    })))
}

/// Tells a trainer to start a process that keeps its socket open, as a forked loader worker does, and kills the
/// trainer afterwards. It starts one when it runs and is connected to an agent, which may take a while.
pub(super) fn orphan<'a>(at: &mut Supervisor<'a>, fault: Fault) -> Injection<'a> {
    let rank = fault.rank(at.testbed.world);
    let folder = &at.testbed.folder;
    let (fork, number) = (folder.fork(rank), folder.orphan(rank));
    // Another fault may wait for this trainer.
    if fork.exists() || number.exists() {
        return Ok(None);
    }
    fs::write(&fork, "")?;
    Ok(Some(Box::new(move |at, late| {
        // A trainer that took the file is about to start the process, unless it was killed.
        let patience = if fork.exists() { FORK_MAX } else { 2 * FORK_MAX };
        if !number.exists() && late <= patience {
            return Ok(Ended::NotYet);
        }
        // The file is still there if no trainer took it.
        drop(fs::remove_file(&fork));
        let Ok(text) = fs::read_to_string(&number) else { return Ok(Ended::WithoutEffect) };
        fs::remove_file(&number)?;
        at.track_orphan(Pid::from_raw(text.trim().parse()?));
        at.kill(Role::Trainer(rank), fault.duration)?;
        Ok(Ended::Injected)
    })))
}

pub(super) fn attack<'a>(at: &mut Supervisor<'a>, fault: Fault) -> Injection<'a> {
    let mut hostile = hostile_client::start(at, fault.target, fault.duration)?;
    Ok(Some(undone_by(move |_| {
        end(&mut hostile);
        Ok(())
    })))
}
