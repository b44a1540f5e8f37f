//! What must be found on the machines in `fixtures/`.

use std::{path::Path, process::Command};

use tierfeed_core::tier::Kind;

use crate::{
    inventory::{
        Allowed, Inventory, Node, Placement,
        cgroup::Version,
        mount::{self, Medium, Mount},
        node::MemoryKind,
        placement::{Balancing, Weight},
    },
    sysroot::Sysroot,
    tests_support::{
        FakeSysroot,
        tree::{self, Entry},
    },
};

fn machine(name: &str) -> Inventory {
    Inventory::read(Sysroot(FakeSysroot::machine(name).path())).unwrap()
}

fn node(inventory: &Inventory, id: u32) -> &Node {
    inventory.nodes.iter().find(|node| node.id == id).unwrap()
}

fn mount<'a>(inventory: &'a Inventory, path: &str) -> &'a Mount {
    mount::holding(&inventory.mounts, Path::new(path)).unwrap()
}

#[test]
fn the_processor_and_what_is_below_it_are_told() {
    let epyc = machine("epyc-9224-cxl").processor;
    assert_eq!(epyc.model.as_deref(), Some("AMD EPYC 9224 24-Core Processor"));
    assert_eq!((epyc.cpus_online, epyc.is_virtual), (96, Some(false)));
    assert_eq!(machine("asymmetric").processor.is_virtual, Some(true));
    let arm = machine("container").processor;
    assert_eq!((arm.model.as_deref(), arm.is_virtual), (Some("0xd40"), None), "by numbers");
}

#[test]
fn without_hmat_the_column_of_distances_finds_the_socket_of_a_cxl_node() {
    let inventory = machine("epyc-9224-cxl");
    let cxl = node(&inventory, 4);
    assert_eq!((cxl.kind, &cxl.rated), (MemoryKind::Cxl, &None));
    assert_eq!(cxl.distances.iter().filter(|distance| distance.relative.is_none()).count(), 4);
    assert_eq!(
        (0..4).map(|id| node(&inventory, id).distance_to(4)).collect::<Vec<_>>(),
        [Some(50), Some(50), Some(60), Some(60)]
    );
    assert_eq!(inventory.best_initiator(cxl).unwrap().id, 0);
    assert_eq!(inventory.last_level_cache_bytes(node(&inventory, 0)), 2 * (16 << 20));
}

#[test]
fn a_node_that_takes_movable_pages_only_is_told() {
    let epyc = machine("epyc-9224-cxl");
    let movable = |id| node(&epyc, id).movable_percent;
    assert_eq!([movable(0), movable(3), movable(4)], [Some(0), Some(0), Some(100)]);
    assert_eq!(node(&machine("asymmetric"), 2).movable_percent, None, "no zoneinfo");
}

#[test]
fn distances_may_differ_by_direction() {
    let inventory = machine("asymmetric");
    let from = |a, b| node(&inventory, a).distance_to(b);
    assert_eq!(
        (from(0, 1), from(1, 0), from(2, 0), from(0, 2)),
        (Some(21), Some(20), Some(14), Some(28))
    );
    let far = node(&inventory, 2);
    assert_eq!(inventory.best_initiator(far).unwrap().id, 1, "the reader's row: 17, not 28");
}

#[test]
fn rated_values_of_0_are_unknown_and_access1_still_wins() {
    let inventory = machine("asymmetric");
    let rated = node(&inventory, 2).rated.as_ref().unwrap();
    assert_eq!((rated.read_latency_ns, rated.read_bytes_per_s), (None, None));
    assert_eq!(rated.write_bytes_per_s, Some(30_720 << 20));
}

#[test]
fn demotion_balancing_and_weights_are_told() {
    let placement = machine("asymmetric").placement;
    assert_eq!(placement.interleave_weights.unwrap()[2], Weight { node: 2, pages: 1 });
    assert_eq!(placement.demotion, Some(true));
    assert_eq!(placement.balancing, Some(Balancing::NodesAndTiers));
    let placement = machine("node-that-hides-memory").placement;
    assert_eq!((placement.demotion, placement.balancing), (Some(false), Some(Balancing::Off)));
    assert_eq!(machine("container").placement, Placement::default(), "an old kernel has none");
}

#[test]
fn the_hmat_of_a_real_kernel_is_read() {
    let inventory = machine("qemu-hmat");
    let far = node(&inventory, 2);
    let rated = far.rated.as_ref().unwrap();
    assert_eq!((rated.read_latency_ns, rated.read_bytes_per_s), (Some(300), Some(20_480 << 20)));
    assert_eq!(rated.initiators, [0]);
    assert_eq!((far.kind, far.cpus.len()), (MemoryKind::CpuLess, 0));
}

#[test]
fn memory_of_a_gpu_is_no_memory_of_the_host() {
    let inventory = machine("gh200");
    let kinds: Vec<_> = inventory.nodes.iter().map(|node| (node.id, node.kind)).collect();
    assert_eq!(kinds[0], (0, MemoryKind::Dram));
    assert_eq!(kinds[1..], [1, 2, 3, 4, 5, 6, 7, 8].map(|id| (id, MemoryKind::Gpu)));
    let hbm = node(&inventory, 1);
    assert_eq!((hbm.memory_total_bytes >> 30, hbm.tier_kind()), (96, None));
    assert!(hbm.rated.is_some(), "the firmware rates it all the same");
    let usable: Vec<u32> = inventory.memory_nodes().map(|node| node.id).collect();
    assert_eq!(usable, [0]);
    let grace = node(&inventory, 0);
    let host = (inventory.memory.total_bytes, inventory.memory.free_bytes);
    assert_eq!(host, (grace.memory_total_bytes, grace.memory_free_bytes));
    let fake = FakeSysroot::machine("gh200");
    let available = crate::Watch::new(Sysroot(fake.path())).unwrap().read().unwrap();
    assert_eq!(available.host.0, inventory.memory.available_bytes);
    assert!(available.host.0 < grace.memory_total_bytes);
    assert_eq!(available.nodes_free.len(), 1);
}

#[test]
fn a_node_without_cpus_makes_a_tier_only_where_something_says_what_it_is() {
    let fake = FakeSysroot::cxl_node();
    let far = |fake: &FakeSysroot| Inventory::read(Sysroot(fake.path())).unwrap().nodes[2].clone();
    assert_eq!(
        (far(&fake).kind, far(&fake).tier_kind()),
        (MemoryKind::CpuLess, Some(Kind::CxlMemory))
    );
    for class in ["access0", "access1"] {
        for figure in ["read_latency", "write_latency", "read_bandwidth", "write_bandwidth"] {
            fake.remove(&format!("sys/devices/system/node/node2/{class}/initiators/{figure}"));
        }
    }
    assert_eq!((far(&fake).kind, far(&fake).tier_kind()), (MemoryKind::CpuLess, None));
    for name in ["qemu-cxl", "qemu-hmat", "epyc-9224-cxl", "asymmetric"] {
        let inventory = machine(name);
        let last = inventory.nodes.last().unwrap();
        assert_eq!(last.tier_kind(), Some(Kind::CxlMemory), "{name}");
    }
}

#[test]
fn a_cxl_device_is_followed_to_its_node() {
    for (name, id) in [("qemu-cxl", 2), ("qemu-cxl-generic-port", 3), ("epyc-9224-cxl", 4)] {
        let inventory = machine(name);
        let [memory] = &inventory.cxl.memories[..] else { panic!("{name}") };
        let [region] = &inventory.cxl.regions[..] else { panic!("{name}") };
        assert_eq!(region.memories, ["mem0"], "{name}");
        assert_eq!((region.numa_node, region.size_bytes), (Some(id), memory.ram_bytes), "{name}");
        assert_eq!(inventory.cxl.regions_of("mem0").count(), 1);
        assert_eq!(inventory.cxl.regions_of("mem1").count(), 0);
        let [window] = &inventory.cxl.windows[..] else { panic!("{name}: one root decoder") };
        assert_eq!((window.name.as_str(), window.takes_ram), ("decoder0.0", true));
        let [dax] = &inventory.dax[..] else { panic!("{name}") };
        assert!(dax.is_system_memory(), "{name}");
        assert_eq!(dax.region.as_deref(), Some("region0"));
        assert_eq!(dax.size_bytes, memory.ram_bytes);
        assert_eq!(node(&inventory, id).kind, MemoryKind::Cxl);
    }
}

#[test]
fn a_region_that_is_no_memory_yet_has_no_node() {
    let machine = FakeSysroot::machine("qemu-cxl");
    let driver =
        "sys/devices/platform/ACPI0017:00/root0/decoder0.0/region0/dax_region0/dax0.0/driver";
    machine.remove(driver);
    machine.link(driver, "../../../../../../../../bus/dax/drivers/device_dax");
    let inventory = Inventory::read(Sysroot(machine.path())).unwrap();
    assert!(!inventory.dax[0].is_system_memory());
    assert_eq!((inventory.cxl.regions[0].numa_node, inventory.dax[0].target_node), (None, Some(2)));
}

#[test]
fn a_rating_may_name_no_initiator_and_numbers_of_nodes_may_have_holes() {
    let inventory = machine("qemu-cxl-generic-port");
    let ids: Vec<u32> = inventory.nodes.iter().map(|node| node.id).collect();
    assert_eq!(ids, [0, 1, 3]);
    let rated = node(&inventory, 3).rated.as_ref().unwrap();
    assert_eq!((rated.read_latency_ns, rated.write_latency_ns), (Some(17_350), Some(17_450)));
    assert_eq!(rated.read_bytes_per_s, Some(16_000 << 20));
    assert_eq!(rated.initiators, [0_u32; 0]);
    assert_eq!(inventory.best_initiator(node(&inventory, 3)).unwrap().id, 0);
    assert_eq!(node(&machine("qemu-cxl"), 2).rated, None, "without generic port no rating");
}

#[test]
fn dax_devices_tell_kind_and_driver() {
    let inventory = machine("asymmetric");
    let [soft, persistent] = &inventory.dax[..] else { panic!() };
    assert_eq!((soft.kind, soft.is_system_memory()), (MemoryKind::SpecificPurpose, true));
    assert_eq!(soft.target_node, Some(2));
    assert_eq!((persistent.kind, persistent.is_system_memory()), (MemoryKind::Persistent, false));
    assert_eq!(persistent.driver.as_deref(), Some("device_dax"));
    assert_eq!(persistent.region, None::<String>.or(Some("region1".to_owned())));
    assert_eq!(node(&inventory, 2).kind, MemoryKind::SpecificPurpose);
}

#[test]
fn only_nodes_that_the_process_may_use_count() {
    let inventory = machine("container");
    assert_eq!(inventory.nodes.len(), 4);
    let usable: Vec<u32> = inventory.memory_nodes().map(|node| node.id).collect();
    assert_eq!(usable, [1, 3]);
    assert!(inventory.allowed.has_cpu(6) && !inventory.allowed.has_cpu(0));
    let free = machine("node-that-hides-memory");
    assert_eq!(free.allowed, Allowed::default());
    assert!(free.allowed.has_node(0) && free.allowed.has_cpu(1), "no cpuset forbids nothing");
}

#[test]
fn the_tightest_group_counts_in_both_versions() {
    let found = |name: &str| machine(name).cgroup.unwrap();
    let v2 = found("asymmetric");
    assert_eq!(v2.version, Version::V2);
    assert!(v2.path.ends_with("sys/fs/cgroup/batch/job_7"));
    assert_eq!(v2.limit_bytes, Some(6 << 30), "memory.high is the lower one");
    assert_eq!(v2.headroom_bytes(), Some(3 << 30));
    let epyc = found("epyc-9224-cxl");
    assert!(epyc.path.ends_with("user-1000.slice"));
    assert_eq!(epyc.headroom_bytes(), Some((64 << 30) - (512 << 20)));
    let v1 = found("container");
    assert_eq!((v1.version, v1.headroom_bytes()), (Version::V1, Some(12 << 30)));
    assert_eq!(found("node-that-hides-memory").limit_bytes, None);
}

#[test]
fn a_group_outside_of_the_mount_leaves_the_mount() {
    let machine = FakeSysroot::machine("asymmetric");
    machine.write("sys/fs/other/memory.max", "1\n");
    machine.write("sys/fs/other/memory.current", "0\n");
    machine.write("sys/fs/cgroup/memory.max", "4096\n");
    machine.write("sys/fs/cgroup/memory.current", "96\n");
    machine.write("proc/self/cgroup", "0::/../other\n");
    let group = Inventory::read(Sysroot(machine.path())).unwrap().cgroup.unwrap();
    assert_eq!(group.headroom_bytes(), Some(4000));
}

#[test]
fn the_only_node_has_what_it_hides() {
    let inventory = machine("node-that-hides-memory");
    assert_eq!(inventory.nodes[0].memory_total_bytes, 24_684_092 << 10);
    assert_eq!(inventory.nodes[0].memory_free_bytes, 21_761_236 << 10);
    assert_eq!(inventory.processor.is_virtual, Some(true));
}

#[test]
fn a_mount_has_the_medium_of_what_it_writes_to() {
    let inventory = machine("asymmetric");
    let medium = |path: &str| mount(&inventory, path).medium;
    assert_eq!(medium("/"), Medium::SolidState);
    assert_eq!(medium("/home/x"), Medium::Network);
    assert_eq!(medium("/mnt/image"), Medium::Rotating, "the disk that holds the image");
    assert_eq!(medium("/mnt/zram"), Medium::Memory);
    let overlay = mount(&inventory, "/var/lib/containers/merged");
    assert_eq!(overlay.overlay_upper.as_deref(), Some(Path::new("/archive/upper one")));
    assert_eq!(overlay.medium, Medium::Rotating);
    assert_eq!(medium("/run/odd"), Medium::Other, "an overlay that names itself");
    assert_eq!(mount(&machine("container"), "/").medium, Medium::Other, "the host's directory");
}

/// Clears what the capture script leaves out on purpose: the name of the host, options of network and overlay
/// mounts, the path of the control group.
fn without_secrets(mut inventory: Inventory) -> Inventory {
    inventory.host = String::new();
    for mount in &mut inventory.mounts {
        if mount.medium == Medium::Network || mount.overlay_upper.is_some() {
            mount.options = String::new();
        }
    }
    if let Some(group) = &mut inventory.cgroup {
        group.path = Path::new("/").to_owned();
    }
    inventory
}

#[test]
fn the_capture_script_captures_all_that_is_read() {
    for name in ["asymmetric", "container", "epyc-9224-cxl", "gh200", "qemu-cxl-generic-port"] {
        let original = FakeSysroot::machine(name);
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/capture-sysroot.sh");
        let output = Command::new("sh").arg(script).arg(original.path()).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.contains("0x1234"), "{name}: a serial number");
        let captured = FakeSysroot::of(&tree::parse(&text));
        let read = |machine: &FakeSysroot| Inventory::read(Sysroot(machine.path())).unwrap();
        let (read, expected) = (read(&captured), read(&original));
        assert_eq!(read.host, "captured");
        let parts = |it| serde_json::to_value(without_secrets(it)).unwrap();
        let (read, expected) = (parts(read), parts(expected));
        for (part, expected) in expected.as_object().unwrap() {
            assert_eq!(&read[part], expected, "{name}: {part}");
        }
    }
}

mod damage {
    use proptest::{prelude::*, test_runner::TestRunner};

    use super::*;

    #[derive(Debug, Clone)]
    enum Damage {
        Replaced(Vec<u8>),
        Truncated(usize),
        Number(u64),
        Removed,
    }

    fn any_damage() -> impl Strategy<Value = Damage> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40).prop_map(Damage::Replaced),
            "[-0-9a-zK,:{}\\[\\] \n]{0,30}".prop_map(|text| Damage::Replaced(text.into_bytes())),
            (0_usize..60).prop_map(Damage::Truncated),
            prop::sample::select(vec![0, 1, u64::MAX, u64::MAX / 1024, 1 << 63, 1 << 32])
                .prop_map(Damage::Number),
            Just(Damage::Removed),
        ]
    }

    /// Every number in the text is replaced by another one, so that the file stays well-formed.
    fn apply(damage: &Damage, content: &[u8]) -> Option<Vec<u8>> {
        match damage {
            Damage::Replaced(bytes) => Some(bytes.clone()),
            Damage::Truncated(len) => Some(content[..content.len().min(*len)].to_vec()),
            Damage::Number(number) => {
                let text = String::from_utf8_lossy(content).into_owned();
                let words = text.split_inclusive(char::is_whitespace).map(|word| {
                    let digits = word.trim_end();
                    let is_number =
                        !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
                    if is_number {
                        word.replace(digits, &number.to_string())
                    } else {
                        word.to_owned()
                    }
                });
                Some(words.collect::<String>().into_bytes())
            }
            Damage::Removed => None,
        }
    }

    fn read_all(machine: &FakeSysroot) -> Result<(), TestCaseError> {
        let sysroot = Sysroot(machine.path());
        if let Ok(inventory) = Inventory::read(sysroot) {
            for node in &inventory.nodes {
                let _ = inventory.best_initiator(node);
                let _ = inventory.last_level_cache_bytes(node);
            }
            let json = serde_json::to_string(&inventory).unwrap();
            prop_assert_eq!(serde_json::from_str::<Inventory>(&json).unwrap(), inventory);
        }
        if let Ok(watch) = crate::Watch::new(sysroot) {
            let _ = watch.read();
        }
        Ok(())
    }

    /// The machines are made once: each has hundreds of files.
    #[test]
    fn no_content_of_any_file_panics() {
        let names = tree::names();
        let machines: Vec<_> = names
            .iter()
            .map(|name| tree::parse(&tree::text(name)))
            .map(|entries| (FakeSysroot::of(&entries), entries))
            .collect();
        let any_damages = prop::collection::vec((any::<prop::sample::Index>(), any_damage()), 1..6);
        let config =
            ProptestConfig { source_file: Some(file!()), ..ProptestConfig::with_cases(128) };
        TestRunner::new(config)
            .run(&(0..machines.len(), any_damages), |(number, damages)| {
                let (machine, entries) = &machines[number];
                let places =
                    damages.iter().map(|(at, damage)| (&entries[at.index(entries.len())], damage));
                for ((path, entry), damage) in places.clone() {
                    machine.remove(path);
                    match entry {
                        Entry::Link(_) => machine.link(path, "../odd"),
                        Entry::File(content) => {
                            apply(damage, content)
                                .iter()
                                .for_each(|it| machine.write_bytes(path, it));
                        }
                    }
                }
                let outcome = read_all(machine);
                for ((path, entry), _) in places {
                    machine.remove(path);
                    machine.put(path, entry);
                }
                outcome
            })
            .unwrap_or_else(|error| panic!("{error}; machines: {names:?}"));
    }
}
