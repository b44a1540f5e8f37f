//! Judges the directories for scratch and storage tiers, and where sockets go.

use tierfeed_core::units::Bytes;

use super::{
    Facts, Finding, FixPlace,
    facts::{Attempt, Directory},
};
use crate::inventory::mount::Medium;

const CHUNK: Bytes = Bytes::mib(512);

/// `CAP_SYS_ADMIN` of `linux/capability.h`: its holder may mount.
const CAP_SYS_ADMIN: u32 = 21;

/// A RAM disk below this share of all memory counts as tiny.
const SCRATCH_PERCENT: u64 = 10;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    vec![scratch(facts), storage(facts), direct(facts), sockets(facts)]
}

fn scratch(facts: &Facts) -> Finding {
    const SUBJECT: &str = "RAM disk";
    const CONSEQUENCE: &str = "the agent has no RAM disk for a scratch tier unless the job names one as tiers.scratch.path";
    if facts.has_capability(CAP_SYS_ADMIN) {
        let found = "the agent mounts one of its own where the job has tiers.scratch";
        return Finding::ok(SUBJECT, format!("CAP_SYS_ADMIN; {found}"));
    }
    let Some(directory) = &facts.scratch else {
        return Finding::missing(SUBJECT, "there is no /dev/shm", CONSEQUENCE)
            .fix(FixPlace::Host, "mkdir -p /dev/shm && mount -t tmpfs -o size=50% tmpfs /dev/shm");
    };
    let total = facts.inventory.memory.total_bytes;
    let found = describe(directory);
    if directory.medium != Medium::Memory {
        return Finding::missing(SUBJECT, found, CONSEQUENCE)
            .fix(FixPlace::Host, "mount -t tmpfs -o size=50% tmpfs /dev/shm")
            .fix(FixPlace::Container, "--shm-size 8g");
    }
    let is_tiny =
        |(size, _): (Bytes, Bytes)| size.0 < total / 100 * SCRATCH_PERCENT || size < CHUNK;
    if matches!(directory.is_writable, Attempt::Refused(_)) {
        return Finding::missing(SUBJECT, found, CONSEQUENCE)
            .fix(FixPlace::Host, "chmod 1777 /dev/shm && mount -o remount,rw /dev/shm");
    }
    if directory.room.is_some_and(is_tiny) {
        let size = (total / 2) >> 20;
        return Finding::degraded(SUBJECT, found, "the scratch tier holds next to nothing")
            .fix(FixPlace::Container, format!("--shm-size {size}m"))
            .fix(
                FixPlace::Kubernetes,
                "volumes: [{ name: shm, emptyDir: { medium: Memory } }], mounted at /dev/shm",
            )
            .fix(FixPlace::Host, "mount -o remount,size=50% /dev/shm");
    }
    Finding::ok(SUBJECT, found)
}

fn storage(facts: &Facts) -> Finding {
    const SUBJECT: &str = "storage";
    let Some(directory) = &facts.storage else {
        return Finding::missing(
            SUBJECT,
            "there is neither /var/tmp nor /tmp",
            "there is no storage tier unless the job names one",
        )
        .fix(FixPlace::Job, "tiers: { storage: { path: /nvme/tierfeed, size: 200 GiB } }");
    };
    let found = describe(directory);
    let path = directory.path.display();
    let volume = |finding: Finding| {
        finding
            .fix(FixPlace::Container, format!("-v /nvme/tierfeed:{path}"))
            .fix(FixPlace::Job, "tiers: { storage: { path: /nvme/tierfeed, size: 200 GiB } }")
    };
    if matches!(directory.is_writable, Attempt::Refused(_)) {
        let consequence = "there is no storage tier unless the job names one";
        return volume(Finding::missing(SUBJECT, found, consequence));
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
        _ => return Finding::ok(SUBJECT, found),
    };
    volume(Finding::degraded(SUBJECT, found, consequence))
}

fn direct(facts: &Facts) -> Finding {
    const SUBJECT: &str = "direct I/O";
    let Some(directory) = &facts.storage else {
        return Finding::ok(SUBJECT, "not tried: no directory");
    };
    let found = format!("O_DIRECT in {} {}", directory.path.display(), directory.direct.said());
    match directory.direct {
        Attempt::Done | Attempt::Untried => Finding::ok(SUBJECT, found),
        Attempt::Refused(_) => Finding::degraded(
            SUBJECT,
            found,
            "benchmarks read through the page cache, which they empty first, and say buffered",
        )
        .fix(FixPlace::Container, format!("-v /nvme/tierfeed:{}", directory.path.display()))
        .fix(FixPlace::Job, "tiers: { storage: { path: /nvme/tierfeed, size: 200 GiB } }"),
    }
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
    Finding::degraded(
        SUBJECT,
        format!("{found} belongs to somebody else"),
        "runs in directories with long paths are refused, because others could take their sockets",
    )
    .fix(FixPlace::Host, format!("rm -r {path}"))
    .fix(FixPlace::Shell, "export TIERFEED_RUN_DIR=$XDG_RUNTIME_DIR/tierfeed")
}

fn describe(directory: &Directory) -> String {
    let Directory { path, file_system, room, is_writable, .. } = directory;
    let room = room.map_or_else(String::new, |(size, free)| format!(", {free} of {size} free"));
    let refusal = match is_writable {
        Attempt::Refused(_) => format!(", a file in it {}", is_writable.said()),
        Attempt::Done | Attempt::Untried => String::new(),
    };
    format!("{} on {file_system}{room}{refusal}", path.display())
}
