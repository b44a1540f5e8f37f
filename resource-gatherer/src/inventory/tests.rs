mod machines;

use std::path::Path;

use super::{
    attributes::Rated,
    cgroup::Version,
    mount::Medium,
    node::{Distance, MemoryKind},
    *,
};
use crate::tests_support::FakeSysroot;

fn read(machine: &FakeSysroot) -> Inventory {
    Inventory::read(Sysroot(machine.path())).unwrap()
}

fn node(inventory: &Inventory, id: u32) -> &Node {
    inventory.nodes.iter().find(|node| node.id == id).unwrap()
}

#[test]
fn a_single_node_is_read_with_its_caches() {
    let inventory = read(&FakeSysroot::single_node());
    assert_eq!(inventory.host, "fake");
    let memory = &inventory.memory;
    assert_eq!((memory.total_bytes, memory.available_bytes), (4096 << 10, 2048 << 10));
    let only = node(&inventory, 0);
    assert_eq!((only.kind, &only.cpus[..]), (MemoryKind::Dram, &[0, 1][..]));
    assert_eq!((only.memory_total_bytes, only.memory_free_bytes), (4096 << 10, 2048 << 10));
    assert_eq!(only.rated, None);
    let levels: Vec<u8> = inventory.caches.iter().map(|cache| cache.level).collect();
    assert_eq!(levels, [1, 1, 3], "no cache for instructions, a shared cache once");
    assert_eq!(inventory.last_level_cache_bytes(only), 32 << 20);
    assert_eq!(inventory.best_initiator(only).unwrap().id, 0);
    assert!(!inventory.hwloc, "hwloc knows this machine only");
}

#[test]
fn a_kernel_without_numa_has_one_node() {
    let machine = FakeSysroot::bare();
    machine.write("sys/devices/system/cpu/online", "0-3\n");
    let inventory = read(&machine);
    assert_eq!(inventory.nodes.len(), 1);
    assert_eq!(inventory.nodes[0].cpus, [0, 1, 2, 3]);
    assert_eq!(inventory.nodes[0].memory_total_bytes, 4096 << 10);
}

#[test]
fn the_only_node_has_all_memory_of_the_host() {
    let machine = FakeSysroot::single_node();
    machine.write("proc/meminfo", "MemTotal: 9000 kB\nMemFree: 7000 kB\n");
    let inventory = read(&machine);
    assert_eq!(inventory.nodes[0].memory_total_bytes, 9000 << 10);
    assert_eq!(inventory.nodes[0].memory_free_bytes, 7000 << 10);
    assert_eq!(inventory.memory.available_bytes, 7000 << 10, "the kernel names no MemAvailable");
}

#[test]
fn a_cpu_less_node_is_reached_from_the_best_cpu_that_the_firmware_names() {
    let inventory = read(&FakeSysroot::cxl_node());
    let cxl = node(&inventory, 2);
    assert_eq!((cxl.kind, cxl.cpus.len()), (MemoryKind::CpuLess, 0));
    let rated = cxl.rated.as_ref().unwrap();
    assert_eq!(rated.initiators, [1], "access1, not access0");
    assert_eq!(rated.read_latency_ns, Some(250));
    assert_eq!(rated.read_bytes_per_s, Some(51_200 << 20));
    assert_eq!(inventory.best_initiator(cxl).unwrap().id, 1);
}

#[test]
fn access0_counts_where_access1_is_missing() {
    let machine = FakeSysroot::single_node();
    machine.rate(0, "access0", 0, [120, 1000]);
    assert_eq!(node(&read(&machine), 0).rated.as_ref().unwrap().read_latency_ns, Some(120));
}

#[test]
fn the_value_0_means_unknown() {
    let machine = FakeSysroot::single_node();
    machine.rate(0, "access1", 0, [0, 1000]);
    let rated = node(&read(&machine), 0).rated.clone().unwrap();
    assert_eq!(
        rated,
        Rated {
            initiators: vec![0],
            read_bytes_per_s: Some(1000 << 20),
            write_bytes_per_s: Some(1000 << 20),
            ..Rated::default()
        }
    );
    machine.rate(0, "access0", 0, [70, 9]);
    assert_eq!(node(&read(&machine), 0).rated.clone().unwrap(), rated, "access1 still says more");
    let unknown = FakeSysroot::single_node();
    unknown.rate(0, "access1", 0, [0, 0]);
    assert_eq!(node(&read(&unknown), 0).rated, None);
}

#[test]
fn distances_are_read_from_the_reader_and_255_is_unreachable() {
    let machine = FakeSysroot::bare();
    machine.nodes(&[0, 1, 2], &[&[10, 21, 60], &[21, 10, 50], &[255, 255, 10]]);
    machine.node(0, "0", 4096);
    machine.node(1, "1", 4096);
    machine.node(2, "", 4096);
    let inventory = read(&machine);
    let far = node(&inventory, 2);
    assert_eq!(far.distances[0], Distance { to: 0, relative: None });
    assert_eq!(node(&inventory, 1).distance_to(2), Some(50));
    assert_eq!(inventory.best_initiator(far).unwrap().id, 1, "50 from node 1, 60 from node 0");
}

#[test]
fn numbers_of_nodes_may_have_gaps() {
    let machine = FakeSysroot::bare();
    machine.nodes(&[0, 1, 3], &[&[10, 20, 30], &[20, 10, 40], &[30, 40, 10]]);
    for (id, cpus) in [(0, "0"), (1, "1"), (3, "")] {
        machine.node(id, cpus, 4096);
    }
    let inventory = read(&machine);
    let ids: Vec<u32> = inventory.nodes.iter().map(|node| node.id).collect();
    assert_eq!(ids, [0, 1, 3]);
    assert_eq!(node(&inventory, 0).distance_to(3), Some(30));
    assert_eq!(node(&inventory, 0).distance_to(2), None);
}

#[test]
fn nodes_are_found_where_online_is_missing() {
    let machine = FakeSysroot::bare();
    machine.node(0, "0", 4096);
    machine.node(5, "1", 4096);
    let ids: Vec<u32> = read(&machine).nodes.iter().map(|node| node.id).collect();
    assert_eq!(ids, [0, 5]);
}

#[test]
fn a_dax_device_tells_what_a_cpu_less_node_is() {
    let kind = |place: &str| {
        let machine = FakeSysroot::cxl_node();
        let device = format!("sys/devices/{place}/dax0.0");
        machine.write(&format!("{device}/target_node"), "2\n");
        machine.link("sys/bus/dax/devices/dax0.0", &format!("../../../devices/{place}/dax0.0"));
        node(&read(&machine), 2).kind
    };
    assert_eq!(kind("platform/ACPI0017:00/root0/region0/dax_region0"), MemoryKind::Cxl);
    assert_eq!(kind("LNXSYSTM:00/ACPI0012:00/ndbus0/region0"), MemoryKind::Persistent);
    assert_eq!(kind("platform/hmem.0"), MemoryKind::SpecificPurpose);
    assert_eq!(kind("platform/strange"), MemoryKind::CpuLess);
}

#[test]
fn memory_side_caches_are_counted() {
    let machine = FakeSysroot::single_node();
    machine.write("sys/devices/system/node/node0/memory_side_cache/index1/size", "1048576\n");
    assert_eq!(node(&read(&machine), 0).memory_side_cache_bytes, 1 << 20);
    let absurd = u64::MAX.to_string();
    machine.write("sys/devices/system/node/node0/memory_side_cache/index2/size", &absurd);
    assert_eq!(node(&read(&machine), 0).memory_side_cache_bytes, u64::MAX);
}

#[test]
fn mounts_know_their_medium() {
    let machine = FakeSysroot::bare();
    machine.write(
        "proc/self/mountinfo",
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
         2 1 0:30 / /data rw - btrfs /dev/nvme0n1p2 rw\n\
         3 1 0:31 / /dev/shm rw - tmpfs tmpfs rw\n\
         4 1 0:32 / /cold rw - nfs4 server:/x rw\n\
         5 1 0:33 / /odd rw - overlay overlay rw\n",
    );
    machine.write("sys/devices/pci/sda/queue/rotational", "1\n");
    machine.write("sys/devices/pci/sda/sda1/partition", "1\n");
    machine.link("sys/dev/block/8:1", "../../devices/pci/sda/sda1");
    machine.write("sys/devices/pci/nvme0n1/queue/rotational", "0\n");
    machine.write("sys/devices/pci/nvme0n1/nvme0n1p2/partition", "2\n");
    machine.link("sys/class/block/nvme0n1p2", "../../devices/pci/nvme0n1/nvme0n1p2");
    let inventory = read(&machine);
    let medium = |path| mount::holding(&inventory.mounts, Path::new(path)).unwrap().medium;
    assert_eq!(medium("/home"), Medium::Rotating);
    assert_eq!(medium("/data/set"), Medium::SolidState);
    assert_eq!(medium("/dev/shm"), Medium::Memory);
    assert_eq!(medium("/cold"), Medium::Network);
    assert_eq!(medium("/odd"), Medium::Other);
}

const V2_MOUNT: &str = "1 0 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

#[test]
fn the_tightest_level_of_cgroup_v2_counts() {
    let machine = FakeSysroot::bare();
    machine.write("proc/self/mountinfo", V2_MOUNT);
    machine.write("proc/self/cgroup", "0::/pod/job\n");
    let group = "sys/fs/cgroup/pod";
    machine.write(&format!("{group}/memory.max"), "1000000\n");
    machine.write(&format!("{group}/memory.current"), "900000\n");
    machine.write(&format!("{group}/memory.stat"), "anon 1\ninactive_file 300000\n");
    machine.write(&format!("{group}/job/memory.max"), "max\n");
    machine.write(&format!("{group}/job/memory.current"), "5\n");
    let found = read(&machine).cgroup.unwrap();
    assert_eq!(found.version, Version::V2);
    assert!(found.path.ends_with("sys/fs/cgroup/pod"));
    assert_eq!(found.headroom_bytes(), Some(400_000));
}

#[test]
fn no_limit_is_no_headroom_to_speak_of() {
    let machine = FakeSysroot::bare();
    machine.write("proc/self/mountinfo", V2_MOUNT);
    machine.write("proc/self/cgroup", "0::/job\n");
    machine.write("sys/fs/cgroup/job/memory.max", "max\n");
    machine.write("sys/fs/cgroup/job/memory.current", "5\n");
    let found = read(&machine).cgroup.unwrap();
    assert_eq!((found.limit_bytes, found.headroom_bytes(), found.usage_bytes), (None, None, 5));
}

const V1_MOUNTS: &str = "1 0 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
    2 0 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
    3 0 0:34 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

#[test]
fn on_a_hybrid_system_the_limit_is_in_cgroup_v1() {
    let machine = FakeSysroot::bare();
    machine.write("proc/self/mountinfo", V1_MOUNTS);
    machine.write("proc/self/cgroup", "5:cpuset:/x\n4:memory:/slurm/job_7\n0::/\n");
    let group = "sys/fs/cgroup/memory/slurm/job_7";
    machine.write(&format!("{group}/memory.limit_in_bytes"), "1000000\n");
    machine.write(&format!("{group}/memory.usage_in_bytes"), "600000\n");
    machine.write(&format!("{group}/memory.stat"), "inactive_file 1\ntotal_inactive_file 100000\n");
    let found = read(&machine).cgroup.unwrap();
    assert_eq!((found.version, found.headroom_bytes()), (Version::V1, Some(500_000)));
}

#[test]
fn the_largest_number_of_cgroup_v1_is_no_limit() {
    let machine = FakeSysroot::bare();
    machine.write("proc/self/mountinfo", V1_MOUNTS);
    machine.write("proc/self/cgroup", "4:memory:/\n");
    let group = "sys/fs/cgroup/memory";
    machine.write(&format!("{group}/memory.limit_in_bytes"), "9223372036854771712\n");
    machine.write(&format!("{group}/memory.usage_in_bytes"), "7\n");
    assert_eq!(read(&machine).cgroup.unwrap().limit_bytes, None);
}

#[test]
fn in_a_container_the_mount_is_the_group() {
    let machine = FakeSysroot::bare();
    machine.write(
        "proc/self/mountinfo",
        "1 0 0:33 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
    );
    machine.write("proc/self/cgroup", "4:memory:/docker/abc\n");
    machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "4096\n");
    machine.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "96\n");
    assert_eq!(read(&machine).cgroup.unwrap().headroom_bytes(), Some(4000));
}

#[test]
fn a_broken_file_is_named() {
    let machine = FakeSysroot::single_node();
    machine.write("sys/devices/system/node/node0/distance", "10 20\n");
    let error = Inventory::read(Sysroot(machine.path())).unwrap_err().to_string();
    assert!(error.contains("node0/distance") && error.contains("10 20"), "{error}");
    let machine = FakeSysroot::bare();
    machine.write("proc/meminfo", "nothing\n");
    assert!(Inventory::read(Sysroot(machine.path())).is_err());
    let nowhere = tempfile::tempdir().unwrap();
    let error = Inventory::read(Sysroot(nowhere.path())).unwrap_err();
    assert!(matches!(error, ReadError::Unreadable { .. }));
}

#[test]
fn this_machine_can_be_read() {
    let inventory = Inventory::read(Sysroot::live()).unwrap();
    assert!(inventory.memory_nodes().count() > 0);
    assert_eq!(inventory.hwloc, cfg!(feature = "hwloc"));
    let json = serde_json::to_string(&inventory).unwrap();
    assert_eq!(serde_json::from_str::<Inventory>(&json).unwrap(), inventory);
}

#[cfg(feature = "hwloc")]
#[test]
fn hwloc_fills_caches_that_sysfs_does_not_tell() {
    let mut inventory = Inventory::read(Sysroot::live()).unwrap();
    let from_sysfs = std::mem::take(&mut inventory.caches);
    let inventory = hwloc::complete(inventory);
    assert!(!inventory.caches.is_empty());
    if let Some(last) = from_sysfs.last() {
        assert_eq!(inventory.caches.last(), Some(last));
    }
}
