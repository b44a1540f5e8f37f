//! Drops the rights that reading one file does not need, before libhdf5 opens that file.
//!
//! A file may come from a hostile author, and libhdf5 is a large parser in C. If it is exploited,
//! it can open no other file, write none, start no program and reach no network, as far as the
//! kernel supports Landlock (Linux 5.13; the network from 6.7 on), and take no more memory, time
//! and descriptors than the limits here.

use std::{io, path::Path};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, PathBeneath, PathFd,
    Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, Scope,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Address space: the layout of ten million chunks takes less than half of it.
const ADDRESS_SPACE_MAX: u64 = 8 << 30;

/// Seconds of a CPU. A layout is read in milliseconds; a file that loops is given up.
const CPU_SECONDS_MAX: u64 = 600;

/// The answer, if stdout is a file: as much as tierfeed reads of it.
const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// Number of open descriptors.
const FILES_MAX: u64 = 64;

/// Why the process cannot be confined.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfineError {
    /// The system refused a limit.
    #[error("cannot set a limit on this process: {0}")]
    Limit(#[source] io::Error),
    /// The kernel supports Landlock and refuses the rules.
    #[error("cannot close the file system to this process: {0}")]
    Landlock(#[from] RulesetError),
}

/// Restricts this process to reading `file` and writing to its open descriptors.
///
/// # Errors
///
/// See [`ConfineError`]; a kernel without Landlock is no error.
pub(crate) fn to_reading(file: &Path) -> Result<(), ConfineError> {
    let limits = [
        (Resource::As, ADDRESS_SPACE_MAX),
        (Resource::Cpu, CPU_SECONDS_MAX),
        (Resource::Nofile, FILES_MAX),
        (Resource::Fsize, ANSWER_BYTES_MAX),
        (Resource::Core, 0),
    ];
    for (resource, most) in limits {
        // A lower limit of the parent process stays.
        let most = getrlimit(resource).maximum.map_or(most, |already| already.min(most));
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        setrlimit(resource, limit).map_err(|errno| ConfineError::Limit(errno.into()))?;
    }
    close_file_system(file)
}

fn close_file_system(file: &Path) -> Result<(), ConfineError> {
    let abi = ABI::V6;
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?
        .create()?;
    // For a file that cannot be opened libhdf5 reports the error next.
    let rules = match PathFd::new(file) {
        Ok(file) => rules.add_rule(PathBeneath::new(file, AccessFs::ReadFile))?,
        Err(_) => rules,
    };
    rules.restrict_self()?;
    Ok(())
}
