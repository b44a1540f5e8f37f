//! The directories for scratch and storage tiers, and where sockets go.

use std::{
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use nix::unistd::Uid;
use tierfeed_core::units::Bytes;
use tierfeed_file_io::direct::{self, Caching};

use super::{Attempt, Facts, Finding, FixPlace};
use crate::{
    available::DiskSpace,
    inventory::mount::{self, Medium, Mount},
    sysroot::Sysroot,
};

const CHUNK: Bytes = Bytes::mib(512);

/// `CAP_SYS_ADMIN` of `linux/capability.h`: its holder may mount.
const CAP_SYS_ADMIN: u32 = 21;

/// A RAM disk below this share of all memory counts as tiny.
const SCRATCH_PERCENT: u64 = 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    pub path: PathBuf,
    /// The type of its file system, for instance `ext4`.
    pub file_system: String,
    pub medium: Medium,
    /// Size of the file system and free space for this user; `None` if the sysroot is not this machine.
    pub room: Option<(Bytes, Bytes)>,
    pub is_writable: Attempt,
    /// Whether a file could be opened past the page cache.
    pub direct: Attempt,
}

/// The folder in `/tmp` for sockets whose path in the run directory would be too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketFolder {
    pub path: PathBuf,
    /// Whether it is a directory of this user.
    pub is_ours: bool,
    /// Permission bits, as in `0o700`.
    pub mode: u32,
}

impl Directory {
    /// `None` if there is no such directory.
    pub(super) fn look(sysroot: Sysroot<'_>, mounts: &[Mount], path: &Path) -> Option<Self> {
        let place = sysroot.join(path);
        if !place.is_dir() {
            return None;
        }
        let mount = mount::holding(mounts, path)?;
        let mut directory = Self {
            path: path.to_owned(),
            file_system: mount.file_system.clone(),
            medium: mount.medium,
            room: None,
            is_writable: Attempt::Untried,
            direct: Attempt::Untried,
        };
        if sysroot.is_live() {
            directory.room = DiskSpace::read(&place).map(|it| (it.total, it.free));
            let file = tempfile::tempfile_in(&place);
            if let Ok(file) = &file {
                directory.direct = direct::set_caching(file, Caching::Bypassed).into();
            }
            directory.is_writable = file.into();
        }
        Some(directory)
    }
}

impl SocketFolder {
    /// `None` if the folder does not exist yet.
    pub(super) fn look(sysroot: Sysroot<'_>) -> Option<Self> {
        let own = Uid::effective();
        let path = PathBuf::from(format!("/tmp/tierfeed-{own}"));
        let found = sysroot.join(&path).symlink_metadata().ok()?;
        let is_ours = found.is_dir() && found.uid() == own.as_raw();
        Some(Self { path, is_ours, mode: found.mode() & 0o777 })
    }
}

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    vec![scratch(facts), storage(facts), direct(facts), sockets(facts)]
}

fn scratch(facts: &Facts) -> Finding {
    const CONSEQUENCE: &str = "the agent has no RAM disk for a scratch tier unless the job names one as tiers.scratch.path";
    let finding = |found: &str| Finding::ok("RAM disk", found);
    if facts.has_capability(CAP_SYS_ADMIN) {
        return finding(
            "CAP_SYS_ADMIN; the agent mounts one of its own where the job has tiers.scratch",
        );
    }
    let Some(directory) = &facts.scratch else {
        return finding("there is no /dev/shm")
            .missing(CONSEQUENCE)
            .fix(FixPlace::Host, "mkdir -p /dev/shm && mount -t tmpfs -o size=50% tmpfs /dev/shm");
    };
    let total = facts.inventory.memory.total_bytes;
    let finding = finding(&describe(directory));
    if directory.medium != Medium::Memory {
        return finding
            .missing(CONSEQUENCE)
            .fix(FixPlace::Host, "mount -t tmpfs -o size=50% tmpfs /dev/shm")
            .fix(FixPlace::Container, "--shm-size 8g");
    }
    if directory.is_writable.is_refused() {
        return finding
            .missing(CONSEQUENCE)
            .fix(FixPlace::Host, "chmod 1777 /dev/shm && mount -o remount,rw /dev/shm");
    }
    let is_tiny =
        |(size, _): (Bytes, Bytes)| size.0 < total / 100 * SCRATCH_PERCENT || size < CHUNK;
    if !directory.room.is_some_and(is_tiny) {
        return finding;
    }
    finding
        .degraded("the scratch tier holds next to nothing")
        .fix(FixPlace::Container, format!("--shm-size {}m", (total / 2) >> 20))
        .fix(
            FixPlace::Kubernetes,
            "volumes: [{ name: shm, emptyDir: { medium: Memory } }], mounted at /dev/shm",
        )
        .fix(FixPlace::Host, "mount -o remount,size=50% /dev/shm")
}

const NAME_A_DISK: &str = "tiers: { storage: { path: /nvme/tierfeed, size: 200 GiB } }";

fn storage(facts: &Facts) -> Finding {
    const NO_TIER: &str = "there is no storage tier unless the job names one";
    let Some(directory) = &facts.storage else {
        return Finding::ok("storage", "there is neither /var/tmp nor /tmp")
            .missing(NO_TIER)
            .fix(FixPlace::Job, NAME_A_DISK);
    };
    let finding = Finding::ok("storage", describe(directory));
    if directory.is_writable.is_refused() {
        return on_a_disk(finding.missing(NO_TIER), directory);
    }
    let consequence = match directory.medium {
        _ if directory.file_system == "overlay" => {
            "files go through the layers of the container, and what is measured is not the disk alone"
        }
        Medium::Memory => "its files take main memory: it is a second RAM disk, not storage",
        Medium::Network => {
            "it is as slow as the network, and no cache for a cold store on the same"
        }
        _ if directory.room.is_some_and(|(_, free)| free < CHUNK) => "no chunk fits on it",
        _ => return finding,
    };
    on_a_disk(finding.degraded(consequence), directory)
}

fn on_a_disk(finding: Finding, directory: &Directory) -> Finding {
    finding
        .fix(FixPlace::Container, format!("-v /nvme/tierfeed:{}", directory.path.display()))
        .fix(FixPlace::Job, NAME_A_DISK)
}

fn direct(facts: &Facts) -> Finding {
    let Some(directory) = &facts.storage else {
        return Finding::ok("direct I/O", "not tried: no directory");
    };
    let found = format!("O_DIRECT in {} {}", directory.path.display(), directory.direct.said());
    let finding = Finding::ok("direct I/O", found);
    if !directory.direct.is_refused() {
        return finding;
    }
    let why = "benchmarks read through the page cache, which they empty first, and say buffered";
    on_a_disk(finding.degraded(why), directory)
}

fn sockets(facts: &Facts) -> Finding {
    const SUBJECT: &str = "folder for sockets";
    let Some(folder) = &facts.sockets else {
        return Finding::ok(SUBJECT, "the run directory; no user has made one in /tmp");
    };
    let path = folder.path.display();
    let found = format!("{path} with mode {:o}", folder.mode);
    if folder.is_ours {
        // One that is open to others is closed by the next run.
        return Finding::ok(SUBJECT, found);
    }
    Finding::ok(SUBJECT, format!("{found} belongs to somebody else"))
        .degraded(
            "runs in directories with long paths are refused, because others could take their sockets",
        )
        .fix(FixPlace::Host, format!("rm -r {path}"))
        .fix(FixPlace::Shell, "export TIERFEED_RUN_DIR=$XDG_RUNTIME_DIR/tierfeed")
}

fn describe(directory: &Directory) -> String {
    let Directory { path, file_system, room, is_writable, .. } = directory;
    let room = room.map_or_else(String::new, |(size, free)| format!(", {free} of {size} free"));
    let refusal = if is_writable.is_refused() {
        format!(", a file in it {}", is_writable.said())
    } else {
        String::new()
    };
    format!("{} on {file_system}{room}{refusal}", path.display())
}
