use std::path::Path;

use tierfeed_core::units::Nanoseconds;

use super::*;
use crate::tests_support::FakeSysroot;

const PRESSURE: &str = "some avg10=2.50 avg60=1.00 avg300=0.00 total=123\n\
    full avg10=9.00 avg60=0.00 avg300=0.00 total=45\n";

fn read(machine: &FakeSysroot) -> Available {
    Watch::new(Sysroot(machine.path())).unwrap().read().unwrap()
}

#[test]
fn a_snapshot_has_host_and_nodes() {
    let available = read(&FakeSysroot::cxl_node());
    assert_eq!(available.host, Bytes(2048 << 10));
    assert_eq!((available.cgroup, available.pressure, available.load), (None, None, None));
    let half = Bytes(2048 << 10);
    assert_eq!(
        available.nodes_free,
        [0, 1, 2].map(|id| NodeFree { numa_node: NumaNode(id), free: half })
    );
    assert_eq!(available.bytes_on(NumaNode(2)), half);
    assert_eq!(available.bytes_on(NumaNode(9)), Bytes(0));
}

#[test]
fn a_watch_sees_what_changed() {
    let machine = FakeSysroot::single_node();
    let watch = Watch::new(Sysroot(machine.path())).unwrap();
    assert_eq!(watch.read().unwrap().host, Bytes(2048 << 10));
    machine.write("proc/meminfo", "MemTotal: 4096 kB\nMemFree: 8 kB\nMemAvailable: 16 kB\n");
    assert_eq!(watch.read().unwrap().host, Bytes(16 << 10));
}

#[test]
fn the_limit_of_the_group_counts_where_it_is_tighter() {
    let machine = FakeSysroot::single_node();
    machine.write("proc/self/mountinfo", "1 0 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    machine.write("proc/self/cgroup", "0::/job\n");
    machine.write("sys/fs/cgroup/job/memory.max", "1000000\n");
    machine.write("sys/fs/cgroup/job/memory.current", "400000\n");
    machine.write("proc/pressure/memory", PRESSURE);
    let available = read(&machine);
    assert_eq!(available.bytes(), Bytes(600_000));
    assert_eq!(available.bytes_on(NumaNode(0)), Bytes(600_000));
    let some = |available: Available| available.pressure.unwrap().some_percent;
    assert!((some(available) - 2.5).abs() < 1e-9, "the group has no pressure file");
    let group = PRESSURE.replace("2.50", "7.00");
    machine.write("sys/fs/cgroup/job/memory.pressure", &group);
    assert!((some(read(&machine)) - 7.0).abs() < 1e-9);
}

#[test]
fn a_limit_is_followed_as_it_changes() {
    let machine = FakeSysroot::machine("container");
    let watch = Watch::new(Sysroot(machine.path())).unwrap();
    assert!(watch.group_limit().unwrap() > Some(Bytes(12 << 30)), "more than is left");
    machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
    assert_eq!(watch.group_limit().unwrap(), Some(Bytes(1 << 30)));
}

#[test]
fn a_limit_that_is_no_number_is_an_error_and_not_no_limit() {
    let machine = FakeSysroot::machine("container");
    let watch = Watch::new(Sysroot(machine.path())).unwrap();
    assert_eq!(watch.read().unwrap().cgroup, Some(Bytes(12 << 30)));
    machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "many\n");
    let error = watch.read().unwrap_err().to_string();
    assert!(error.contains("limit_in_bytes") && error.contains("many"), "{error}");
}

#[test]
fn the_only_node_has_what_the_host_has() {
    let available = read(&FakeSysroot::machine("node-that-hides-memory"));
    let free = NodeFree { numa_node: NumaNode(0), free: Bytes(21_761_236 << 10) };
    assert_eq!(available.nodes_free, [free]);
}

#[test]
fn a_machine_of_another_kernel_tells_load_and_pressure() {
    let available = read(&FakeSysroot::machine("qemu-cxl-generic-port"));
    assert_eq!(available.load, Some(Load { one_minute: 0.0, runnable: 2 }));
    let (some, full) = (Nanoseconds(0), Nanoseconds(0));
    let calm = Pressure { some_percent: 0.0, some, full_percent: 0.0, full };
    assert_eq!(available.pressure, Some(calm));
    let nodes: Vec<u32> = available.nodes_free.iter().map(|it| it.numa_node.0).collect();
    assert_eq!(nodes, [0, 1, 3]);
}

#[test]
fn pressure_is_told_for_some_and_for_all_tasks() {
    let found = pressure::parse(PRESSURE).unwrap();
    let (some, full) = (Nanoseconds(123_000), Nanoseconds(45_000));
    assert_eq!(found, Pressure { some_percent: 2.5, some, full_percent: 9.0, full });
    let full = "full avg10=1.00 total=1\n";
    for some in ["", "some avg60=1.00 total=1\n", "some avg10=x total=1\n", "some avg10=1\n"] {
        assert_eq!(pressure::parse(&format!("{some}{full}")), None, "{some:?}");
    }
    for percent in ["200", "-1", "NaN"] {
        let some = format!("some avg10={percent} total=1\n{full}");
        assert_eq!(pressure::parse(&some), None, "{percent}");
    }
}

#[test]
fn load_is_the_first_average_and_the_runnable_tasks() {
    let found = load::parse("1.50 0.75 0.83 3/113 12818").unwrap();
    assert_eq!(found, Load { one_minute: 1.5, runnable: 3 });
    for text in ["", "1.5", "1.5 1 1 x/3 1", "inf 1 1 3/113 1", "x 1 1 3/113 1"] {
        assert_eq!(load::parse(text), None, "{text:?}");
    }
}

#[test]
fn directories_are_measured_also_before_they_are_made() {
    let there = tempfile::tempdir().unwrap();
    let later = there.path().join("a/b");
    let directories = [there.path(), &later, Path::new("not-there")];
    let disks = directories.map(|path| DiskSpace::read(path).unwrap());
    assert_eq!(disks[1].path, later);
    assert_eq!(disks[0].total, disks[1].total);
    assert!(disks.iter().all(|disk| disk.total > Bytes(0) && disk.free <= disk.total));
    assert_eq!(disks[2].path, Path::new("not-there"));
}

#[test]
fn this_machine_has_memory_left() {
    let available = Watch::new(Sysroot::live()).unwrap().read().unwrap();
    assert!(available.bytes() > Bytes(0));
}

/// A step of Slurm: its daemon, a script and a trainer; beside it a step of another job.
fn step(machine: &FakeSysroot) {
    for (pid, parent, name, resident) in [
        (1, 0, "systemd", 1_000_000),
        (100, 1, "slurmstepd", 9_000),
        (110, 100, "bash", 1_000),
        (111, 110, "python (x)", 200_000),
        (112, 111, "tierfeed", 40_000),
        (200, 1, "slurmstepd", 9_000),
        (210, 200, "python", 700_000),
    ] {
        machine.write(&format!("proc/{pid}/stat"), &format!("{pid} ({name}) S {parent} 0 0\n"));
        machine.write(&format!("proc/{pid}/status"), &format!("Name:\tx\nVmRSS:\t{resident} kB\n"));
    }
    machine.write("proc/self/stat", "112 (tierfeed) S 111 0 0\n");
    machine
        .write("proc/meminfo", "MemTotal: 8000000 kB\nMemFree: 9 kB\nMemAvailable: 6000000 kB\n");
}

#[test]
fn a_job_has_left_what_its_step_does_not_hold_of_its_memory() {
    let machine = FakeSysroot::single_node();
    step(&machine);
    let watch = Watch::new(Sysroot(machine.path())).unwrap();
    assert_eq!(watch.read().unwrap().bytes(), Bytes(6_000_000 << 10));
    let watch = watch.within(Some(Bytes(300_000 << 10)));
    assert_eq!(watch.group_limit().unwrap(), Some(Bytes(300_000 << 10)));
    assert_eq!(watch.read().unwrap().bytes(), Bytes((300_000 - 241_000) << 10));
    machine.write("proc/111/status", "VmRSS: 900000 kB\n");
    assert_eq!(watch.read().unwrap().bytes(), Bytes(0), "the trainer has grown");
}

#[test]
fn known_processes_of_a_job_are_read_anew_and_no_others_are_looked_for() {
    let machine = FakeSysroot::single_node();
    step(&machine);
    let limit = 300_000;
    let watch = Watch::new(Sysroot(machine.path())).unwrap().within(Some(Bytes(limit << 10)));
    let known = watch.job_processes();
    assert_eq!(known, [110, 111, 112]);
    let left = || watch.read_with(&known).unwrap().bytes().0 >> 10;
    assert_eq!(left(), limit - 241_000);
    machine.write("proc/111/status", "VmRSS: 210000 kB\n");
    machine.write("proc/113/stat", "113 (python) S 111 0 0\n");
    machine.write("proc/113/status", "VmRSS: 30000 kB\n");
    assert_eq!(left(), limit - 251_000, "one has grown");
    assert_eq!(watch.read().unwrap().bytes().0 >> 10, limit - 281_000, "and one is new");
    machine.write("proc/111/status", "");
    assert_eq!(left(), limit - 41_000, "one has ended");
}

#[test]
fn the_tighter_of_group_and_batch_system_counts() {
    let machine = FakeSysroot::single_node();
    machine.write("proc/self/mountinfo", "1 0 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    machine.write("proc/self/cgroup", "0::/job\n");
    machine.write("sys/fs/cgroup/job/memory.max", "1000000\n");
    machine.write("sys/fs/cgroup/job/memory.current", "400000\n");
    for (limit, expected, left) in
        [(900_000, 900_000, 600_000), (500_000, 500_000, 500_000), (9_000_000, 1_000_000, 600_000)]
    {
        let watch = Watch::new(Sysroot(machine.path())).unwrap().within(Some(Bytes(limit)));
        assert_eq!(watch.group_limit().unwrap(), Some(Bytes(expected)));
        assert_eq!(watch.read().unwrap().bytes(), Bytes(left));
    }
}
