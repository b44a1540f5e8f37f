//! Decides whether figures that were measured before are those of the host as it is now.
//!
//! Figures of memory hold for the same kernel, started in the same way, the same CPUs, and the same amount of
//! memory on the node. Those of a directory hold for the same kernel and the same mount; on a RAM disk for the
//! same memory too. What else may change the figures (other load, firmware, temperature) is not noticed.

use std::path::{Path, PathBuf};

use tierfeed_core::{tier::Kind, units::Bytes};

use crate::{
    inventory::{Inventory, mount, mount::Mount, number_list},
    report::Tier,
};

/// Memory of a node counts as the same if it differs by at most one part of this many: what the kernel itself
/// takes at the start changes a little, and so does the memory of a guest.
const MEMORY_PARTS: u64 = 16;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Stale {
    #[error("measured on the host {was}, and this is {now}")]
    OtherHost { was: String, now: String },
    #[error("measured by a version that noted no boot configuration")]
    NoBoot,
    #[error("the kernel was {was}, is {now} now")]
    Kernel { was: String, now: String },
    #[error("the kernel command line had {was:?}, has {now:?} now")]
    Parameters {
        /// The parameters that bear on speed, then.
        was: String,
        now: String,
    },
    #[error("NUMA node {0} is gone")]
    NodeGone(u32),
    #[error("NUMA node {0} was not there")]
    NodeNew(u32),
    #[error("memory of node {node} was {was}, is {now} now")]
    Memory { node: u32, was: Bytes, now: Bytes },
    #[error("CPUs of node {node} were {was:?}, are {now:?} now")]
    Cpus { node: u32, was: String, now: String },
    #[error("{} was {was}, is {now} now", .place.display())]
    FileSystem { place: PathBuf, was: String, now: String },
    #[error("{} was on {was}, is on {now} now", .place.display())]
    Device {
        place: PathBuf,
        /// Source and number of the device then.
        was: String,
        now: String,
    },
    #[error("{} is on no known mount", .0.display())]
    NoMount(PathBuf),
}

/// Checks whether figures of `tier` from the host `then` still hold for the host `now`.
///
/// # Errors
///
/// The first thing that changed.
pub fn tier(then: &Inventory, now: &Inventory, tier: &Tier) -> Result<(), Stale> {
    match &tier.path {
        Some(path) => directory(then, now, (path, path)),
        None => memory(then, now, &tier.numa_nodes),
    }
}

/// # Errors
///
/// The first thing that changed.
pub fn memory(then: &Inventory, now: &Inventory, nodes: &[u32]) -> Result<(), Stale> {
    boot(then, now)?;
    cpus(then, now)?;
    nodes.iter().try_for_each(|node| {
        let all = |inventory: &Inventory| {
            let node = inventory.nodes.iter().find(|it| it.id == *node);
            node.map(|node| Bytes(node.memory_total_bytes))
        };
        match (all(then), all(now)) {
            (_, None) => Err(Stale::NodeGone(*node)),
            (None, _) => Err(Stale::NodeNew(*node)),
            (Some(was), Some(now)) if is_other(was, now) => {
                Err(Stale::Memory { node: *node, was, now })
            }
            _ => Ok(()),
        }
    })
}

/// Checks whether figures of the directory `measured` hold for the directory `wanted`, which may be the same.
///
/// # Errors
///
/// The first thing that changed, or that differs between the two.
pub fn directory(
    then: &Inventory,
    now: &Inventory,
    (measured, wanted): (&Path, &Path),
) -> Result<(), Stale> {
    boot(then, now)?;
    let no_mount = || Stale::NoMount(wanted.to_owned());
    let was = mount::holding(&then.mounts, measured).ok_or_else(no_mount)?;
    let is = mount::holding(&now.mounts, wanted).ok_or_else(no_mount)?;
    let place = wanted.to_owned();
    if was.file_system != is.file_system {
        let (was, now) = (was.file_system.clone(), is.file_system.clone());
        return Err(Stale::FileSystem { place, was, now });
    }
    if device(was) != device(is) {
        return Err(Stale::Device { place, was: device(was), now: device(is) });
    }
    if is.medium == mount::Medium::Memory {
        let nodes = now.nodes.iter().filter(|node| node.tier_kind() == Some(Kind::MainMemory));
        let nodes: Vec<u32> = nodes.map(|node| node.id).collect();
        return memory(then, now, &nodes);
    }
    Ok(())
}

/// Compares the host and how its kernel was started: figures of a bucket depend on nothing else.
pub(crate) fn boot(then: &Inventory, now: &Inventory) -> Result<(), Stale> {
    if then.host != now.host {
        return Err(Stale::OtherHost { was: then.host.clone(), now: now.host.clone() });
    }
    let (Some(was), Some(is)) = (&then.boot, &now.boot) else { return Err(Stale::NoBoot) };
    if was.kernel != is.kernel {
        return Err(Stale::Kernel { was: was.kernel.clone(), now: is.kernel.clone() });
    }
    if was.parameters != is.parameters {
        let (was, now) = (was.parameters.join(" "), is.parameters.join(" "));
        return Err(Stale::Parameters { was, now });
    }
    Ok(())
}

/// Compares the CPUs of every node that has any, then or now.
fn cpus(then: &Inventory, now: &Inventory) -> Result<(), Stale> {
    let of = |inventory: &Inventory, node: u32| {
        let node = inventory.nodes.iter().find(|it| it.id == node);
        node.map(|node| node.cpus.clone()).unwrap_or_default()
    };
    let nodes = then.nodes.iter().chain(&now.nodes).map(|node| node.id);
    for node in nodes {
        let (was, is) = (of(then, node), of(now, node));
        if was != is {
            let (was, now) = (number_list::print(&was), number_list::print(&is));
            return Err(Stale::Cpus { node, was, now });
        }
    }
    Ok(())
}

fn is_other(was: Bytes, now: Bytes) -> bool {
    was.0.abs_diff(now.0) > was.0.max(now.0) / MEMORY_PARTS
}

/// Identifies the device or server of a mount. The kernel numbers file systems without a block device (major
/// 0) anew at every boot.
fn device(mount: &Mount) -> String {
    let is_block = !mount.device.starts_with("0:");
    if is_block { format!("{} ({})", mount.source, mount.device) } else { mount.source.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sysroot::Sysroot, tests_support::FakeSysroot};

    const MOUNTS: &str = "27 1 254:0 / / rw - ext4 /dev/vda1 rw\n\
                          28 1 259:1 / /nvme rw - xfs /dev/nvme0n1 rw\n\
                          29 1 0:40 / /mnt/scratch rw - tmpfs tmpfs rw\n";

    fn machine() -> FakeSysroot {
        let machine = FakeSysroot::cxl_node();
        machine.write("proc/sys/kernel/osrelease", "6.12.1\n");
        machine.write("proc/cmdline", "quiet numa_balancing=disable\n");
        machine.write("proc/self/mountinfo", MOUNTS);
        machine.node(1, "4-7", 16 << 20);
        machine
    }

    fn read(machine: &FakeSysroot) -> Inventory {
        Inventory::read(Sysroot(machine.path())).unwrap()
    }

    /// The text of [`Stale`] for the memory of all nodes after a change, or for a directory.
    fn said(change: impl Fn(&FakeSysroot), directory: Option<&str>) -> String {
        let machine = machine();
        let then = read(&machine);
        change(&machine);
        let now = read(&machine);
        let outcome = match directory {
            None => memory(&then, &now, &[0, 1, 2]),
            Some(path) => super::directory(&then, &now, (path.as_ref(), path.as_ref())),
        };
        outcome.err().map(|stale| stale.to_string()).unwrap_or_default()
    }

    #[test]
    fn memory_that_did_not_change_is_fresh() {
        assert_eq!(said(|_| (), None), "");
        let little = |it: &FakeSysroot| it.node(1, "4-7", (16 << 20) - (1 << 20));
        assert_eq!(said(little, None), "", "a sixteenth");
    }

    #[test]
    fn what_changed_of_memory_is_said() {
        let check = |change: &dyn Fn(&FakeSysroot), expected: &str| {
            assert_eq!(said(change, None), expected);
        };
        check(&|it| it.node(1, "4-7", 8 << 20), "memory of node 1 was 16 GiB, is 8 GiB now");
        check(&|it| it.node(0, "0-2", 4096), "CPUs of node 0 were \"0-3\", are \"0-2\" now");
        check(
            &|it| it.write("proc/sys/kernel/osrelease", "6.18.0\n"),
            "the kernel was 6.12.1, is 6.18.0 now",
        );
        check(
            &|it| it.write("proc/cmdline", "quiet mem=8G\n"),
            "the kernel command line had \"numa_balancing=disable\", has \"mem=8G\" now",
        );
        check(&|it| it.write("proc/cmdline", "splash numa_balancing=disable\n"), "");
        check(
            &|it| it.write("proc/sys/kernel/hostname", "other\n"),
            "measured on the host fake, and this is other",
        );
        check(&|it| it.nodes(&[0, 1], &[&[10, 21], &[21, 10]]), "NUMA node 2 is gone");
    }

    #[test]
    fn figures_of_a_version_that_noted_no_boot_configuration_are_stale() {
        let now = read(&machine());
        let then = Inventory { boot: None, ..now.clone() };
        let stale = memory(&then, &now, &[0]).unwrap_err();
        assert_eq!(stale.to_string(), "measured by a version that noted no boot configuration");
        let old = serde_json::to_value(&now).unwrap();
        let mut old = old.as_object().unwrap().clone();
        old.remove("boot");
        let old: Inventory = serde_json::from_value(old.into()).unwrap();
        assert_eq!(old.boot, None, "such a report can still be read");
    }

    #[test]
    fn what_changed_of_a_directory_is_said() {
        let mounts = |from: &'static str, to: &'static str| {
            move |it: &FakeSysroot| it.write("proc/self/mountinfo", &MOUNTS.replace(from, to))
        };
        let check = |change: &dyn Fn(&FakeSysroot), path: &str, expected: &str| {
            assert_eq!(said(change, Some(path)), expected, "{path}");
        };
        check(&|_| (), "/nvme/cache", "");
        check(
            &mounts("tmpfs tmpfs", "ext4 /dev/sdb1"),
            "/mnt/scratch",
            "/mnt/scratch was tmpfs, is ext4 now",
        );
        check(
            &mounts("259:1 / /nvme rw - xfs /dev/nvme0n1", "259:2 / /nvme rw - xfs /dev/nvme1n1"),
            "/nvme/cache",
            "/nvme/cache was on /dev/nvme0n1 (259:1), is on /dev/nvme1n1 (259:2) now",
        );
        check(&mounts("0:40", "0:57"), "/mnt/scratch/job", "");
        check(
            &|it| it.node(1, "4-7", 8 << 20),
            "/mnt/scratch",
            "memory of node 1 was 16 GiB, is 8 GiB now",
        );
        check(&|it| it.node(1, "4-7", 8 << 20), "/nvme", "");
    }

    #[test]
    fn figures_of_a_directory_hold_for_another_one_of_the_same_mount() {
        let now = read(&machine());
        let check = |a: &str, b: &str| directory(&now, &now, (a.as_ref(), b.as_ref()));
        check("/nvme/a", "/nvme/b").unwrap();
        assert!(matches!(check("/nvme/a", "/home"), Err(Stale::FileSystem { .. })));
    }
}
