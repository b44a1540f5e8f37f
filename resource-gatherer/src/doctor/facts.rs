//! Looks and tries, and keeps what came of it. Judges nothing.
//!
//! What stands in files is read below a sysroot; what only trying tells is tried on the machine that
//! the process runs on, with memory and files of its own that are gone afterwards.

use std::path::{Path, PathBuf};

use tierfeed_core::units::Bytes;

use super::{
    Attempt, Call, ColdFiles, Directory, Facts, Limit, Pool, SocketFolder, TransformWorker, memory,
};
use crate::{
    inventory::{CgroupMemory, Inventory, mount},
    sysroot::{ReadError, Sysroot, field, numbered_entries, optional, optional_number},
};

impl Facts {
    /// Looks below `sysroot`, and makes attempts only where that is this machine.
    ///
    /// # Errors
    ///
    /// A file that every Linux provides is missing, or a file does not say what the kernel documents.
    pub fn gather(sysroot: Sysroot<'_>) -> Result<Self, ReadError> {
        let inventory = Inventory::read(sysroot)?;
        let status = optional(&sysroot.join("proc/self/status")).unwrap_or_default();
        let limits = optional(&sysroot.join("proc/self/limits")).unwrap_or_default();
        let number = |path: &str| optional_number(&sysroot.join(path));
        let huge = |name: &str| {
            let path = Path::new("sys/kernel/mm/transparent_hugepage").join(name);
            chosen(&optional(&sysroot.join(path))?)
        };
        let tried = if sysroot.is_live() { Self::tried(&inventory) } else { Self::default() };
        Ok(Self {
            kernel: optional(&sysroot.join("proc/sys/kernel/osrelease")).unwrap_or_default(),
            in_container: in_container(sysroot),
            capabilities: field(&status, "CapEff:")
                .and_then(|digits| u64::from_str_radix(digits, 16).ok()),
            locked_memory: Limit::parse(&limits, "Max locked memory"),
            open_files: Limit::parse(&limits, "Max open files"),
            huge_pages: huge("enabled"),
            huge_pages_shared: huge("shmem_enabled"),
            huge_page_pools: Pool::read_all(sysroot),
            swap: memory::swap_of(sysroot),
            counts_pressure: sysroot.join("proc/pressure/memory").exists(),
            overcommit: number("proc/sys/vm/overcommit_memory"),
            memfd_noexec: number("proc/sys/vm/memfd_noexec"),
            clock: optional(
                &sysroot.join("sys/devices/system/clocksource/clocksource0/current_clocksource"),
            ),
            cpus_online: inventory.processor.cpus_online,
            has_hwloc: cfg!(feature = "hwloc"),
            scratch: Directory::look(sysroot, &inventory.mounts, Path::new("/dev/shm")),
            storage: Directory::look(sysroot, &inventory.mounts, storage(sysroot)),
            cold: ColdFiles::example(sysroot, &inventory.mounts, storage(sysroot))
                .into_iter()
                .collect(),
            sockets: SocketFolder::look(sysroot),
            inventory,
            ..tried
        })
    }

    /// Replaces [`Self::cold`] by what holds for files below `paths` on this machine. A path that is not
    /// there is left out.
    #[must_use]
    pub fn with_cold_files(self, paths: &[PathBuf]) -> Self {
        let look = |path: &PathBuf| ColdFiles::look(&self.inventory.mounts, path);
        let cold = paths.iter().filter_map(look).collect();
        Self { cold, ..self }
    }

    #[must_use]
    pub fn with_transform_worker(self, worker: TransformWorker) -> Self {
        Self { transform_worker: Some(worker), ..self }
    }

    #[must_use]
    pub fn has_capability(&self, number: u32) -> bool {
        self.capabilities.is_some_and(|bits| bits & (1 << number) != 0)
    }

    #[must_use]
    pub fn call(&self, call: Call) -> Attempt {
        self.calls.get(&call).copied().unwrap_or_default()
    }

    /// Memory that may still be taken, within the control group.
    #[must_use]
    pub fn available(&self) -> Bytes {
        let host = self.inventory.memory.available_bytes;
        let group = self.inventory.cgroup.as_ref().and_then(CgroupMemory::headroom_bytes);
        Bytes(group.map_or(host, |group| group.min(host)))
    }
}

/// `/var/tmp` is for files that last, and seldom a RAM disk as `/tmp` often is.
fn storage(sysroot: Sysroot<'_>) -> &'static Path {
    let found = ["/var/tmp", "/tmp"].into_iter().find(|path| sysroot.join(path).is_dir());
    Path::new(found.unwrap_or("/tmp"))
}

/// `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word.to_owned())
}

/// Engines leave a file or name the group; there is no official sign.
fn in_container(sysroot: Sysroot<'_>) -> bool {
    let has_file =
        [".dockerenv", "run/.containerenv"].iter().any(|file| sysroot.join(file).exists());
    let names = ["docker", "kubepods", "containerd", "libpod", "lxc"];
    let groups = optional(&sysroot.join("proc/self/cgroup")).unwrap_or_default();
    let root_is_overlay = || {
        let mounts = mount::read_all(sysroot).unwrap_or_default();
        mount::holding(&mounts, Path::new("/")).is_some_and(|root| root.file_system == "overlay")
            && numbered_entries(&sysroot.join("proc"), "").contains(&1)
            && optional(&sysroot.join("proc/1/comm")).is_some_and(|init| init != "systemd")
    };
    has_file || names.iter().any(|name| groups.contains(name)) || root_is_overlay()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::tests_support::FakeSysroot;

    #[test]
    fn files_of_a_machine_become_facts() {
        let machine = FakeSysroot::single_node();
        for (path, text) in [
            ("proc/sys/kernel/osrelease", "6.12.9\n"),
            ("proc/self/status", "Name:\tx\nCapEff:\t0000000000804000\nSeccomp:\t2\n"),
            (
                "proc/self/limits",
                "Limit  Soft Limit  Hard Limit  Units\n\
                 Max open files            1024                 524288               files     \n\
                 Max locked memory         8388608              unlimited            bytes     \n",
            ),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("sys/kernel/mm/transparent_hugepage/shmem_enabled", "always [never] deny force\n"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "64\n"),
            ("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n"),
            ("proc/swaps", "Filename Type Size Used Priority\n/swapfile file 2048 0 -2\n"),
            ("proc/sys/vm/overcommit_memory", "2\n"),
            ("proc/sys/vm/memfd_noexec", "1\n"),
            ("proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n"),
            (".dockerenv", ""),
        ] {
            machine.write(path, text);
        }
        let facts = Facts::gather(Sysroot(machine.path())).unwrap();
        assert_eq!(facts.kernel, "6.12.9");
        assert!(facts.in_container && facts.counts_pressure);
        assert!(facts.has_capability(23) && facts.has_capability(14) && !facts.has_capability(21));
        assert_eq!(facts.open_files, Limit { soft: Some(1024), hard: Some(524_288) });
        assert_eq!(facts.locked_memory, Limit { soft: Some(8 << 20), hard: None });
        assert_eq!(facts.huge_pages.as_deref(), Some("madvise"));
        assert_eq!(facts.huge_pages_shared.as_deref(), Some("never"));
        assert_eq!(facts.huge_page_pools, [Pool { page: Bytes::mib(2), pages: 64 }]);
        assert_eq!(facts.swap, Bytes::mib(2));
        assert_eq!((facts.overcommit, facts.memfd_noexec), (Some(2), Some(1)));
        assert_eq!(facts.clock.as_deref(), Some("hpet"));
        assert_eq!(facts.calls, BTreeMap::new(), "nothing is tried on a machine of files");
    }

    #[test]
    fn a_bare_machine_has_facts_too() {
        let facts = Facts::gather(Sysroot(FakeSysroot::bare().path())).unwrap();
        assert!(!facts.in_container && !facts.counts_pressure);
        assert_eq!((facts.capabilities, facts.huge_pages, facts.scratch), (None, None, None));
    }

    #[test]
    fn what_this_machine_lets_us_do_was_tried() {
        let facts = Facts::gather(Sysroot::live()).unwrap();
        assert_eq!(facts.calls.len(), Call::ALL.len());
        assert_ne!(facts.memfd, Attempt::Untried);
        assert!(facts.rings.is_some());
        assert_ne!(facts.cold[0].dont_cache, Attempt::Untried);
        assert!(facts.storage.unwrap().is_writable.is_done());
    }
}
