use super::{pressure::parse_some_avg10, *};
use crate::fake_sysroot::FakeSysroot;

const PRESSURE: &str = "some avg10=2.50 avg60=1.00 avg300=0.00 total=123\n\
    full avg10=9.00 avg60=0.00 avg300=0.00 total=45\n";

fn read(machine: &FakeSysroot) -> Available {
    Watch::new(Sysroot(machine.path())).unwrap().read().unwrap()
}

#[test]
fn a_snapshot_has_host_and_nodes() {
    let available = read(&FakeSysroot::cxl_node());
    assert_eq!(available.host, Bytes(2048 << 10));
    assert_eq!((available.cgroup, available.pressure_percent), (None, None));
    let half = Bytes(2048 << 10);
    assert_eq!(available.nodes_free, [0, 1, 2].map(|id| (NumaNode(id), half)));
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
    assert_eq!(available.pressure_percent, Some(2.5), "the group has no pressure file");
    machine.write("sys/fs/cgroup/job/memory.pressure", "some avg10=7.00 avg60=0.00 total=1\n");
    assert_eq!(read(&machine).pressure_percent, Some(7.0));
}

#[test]
fn pressure_is_the_line_some_and_the_field_avg10() {
    assert_eq!(parse_some_avg10(PRESSURE), Some(2.5));
    for text in ["", "full avg10=1.00\n", "some avg60=1.00\n", "some avg10=x\n", "some avg10=200\n"]
    {
        assert_eq!(parse_some_avg10(text), None, "{text:?}");
    }
}

#[test]
fn this_machine_has_memory_left() {
    let available = Watch::new(Sysroot::live()).unwrap().read().unwrap();
    assert!(available.bytes() > Bytes(0));
}
