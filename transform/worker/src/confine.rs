//! Gives up the rights that decoding does not need, before the first sample is seen.
//!
//! A sample may come from a hostile author, and decoders are large parsers in C. If one is exploited, the
//! process can open no file, start no program, reach no network and touch no other process, and takes no more
//! memory and descriptors than the limits here. Both Landlock (Linux 5.13; TCP from 6.7 on) and a filter of
//! system calls see to it. It has no terminal, to which it could type commands, and no capability, also of
//! root. What it can do is to write into the memory that it maps: rows and inputs of its node.

mod system_calls;

use std::io;

use caps::{CapSet, Capability, errors::CapsError};
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
    RulesetError, Scope,
};
use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Resource, Rlimit, getrlimit, nice, setrlimit, setsid};
use tierfeed_transform::worker_protocol::Setup;

use self::system_calls::FilterError;

/// Memory for everything but the pixels of an image.
const DATA_BYTES_MIN: u64 = 1 << 30;

/// Bytes that an image may take for each of its pixels: decoded, resized and as floating-point numbers.
const BYTES_PER_PIXEL: u64 = 16;

/// Number of open descriptors: each memory is closed once it is mapped.
const FILES_MAX: u64 = 64;

#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    #[error("cannot set a limit on this process: {0}")]
    Limit(#[source] io::Error),
    #[error("cannot give up the capabilities of this process: {0}")]
    Capabilities(#[from] CapsError),
    /// The kernel supports filters of system calls and refuses this one.
    #[error("cannot close system calls to this process: {0}")]
    SystemCalls(#[from] FilterError),
    /// The kernel supports Landlock and refuses the rules.
    #[error("cannot close the file system to this process: {0}")]
    Landlock(#[from] RulesetError),
}

/// Restricts this process to computing on memory and to its open descriptors.
///
/// # Errors
///
/// See [`ConfineError`]; a kernel without Landlock is no error.
pub(crate) fn to_computing(setup: &Setup) -> Result<(), ConfineError> {
    // Away from the terminal of its starter. It fails where the process leads a session already.
    let _ = setsid();
    // A worker that may not be nicer works as any other process.
    let _ = nice(i32::from(setup.niceness));
    let data = DATA_BYTES_MIN.saturating_add(setup.pixels_max.saturating_mul(BYTES_PER_PIXEL));
    let limits = [
        // Not the address space: arenas of any size are mapped, and they are memory of the starter.
        (Resource::Data, data),
        (Resource::Nofile, FILES_MAX),
        // A message to a standard error that is a file fails, and ends no process.
        (Resource::Fsize, 0),
        (Resource::Core, 0),
    ];
    for (resource, most) in limits {
        // A lower limit of the parent process stays.
        let most = getrlimit(resource).maximum.map_or(most, |already| already.min(most));
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        setrlimit(resource, limit).map_err(|errno| ConfineError::Limit(errno.into()))?;
    }
    SigSet::from(Signal::SIGXFSZ)
        .thread_block()
        .map_err(|errno| ConfineError::Limit(errno.into()))?;
    let support = system_calls::Support::read();
    give_up_capabilities()?;
    close_file_system()?;
    Ok(system_calls::close(support)?)
}

/// Whether the kernel lets a process give up files.
#[must_use]
pub fn has_landlock() -> bool {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    ruleset.handle_access(AccessFs::Execute).and_then(Ruleset::create).is_ok()
}

fn give_up_capabilities() -> Result<(), CapsError> {
    // Who may not limit what a program can gain has nothing to gain, and starts no program.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
        caps::clear(None, CapSet::Bounding)?;
    }
    // It is unknown before Linux 4.3, and empty with the others.
    let _ = caps::clear(None, CapSet::Ambient);
    caps::clear(None, CapSet::Inheritable)?;
    caps::clear(None, CapSet::Permitted)
}

/// Also forbids this process to gain privileges (`no_new_privs`).
fn close_file_system() -> Result<(), ConfineError> {
    let abi = ABI::V6;
    Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?
        .create()?
        .restrict_self()?;
    Ok(())
}
