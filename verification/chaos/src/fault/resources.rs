//! Faults of memory and tiers: a full disk, a directory that is gone, memory that is taken, short or lent.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::Context as _;
use tierfeed_core::units::Bytes;
use tierfeed_handoff::MemoryClient;

use super::{Fault, Injection, undone_by};
use crate::{
    role::Role,
    supervisor::{STARTUP_MAX, Supervisor, end},
    testbed::SCRATCH_DISK_BYTES,
};

/// Memory that stays free under pressure: less than an agent leaves free of any limit, and more than its
/// processes take between two checks.
const HEADROOM: Bytes = Bytes::mib(10);

/// As [`HEADROOM`], for an agent that starts: it still has to allocate its working memory.
const HEADROOM_AT_START: Bytes = Bytes::mib(40);

/// The time in which an agent has to lend memory; a stopped one does not answer.
const LOAN_PATIENCE: Duration = Duration::from_millis(500);
const LOAN: Bytes = Bytes::mib(4);

pub(super) fn fill_tier<'a>(at: &mut Supervisor<'a>) -> Injection<'a> {
    let filler = at.testbed.folder.filler();
    if filler.exists() {
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
    Ok(Some(undone_by(move |_| Ok(fs::remove_file(&filler)?))))
}

/// Moves the directory of the tier away and kills the agent, so that the next agent finds it missing.
pub(super) fn lose_tier<'a>(at: &mut Supervisor<'a>, fault: Fault) -> Injection<'a> {
    let tier = at.testbed.folder.scratch();
    let gone = tier.with_extension("gone");
    if gone.exists() || !at.kill(Role::Agent(0), fault.duration / 2)? {
        return Ok(None);
    }
    fs::rename(&tier, &gone)?;
    Ok(Some(undone_by(move |_| move_back(&gone, &tier))))
}

fn move_back(from: &Path, to: &Path) -> anyhow::Result<()> {
    // An agent that started meanwhile made a new directory. It has that open, and its chunks have no names.
    match fs::remove_dir(to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("{}: left behind", to.display()));
        }
        _ => (),
    }
    Ok(fs::rename(from, to)?)
}

pub(super) fn take_memory<'a>(at: &mut Supervisor<'a>, fault: Fault) -> Injection<'a> {
    let Some(pressure) = at.testbed.pressure else { return Ok(None) };
    let mut hog = Command::new(&at.programs.tierfeed);
    hog.args(["hog", "--take", &format!("{} B", pressure.0)]);
    hog.args(["--for", &format!("{} ms", fault.duration.as_millis())]);
    hog.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut hog = hog.spawn().context("cannot start `tierfeed hog`")?;
    Ok(Some(undone_by(move |_| {
        end(&mut hog);
        Ok(())
    })))
}

/// Lowers the memory limit of the agent's control group to what is used and a headroom, which is larger for an
/// agent that starts, as if a neighbour took the rest.
pub(super) fn limit_memory<'a>(at: &mut Supervisor<'a>) -> Injection<'a> {
    let testbed = at.testbed;
    let (Ok(group), Some(limit)) = (&testbed.group, testbed.pressure) else { return Ok(None) };
    let Some(age) = at.age(Role::Agent(0)) else { return Ok(None) };
    let headroom = if age < STARTUP_MAX { HEADROOM_AT_START } else { HEADROOM };
    // Without page cache: an agent counts it as free, and the kernel reclaims it.
    let needed = group.used_without_page_cache().0.saturating_add(headroom.0);
    group.limit(Bytes(needed.min(limit.0)))?;
    Ok(Some(undone_by(move |_| group.limit(limit))))
}

/// Borrows memory of a tier, which the cache must give up.
pub(super) fn borrow_memory<'a>(at: &mut Supervisor<'a>, fault: Fault) -> Injection<'a> {
    let socket = at.testbed.folder.run_dir(fault.agent(at)).join("agent.sock");
    let Ok(client) = MemoryClient::connect(&socket, LOAN_PATIENCE) else { return Ok(None) };
    if client.allocate(LOAN, LOAN_PATIENCE).is_err() {
        return Ok(None);
    }
    // The loan ends with the client.
    let mut client = Some(client);
    Ok(Some(undone_by(move |_| {
        drop(client.take());
        Ok(())
    })))
}
