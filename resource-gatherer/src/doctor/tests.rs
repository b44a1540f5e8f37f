//! Machines in every bad state, each a few changes to one on which all is right.

use std::collections::BTreeMap;

use rustix::io::Errno;
use tierfeed_core::units::Bytes;
use tierfeed_file_io::direct::Alignment;

use super::*;
use crate::inventory::{
    Allowed, CgroupMemory, DaxDevice, Inventory, Memory, Node,
    cgroup::Version,
    cxl::{CxlMemory, CxlRegion, CxlWindow},
    mount::Medium,
    node::MemoryKind,
    placement::Balancing,
};

const GIB: u64 = 1 << 30;
const EPERM: i32 = 1;
const EINVAL: i32 = 22;
const ENOSYS: i32 = 38;

/// A bare-metal node with two sockets and a CXL node, on which nothing is wrong.
fn healthy() -> Facts {
    let node = |id: u32, cpus: &[u32], kind| Node {
        id,
        kind,
        cpus: cpus.to_vec(),
        memory_total_bytes: 64 * GIB,
        memory_free_bytes: 60 * GIB,
        movable_percent: Some(0),
        ..Node::default()
    };
    let mut inventory = Inventory {
        memory: Memory {
            total_bytes: 192 * GIB,
            free_bytes: 180 * GIB,
            available_bytes: 180 * GIB,
        },
        nodes: vec![
            node(0, &[0, 1], MemoryKind::Dram),
            node(1, &[2, 3], MemoryKind::Dram),
            node(2, &[], MemoryKind::Cxl),
        ],
        dax: vec![dax("dax0.0", Some("kmem"), 2)],
        ..Inventory::default()
    };
    inventory.placement.balancing = Some(Balancing::Off);
    inventory.placement.demotion = Some(false);
    inventory.processor.is_virtual = Some(false);
    let directory = |path: &str, file_system: &str, medium| Directory {
        path: path.into(),
        file_system: file_system.to_owned(),
        medium,
        room: Some((Bytes(96 * GIB), Bytes(90 * GIB))),
        is_writable: Attempt::Done,
        direct: Attempt::Done,
    };
    Facts {
        inventory,
        kernel: "6.12.0".to_owned(),
        capabilities: Some(0),
        calls: Call::ALL.into_iter().map(|call| (call, Attempt::Done)).collect(),
        memfd: Attempt::Done,
        pidfd: Attempt::Done,
        rings: Some(Ok(())),
        huge_pages: Some("madvise".to_owned()),
        huge_pages_shared: Some("advise".to_owned()),
        counts_pressure: true,
        overcommit: Some(0),
        memfd_noexec: Some(0),
        clock: Some("tsc".to_owned()),
        cpus_online: 4,
        has_hwloc: true,
        scratch: Some(directory("/dev/shm", "tmpfs", Medium::Memory)),
        storage: Some(directory("/var/tmp", "xfs", Medium::SolidState)),
        cold: vec![cold_files()],
        transform_worker: Some(transform_worker()),
        ..Facts::default()
    }
}

fn transform_worker() -> TransformWorker {
    TransformWorker { made_row: Ok(()), has_landlock: true, threads: 3 }
}

fn cold_files() -> ColdFiles {
    ColdFiles {
        path: "/data".into(),
        file_system: "xfs".to_owned(),
        medium: Medium::SolidState,
        direct: Attempt::Done,
        alignment: Some(Alignment { memory: Bytes(512), offset: Bytes(4096) }),
        dont_cache: Attempt::Done,
        view: Attempt::Done,
    }
}

fn dax(name: &str, driver: Option<&str>, target_node: u32) -> DaxDevice {
    DaxDevice {
        name: name.to_owned(),
        kind: MemoryKind::Cxl,
        size_bytes: Some(64 * GIB),
        target_node: Some(target_node),
        driver: driver.map(str::to_owned),
        region: None,
    }
}

/// The only finding that is not all right after `spoil`.
#[track_caller]
fn only_finding(spoil: impl FnOnce(&mut Facts)) -> Finding {
    let mut facts = healthy();
    spoil(&mut facts);
    let mut bad: Vec<_> =
        diagnose(&facts).into_iter().filter(|finding| finding.state != State::Ok).collect();
    assert_eq!(bad.len(), 1, "{bad:#?}");
    bad.remove(0)
}

/// Checks that `spoil` alone makes one finding, in which `found` and a fix with `fix` stand.
#[track_caller]
fn check(spoil: impl FnOnce(&mut Facts), state: State, subject: &str, found: &str, fix: &str) {
    let finding = only_finding(spoil);
    assert_eq!((finding.subject, finding.state), (subject, state), "{finding:#?}");
    assert!(finding.found.contains(found), "{finding:#?}");
    let fixes = finding.fixes.iter().any(|it| it.setting.contains(fix));
    assert!(fixes || fix.is_empty(), "{finding:#?}");
    assert!(finding.consequence.is_some_and(|it| !it.is_empty()), "{finding:#?}");
}

use State::{Degraded, Missing};

#[test]
fn on_a_healthy_node_all_is_right_and_nothing_is_to_fix() {
    for finding in diagnose(&healthy()) {
        assert_eq!(finding.state, State::Ok, "{finding:#?}");
        assert_eq!((finding.consequence, finding.fixes.len()), (None, 0), "{finding:#?}");
    }
}

#[test]
fn each_subject_is_judged_once() {
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for finding in diagnose(&healthy()) {
        *count.entry(finding.subject).or_default() += 1;
    }
    assert!(count.values().all(|times| *times == 1), "{count:?}");
    assert!(count.len() >= 30, "{count:?}");
}

#[test]
fn calls_that_a_container_denies_need_a_capability() {
    let mut facts = healthy();
    facts.in_container = true;
    for call in Call::ALL {
        facts.calls.insert(call, Attempt::Refused(EPERM));
    }
    let findings = diagnose(&facts);
    let of = |subject: &str| findings.iter().find(|it| it.subject == subject).unwrap();
    for (subject, state) in [
        ("memory policies", Missing),
        ("CAP_SYS_NICE", Missing),
        ("placement read back", Degraded),
        ("preferred nodes", Degraded),
    ] {
        let finding = of(subject);
        assert_eq!(finding.state, state, "{finding:#?}");
        let fix = Fix { place: FixPlace::Container, setting: "--cap-add SYS_NICE".to_owned() };
        assert_eq!(finding.fixes.first(), Some(&fix), "{finding:#?}");
        assert!(finding.found.contains("EPERM") || subject == "CAP_SYS_NICE", "{finding:#?}");
    }
}

#[test]
fn the_capability_is_not_missed_where_the_calls_work() {
    let mut facts = healthy();
    let of = |facts: &Facts| {
        diagnose(facts).into_iter().find(|it| it.subject == "CAP_SYS_NICE").unwrap()
    };
    assert!(of(&facts).found.contains("not needed"));
    facts.capabilities = Some(1 << 23);
    assert_eq!(of(&facts).found, "held");
}

#[test]
fn outside_of_containers_the_unit_comes_first() {
    let finding = only_finding(|it| {
        it.calls.insert(Call::MovePages, Attempt::Refused(EPERM));
        it.capabilities = Some(1 << 23);
    });
    assert_eq!(finding.fixes[0].place, FixPlace::Systemd, "{finding:#?}");
}

#[test]
fn a_kernel_that_lacks_calls_is_told_from_a_filter() {
    let refuse = |call, errno| {
        move |it: &mut Facts| {
            it.calls.insert(call, Attempt::Refused(errno));
        }
    };
    check(refuse(Call::PreferredMany, EINVAL), Degraded, "preferred nodes", "EINVAL", "Linux 5.15");
    check(
        refuse(Call::WeightedInterleave, EINVAL),
        Degraded,
        "weighted interleave",
        "EINVAL",
        "Linux 6.9",
    );
    check(refuse(Call::Mbind, ENOSYS), Missing, "memory policies", "mbind refused", "CONFIG_NUMA");
    check(
        refuse(Call::GetMempolicy, EPERM),
        Degraded,
        "memory policies",
        "get_mempolicy",
        "SYS_NICE",
    );
}

#[test]
fn rings_are_missed_with_the_fix_for_the_reason() {
    let rings = |reason| move |it: &mut Facts| it.rings = Some(Err(reason));
    let subject = "io_uring";
    let sysctl = "sysctl -w kernel.io_uring_disabled=0";
    check(
        rings(Unavailable::Disabled { value: 2 }),
        Degraded,
        subject,
        "io_uring_disabled is 2",
        sysctl,
    );
    check(rings(Unavailable::Filtered), Degraded, subject, "seccomp", "io_uring_setup");
    check(
        rings(Unavailable::NotInKernel),
        Degraded,
        subject,
        "not in this kernel",
        "CONFIG_IO_URING",
    );
    check(rings(Unavailable::TooOld), Degraded, subject, "5.6", "5.6");
    check(rings(Unavailable::LockedMemory), Degraded, subject, "locked", "ulimit -l unlimited");
    check(rings(Unavailable::Setup(Errno::MFILE)), Degraded, subject, "Too many open files", "");
}

#[test]
fn memfds_and_pidfds_are_tried() {
    check(
        |it| {
            it.memfd = Attempt::Refused(EPERM);
            it.memfd_noexec = Some(2);
        },
        Missing,
        "sealed memfds",
        "vm.memfd_noexec is 2",
        "vm.memfd_noexec=1",
    );
    check(|it| it.pidfd = Attempt::Refused(ENOSYS), Degraded, "pidfds", "ENOSYS", "Linux 5.3");
    check(|it| it.pidfd = Attempt::Refused(EPERM), Degraded, "pidfds", "EPERM", "pidfd_open");
}

#[test]
fn a_small_limit_of_locked_memory_is_named_with_its_numbers() {
    let small = |it: &mut Facts| it.locked_memory = Limit { soft: Some(8 << 20), hard: None };
    check(small, Degraded, "locked memory", "8 MiB, at most unlimited", "ulimit -l unlimited");
    let finding = only_finding(small);
    for fix in ["limits.d", "LimitMEMLOCK=infinity", "--ulimit memlock=-1"] {
        assert!(finding.fixes.iter().any(|it| it.setting.contains(fix)), "{fix}: {finding:#?}");
    }
    let bounded = |it: &mut Facts| {
        it.locked_memory = Limit { soft: Some(64 << 10), hard: Some(64 << 10) };
    };
    let finding = only_finding(bounded);
    assert!(finding.fixes.iter().all(|it| it.place != FixPlace::Shell), "a shell cannot raise it");
}

#[test]
fn a_capability_lifts_the_limit_of_locked_memory() {
    let mut facts = healthy();
    facts.locked_memory = Limit { soft: Some(8 << 20), hard: Some(8 << 20) };
    facts.capabilities = Some(1 << 14);
    assert!(diagnose(&facts).iter().all(|finding| finding.state == State::Ok));
}

#[test]
fn few_open_files_matter_only_if_they_cannot_be_raised() {
    let limit = |hard| move |it: &mut Facts| it.open_files = Limit { soft: Some(1024), hard };
    check(limit(Some(1024)), Degraded, "open files", "1024", "LimitNOFILE=65536");
    let mut facts = healthy();
    limit(Some(524_288))(&mut facts);
    assert!(diagnose(&facts).iter().all(|finding| finding.state == State::Ok));
}

#[test]
fn a_cpuset_that_denies_nodes_or_cpus_is_named() {
    let allow = |nodes: Option<Vec<u32>>, cpus: Option<Vec<u32>>| {
        move |it: &mut Facts| it.inventory.allowed = Allowed { nodes, cpus }
    };
    check(
        allow(Some(vec![0, 2]), None),
        Degraded,
        "nodes allowed",
        "memory of 0,2, not of 1",
        "--cpuset-mems 0,1,2",
    );
    check(allow(None, Some(vec![0])), Degraded, "CPUs allowed", "1 of 4", "--cpuset-cpus 0-3");
}

#[test]
fn little_free_memory_is_judged_by_what_tierfeed_may_take_of_it() {
    let free = |bytes| {
        move |it: &mut Facts| {
            it.inventory.memory.total_bytes = 16 * GIB;
            it.inventory.memory.available_bytes = bytes;
        }
    };
    let little = "of which tierfeed takes at most 192 MiB";
    check(free(GIB / 4), Missing, "free memory", little, "prefetch: { batches: 2 }");
    check(free(GIB), Degraded, "free memory", "takes at most 768 MiB", "reserve: 60 %");
}

fn group(limit: u64) -> CgroupMemory {
    CgroupMemory {
        version: Version::V2,
        path: "/sys/fs/cgroup/job".into(),
        limit_bytes: Some(limit),
        usage_bytes: GIB,
        reclaimable_bytes: 0,
    }
}

#[test]
fn a_tight_control_group_is_named_and_a_wide_one_is_not() {
    check(
        |it| it.inventory.cgroup = Some(group(40 * GIB)),
        Degraded,
        "limit of the control group",
        "40 GiB of 192 GiB, 1 GiB used (/sys/fs/cgroup/job)",
        "MemoryMax=",
    );
    let mut facts = healthy();
    for limit in [150 * GIB, 500 * GIB] {
        facts.inventory.cgroup = Some(group(limit));
        assert!(diagnose(&facts).iter().all(|finding| finding.state == State::Ok));
    }
}

#[test]
fn pages_that_are_small_or_set_apart_are_named() {
    let never = Some("never".to_owned());
    let shared = never.clone();
    let thp = "/sys/kernel/mm/transparent_hugepage";
    check(|it| it.huge_pages = never, Degraded, "huge pages", "never", &format!("{thp}/enabled"));
    check(
        |it| it.huge_pages_shared = shared,
        Degraded,
        "huge pages for memfds",
        "never",
        &format!("echo advise > {thp}/shmem_enabled"),
    );
    check(
        |it| it.huge_pages = None,
        Degraded,
        "huge pages",
        "not in",
        "CONFIG_TRANSPARENT_HUGEPAGE",
    );
    let pool = |pages| vec![Pool { page: Bytes(GIB), pages }];
    let large = pool(32);
    check(
        |it| it.huge_page_pools = large,
        Degraded,
        "pools of huge pages",
        "32 GiB set apart: 32 of 1 GiB",
        "vm.nr_hugepages=0",
    );
    // Not in one line that they are small, and that they are huge in the next.
    let mut small = healthy();
    (small.huge_pages_shared, small.huge_page_pools) = (Some("never".to_owned()), Vec::new());
    assert!(diagnose(&small).iter().all(|it| !it.found.contains("in transparent huge pages")));
    let mut facts = healthy();
    facts.huge_page_pools = pool(1);
    assert!(diagnose(&facts).iter().all(|finding| finding.state == State::Ok));
}

#[test]
fn what_the_kernel_does_with_memory_is_named() {
    check(|it| it.swap = Bytes(GIB), Degraded, "swap", "1 GiB", "swapoff -a");
    check(|it| it.counts_pressure = false, Missing, "memory pressure (PSI)", "missing", "psi=1");
    check(|it| it.overcommit = Some(2), Degraded, "overcommit", "is 2", "vm.overcommit_memory=0");
    for (mode, said) in [
        (Balancing::Nodes, "between nodes"),
        (Balancing::Tiers, "between tiers"),
        (Balancing::NodesAndTiers, "between nodes and tiers"),
    ] {
        check(
            |it| it.inventory.placement.balancing = Some(mode),
            Degraded,
            "NUMA balancing",
            said,
            "sysctl -w kernel.numa_balancing=0",
        );
    }
    check(
        |it| it.inventory.placement.demotion = Some(true),
        Degraded,
        "demotion by the kernel",
        "on",
        "echo false > /sys/kernel/mm/numa/demotion_enabled",
    );
}

#[test]
fn balancing_and_demotion_are_harmless_on_one_node() {
    let mut facts = healthy();
    facts.inventory.nodes.truncate(1);
    facts.inventory.dax.clear();
    facts.inventory.placement.balancing = Some(Balancing::Nodes);
    facts.inventory.placement.demotion = Some(true);
    let findings = diagnose(&facts);
    assert!(findings.iter().all(|it| it.state == State::Ok), "{findings:#?}");
}

#[test]
fn a_host_without_cxl_memory_misses_nothing() {
    let mut facts = healthy();
    facts.inventory.nodes.truncate(2);
    facts.inventory.dax.clear();
    let findings = diagnose(&facts);
    assert!(findings.iter().all(|it| it.state == State::Ok), "{findings:#?}");
    let cxl = findings.iter().find(|it| it.subject == "CXL memory").unwrap();
    assert!(cxl.found.contains("a job may play it"), "{cxl:#?}");
}

#[test]
fn memory_of_gpus_is_named_and_nothing_to_mend() {
    let mut facts = healthy();
    facts.inventory.nodes[2].kind = MemoryKind::Gpu;
    facts.inventory.dax.clear();
    let findings = diagnose(&facts);
    assert!(findings.iter().all(|it| it.state == State::Ok), "{findings:#?}");
    let found = |subject| &findings.iter().find(|it| it.subject == subject).unwrap().found;
    assert_eq!(found("memory of GPUs"), "node 2 (64 GiB), never a tier");
    assert!(found("CXL memory").starts_with("none"));
}

#[test]
fn memory_of_an_unknown_kind_is_used_by_its_number() {
    check(
        |it| {
            it.inventory.nodes[2].kind = MemoryKind::CpuLess;
            it.inventory.dax.clear();
        },
        Degraded,
        "memory of an unknown kind",
        "node 2 (64 GiB) has no CPUs",
        "tiers: { cxl-memory: { numa_nodes: [2] } }",
    );
}

#[test]
fn a_cxl_device_that_nobody_made_a_region_of_is_named() {
    let memory = |name: &str| CxlMemory { name: name.to_owned(), ram_bytes: Some(128 * GIB) };
    let region = CxlRegion {
        name: "region0".to_owned(),
        memories: vec!["mem0".to_owned()],
        size_bytes: None,
        numa_node: Some(2),
    };
    check(
        |it| {
            it.inventory.cxl.memories = vec![memory("mem0"), memory("mem1")];
            it.inventory.cxl.regions = vec![region];
            it.inventory.cxl.windows =
                vec![CxlWindow { name: "decoder0.1".to_owned(), takes_ram: true }];
        },
        Missing,
        "CXL devices without a region",
        "mem1 with 128 GiB",
        "cxl create-region -m -t ram -d decoder0.1 mem1",
    );
}

#[test]
fn a_dax_device_that_is_no_memory_is_named_with_its_command() {
    for driver in [Some("device_dax"), None] {
        check(
            |it| it.inventory.dax.push(dax("dax1.0", driver, 3)),
            Missing,
            "DAX devices",
            driver.unwrap_or("no driver"),
            "daxctl reconfigure-device --mode=system-ram --no-movable dax1.0",
        );
    }
    check(
        |it| it.inventory.dax.push(dax("dax1.0", Some("kmem"), 3)),
        Missing,
        "DAX devices",
        "node 3 has no memory",
        "daxctl online-memory --no-movable dax1.0",
    );
}

#[test]
fn movable_cxl_memory_is_named_with_its_device() {
    check(
        |it| it.inventory.nodes[2].movable_percent = Some(100),
        Degraded,
        "movable memory",
        "100 % of node 2",
        "reconfigure-device --mode=system-ram --no-movable --force dax0.0",
    );
    check(
        |it| {
            it.inventory.nodes[2].movable_percent = Some(100);
            it.inventory.dax.clear();
        },
        Degraded,
        "movable memory",
        "100 %",
        "auto_online_blocks",
    );
    let mut facts = healthy();
    facts.inventory.nodes[0].movable_percent = Some(30);
    assert!(diagnose(&facts).iter().all(|finding| finding.state == State::Ok));
}

fn scratch(change: impl FnOnce(&mut Directory)) -> impl FnOnce(&mut Facts) {
    move |it| change(it.scratch.as_mut().unwrap())
}

fn storage(change: impl FnOnce(&mut Directory)) -> impl FnOnce(&mut Facts) {
    move |it| change(it.storage.as_mut().unwrap())
}

#[test]
fn a_tiny_or_absent_ram_disk_is_named() {
    let subject = "RAM disk";
    let tiny = Some((Bytes::mib(64), Bytes::mib(64)));
    check(scratch(|it| it.room = tiny), Degraded, subject, "of 64 MiB free", "--shm-size 98304m");
    check(|it| it.scratch = None, Missing, subject, "no /dev/shm", "mount -t tmpfs");
    check(
        scratch(|it| {
            it.medium = Medium::SolidState;
            it.file_system = "ext4".to_owned();
        }),
        Missing,
        subject,
        "/dev/shm on ext4",
        "mount -t tmpfs",
    );
    check(
        scratch(|it| it.is_writable = Attempt::Refused(EPERM)),
        Missing,
        subject,
        "refused with EPERM",
        "chmod 1777",
    );
}

#[test]
fn a_process_that_may_mount_needs_no_ram_disk_that_is_there() {
    let mut facts = healthy();
    (facts.capabilities, facts.scratch) = (Some(1 << 21), None);
    let findings = diagnose(&facts);
    let finding = findings.iter().find(|finding| finding.subject == "RAM disk").unwrap();
    assert_eq!((finding.state, finding.consequence), (State::Ok, None), "{finding:#?}");
    assert!(finding.found.contains("mounts one of its own"), "{finding:#?}");
}

#[test]
fn storage_that_is_none_is_named() {
    let subject = "storage";
    let volume = "-v /nvme/tierfeed:/var/tmp";
    let overlay = storage(|it| {
        it.file_system = "overlay".to_owned();
        it.medium = Medium::Other;
    });
    check(overlay, Degraded, subject, "on overlay", volume);
    check(storage(|it| it.medium = Medium::Memory), Degraded, subject, "/var/tmp", volume);
    check(storage(|it| it.medium = Medium::Network), Degraded, subject, "/var/tmp", volume);
    let full = Some((Bytes(GIB), Bytes::mib(100)));
    check(storage(|it| it.room = full), Degraded, subject, "100 MiB of 1 GiB free", volume);
    check(storage(|it| it.is_writable = Attempt::Refused(30)), Missing, subject, "EROFS", volume);
    check(
        storage(|it| it.direct = Attempt::Refused(EINVAL)),
        Degraded,
        "direct I/O",
        "refused with EINVAL",
        volume,
    );
    let mut facts = healthy();
    facts.storage = None;
    let findings = diagnose(&facts);
    assert!(findings.iter().any(|it| it.subject == subject && it.state == Missing));
}

#[test]
fn a_folder_for_sockets_that_is_not_ours_is_named() {
    let folder =
        |is_ours| Some(SocketFolder { path: "/tmp/tierfeed-7".into(), is_ours, mode: 0o777 });
    check(
        |it| it.sockets = folder(false),
        Degraded,
        "folder for sockets",
        "/tmp/tierfeed-7 with mode 777 belongs to somebody else",
        "rm -r /tmp/tierfeed-7",
    );
    let mut facts = healthy();
    facts.sockets = folder(true);
    assert!(diagnose(&facts).iter().all(|finding| finding.state == State::Ok));
}

#[test]
fn the_host_below_is_named() {
    let clock = Some("hpet".to_owned());
    check(|it| it.clock = clock, Degraded, "clock", "hpet", "clocksource=tsc");
    check(
        |it| it.inventory.processor.is_virtual = Some(true),
        Degraded,
        "hypervisor",
        "below this kernel",
        "",
    );
    check(|it| it.has_hwloc = false, Degraded, "topology by hwloc", "not built in", "libhwloc-dev");
}

#[test]
fn nothing_known_is_nothing_wrong_with_calls() {
    let findings = diagnose(&Facts::default());
    let of = |subject: &str| findings.iter().find(|it| it.subject == subject).unwrap().state;
    for subject in ["memory policies", "io_uring", "sealed memfds", "pidfds", "clock"] {
        assert_eq!(of(subject), State::Ok, "{subject}");
    }
}

#[test]
fn cold_files_say_how_they_are_read_and_what_direct_reads_ask_for() {
    let found = |facts: &Facts| {
        let all = diagnose(facts);
        all.into_iter().find(|finding| finding.subject == "cold reads").unwrap().found
    };
    let mut facts = healthy();
    assert_eq!(
        found(&facts),
        "/data on xfs: io_uring past the page cache where samples share files, \
         memory at multiples of 512 B, offsets of 4 KiB"
    );
    facts.rings = Some(Err(Unavailable::Disabled { value: 2 }));
    assert_eq!(found(&facts), "/data on xfs: threads through the page cache");
    facts.cold = vec![ColdFiles { direct: Attempt::Untried, ..cold_files() }];
    assert_eq!(found(&facts), "/data on xfs: no file to try");
}

#[test]
fn a_dataset_that_cannot_be_read_directly_is_named_with_its_fix() {
    let refused = |file_system: &str, medium| {
        let (direct, file_system) = (Attempt::Refused(EINVAL), file_system.to_owned());
        move |it: &mut Facts| {
            it.cold = vec![ColdFiles { file_system, medium, direct, ..cold_files() }];
        }
    };
    let layered = refused("overlay", Medium::Other);
    check(layered, Degraded, "cold reads", "O_DIRECT refused with EINVAL", "-v /data:/data");
    check(refused("9p", Medium::Network), Degraded, "cold reads", "/data on 9p", "ext4 or xfs");
    let mut facts = healthy();
    refused("tmpfs", Medium::Memory)(&mut facts);
    assert!(diagnose(&facts).iter().all(|finding| finding.state == State::Ok));
}

#[test]
fn what_the_kernel_or_the_file_system_lacks_for_cold_files_is_told_apart() {
    const EOPNOTSUPP: i32 = 95;
    let spared = |kernel: &str, file_system: &str| {
        let (kernel, file_system) = (kernel.to_owned(), file_system.to_owned());
        move |it: &mut Facts| {
            it.kernel = kernel;
            let dont_cache = Attempt::Refused(EOPNOTSUPP);
            it.cold = vec![ColdFiles { file_system, dont_cache, ..cold_files() }];
        }
    };
    let subject = "page cache spared";
    check(spared("6.12.9", "xfs"), Degraded, subject, "EOPNOTSUPP", "Linux 6.14");
    check(spared("6.15.0", "overlay"), Degraded, subject, "RWF_DONTCACHE", "-v /data:/data");
    let seen = |errno| {
        move |it: &mut Facts| {
            it.cold = vec![ColdFiles { view: Attempt::Refused(errno), ..cold_files() }];
        }
    };
    check(seen(ENOSYS), Degraded, "page cache seen", "cachestat refused", "Linux 6.5");
    check(seen(EPERM), Degraded, "page cache seen", "EPERM", "allows cachestat");
}

#[test]
fn a_transform_worker_that_cannot_work_is_told_from_one_that_is_not_confined() {
    let worker = |change: fn(&mut TransformWorker)| {
        move |facts: &mut Facts| facts.transform_worker.iter_mut().for_each(change)
    };
    let finding = only_finding(worker(|it| it.made_row = Err("it ended by SIGSYS".to_owned())));
    assert_eq!((finding.subject, finding.state), ("transform worker", State::Missing));
    assert_eq!(finding.found, "it ended by SIGSYS");
    let finding = only_finding(worker(|it| it.has_landlock = false));
    assert_eq!((finding.subject, finding.state), ("transform worker confined", State::Degraded));
    assert!(finding.fixes[0].setting.contains("lsm=landlock"), "{finding:?}");
}
