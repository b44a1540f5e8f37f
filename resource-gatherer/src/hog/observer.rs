//! Observes what others can still take where a hog takes memory, and whether they wait for it.
//!
//! A hog that takes memory makes tasks wait, itself first: the kernel must free pages for it. So a
//! second in which it took something only tells it to pause, and what happens in the pause tells
//! whether others suffer. The ten-second average of the kernel would tell neither in time.

use std::path::PathBuf;

use tierfeed_core::{
    tier::Locality,
    units::{Bytes, Nanoseconds},
};

use super::{
    HogError,
    control::{Observation, Stall},
};
use crate::{
    available::{Watch, pressure},
    inventory::{gpu_memory, meminfo},
    sysroot::{ReadError, Sysroot, optional},
};

/// Observes one place; finds the files once.
#[derive(Debug)]
pub(super) struct Observer {
    root: PathBuf,
    watch: Watch,
    locality: Locality,
    total: Bytes,
    pub(super) stalls: StallMeter,
}

impl Observer {
    pub(super) fn new(sysroot: Sysroot<'_>, locality: Locality) -> Result<Self, HogError> {
        let host = Bytes(meminfo::read(sysroot)?.total_bytes);
        let watch = Watch::new(sysroot)?;
        let place = match locality {
            Locality::Anywhere | Locality::Near(_) => host,
            Locality::Numa(node) if gpu_memory::nodes(sysroot).contains(&node.0) => {
                return Err(HogError::GpuNode { node });
            }
            Locality::Numa(node) => {
                let path = format!("sys/devices/system/node/node{}/meminfo", node.0);
                match meminfo::read_node(&sysroot.join(path))?.total_bytes {
                    0 => return Err(HogError::AbsentNode { node }),
                    // The node may account for less than it has: see `inventory`.
                    _ if watch.read()?.nodes_free.len() == 1 => host,
                    total => Bytes(total),
                }
            }
        };
        let total = watch.group_limit()?.map_or(place, |limit| place.min(limit));
        let root = sysroot.0.to_owned();
        Ok(Self { root, watch, locality, total, stalls: StallMeter::default() })
    }

    pub(super) fn total(&self) -> Bytes {
        self.total
    }

    pub(super) fn locality(&self) -> Locality {
        self.locality
    }

    pub(super) fn observe(&mut self, now: Nanoseconds) -> Result<Observation, ReadError> {
        let available = self.watch.read()?;
        let available = match self.locality {
            Locality::Anywhere | Locality::Near(_) => available.bytes(),
            Locality::Numa(node) => available.bytes_on(node).min(available.bytes()),
        };
        let text = optional(&Sysroot(&self.root).join("proc/pressure/memory"));
        let some = text.and_then(|text| pressure::waiting(&text, "some "));
        let stall = self.stalls.read(now, some.map(|(_, total)| total));
        Ok(Observation { available, total: self.total, stall })
    }
}

/// The time over which stalled time is summed before it is judged.
const WINDOW: Nanoseconds = Nanoseconds(1_000_000_000);

/// The share of a window, in per cent, from which on tasks count as waiting.
const STALLED_PERCENT: u64 = 10;

/// After memory was given back for others, none is taken for this long.
const PAUSE: Nanoseconds = Nanoseconds(10_000_000_000);

#[derive(Debug, Default)]
pub(super) struct StallMeter {
    window: Option<Window>,
    /// Nothing is taken until then.
    pause_until: Nanoseconds,
}

#[derive(Debug)]
struct Window {
    start: Nanoseconds,
    stalled: Nanoseconds,
    hog_took: bool,
}

impl StallMeter {
    /// Notes that memory is taken now, so that waiting for it is not mistaken for need of others.
    pub(super) fn note_taking(&mut self) {
        if let Some(window) = &mut self.window {
            window.hog_took = true;
        }
    }

    /// Judges by the total stalled time at `now`; `None` on kernels that do not count it.
    fn read(&mut self, now: Nanoseconds, stalled: Option<Nanoseconds>) -> Stall {
        let Some(stalled) = stalled else { return Stall::None };
        let window = self.window.get_or_insert(Window { start: now, stalled, hog_took: false });
        let elapsed = now.0.saturating_sub(window.start.0);
        let mut stall = if now < self.pause_until { Stall::Recent } else { Stall::None };
        if elapsed >= WINDOW.0 {
            let waited_ns = stalled.0.saturating_sub(window.stalled.0);
            if waited_ns.saturating_mul(100) >= elapsed.saturating_mul(STALLED_PERCENT) {
                stall = if window.hog_took { Stall::Recent } else { Stall::OfOthers };
                // One window and a half decides about a pause of the hog itself.
                let pause = if window.hog_took { WINDOW.0 + WINDOW.0 / 2 } else { PAUSE.0 };
                self.pause_until = self.pause_until.max(Nanoseconds(now.0 + pause));
            }
            self.window = Some(Window { start: now, stalled, hog_took: false });
        }
        stall
    }
}

#[cfg(test)]
mod tests {
    use tierfeed_core::id::NumaNode;

    use super::*;
    use crate::tests_support::FakeSysroot;

    fn observer(machine: &FakeSysroot, locality: Locality) -> Observer {
        Observer::new(Sysroot(machine.path()), locality).unwrap()
    }

    #[test]
    fn the_host_is_watched_within_its_control_group() {
        let machine = FakeSysroot::single_node();
        let mut host = observer(&machine, Locality::Anywhere);
        assert_eq!(host.total(), Bytes(4096 << 10));
        assert_eq!(host.observe(Nanoseconds(0)).unwrap().available, Bytes(2048 << 10));
        machine.write("proc/self/mountinfo", "1 0 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        machine.write("proc/self/cgroup", "0::/job\n");
        machine.write("sys/fs/cgroup/job/memory.max", "1000000\n");
        machine.write("sys/fs/cgroup/job/memory.current", "400000\n");
        let mut group = observer(&machine, Locality::Anywhere);
        assert_eq!(group.total(), Bytes(1_000_000));
        assert_eq!(group.observe(Nanoseconds(0)).unwrap().available, Bytes(600_000));
    }

    #[test]
    fn a_node_is_watched_within_the_host() {
        let machine = FakeSysroot::cxl_node();
        machine.node(2, "", 2048);
        let mut node = observer(&machine, Locality::Numa(NumaNode(2)));
        assert_eq!(node.total(), Bytes(2048 << 10));
        assert_eq!(node.observe(Nanoseconds(0)).unwrap().available, Bytes(1024 << 10));
        machine.write("proc/meminfo", "MemTotal: 4096 kB\nMemFree: 8 kB\nMemAvailable: 16 kB\n");
        assert_eq!(node.observe(Nanoseconds(0)).unwrap().available, Bytes(16 << 10));
    }

    #[test]
    fn a_node_without_memory_is_named() {
        let machine = FakeSysroot::single_node();
        let absent = Observer::new(Sysroot(machine.path()), Locality::Numa(NumaNode(7)));
        assert!(matches!(absent, Err(HogError::AbsentNode { node: NumaNode(7) })));
    }

    #[test]
    fn waiting_tasks_are_seen_where_the_kernel_counts_them() {
        let machine = FakeSysroot::single_node();
        let mut host = observer(&machine, Locality::Anywhere);
        let mut stall = |second: u64, stalled_us: u64| {
            let text = format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={stalled_us}\n");
            machine.write("proc/pressure/memory", &text);
            host.observe(Nanoseconds(second * 1_000_000_000)).unwrap().stall
        };
        assert_eq!(stall(0, 0), Stall::None);
        assert_eq!(stall(2, 10_000), Stall::None);
        assert_eq!(stall(4, 900_000), Stall::OfOthers);
    }

    /// Reads every 100 ms of `seconds`, in which tasks wait `percent` of the time, and returns the judgements
    /// that are not [`Stall::None`].
    fn judged(
        meter: &mut StallMeter,
        from_s: u64,
        seconds: u64,
        percent: u64,
        takes: bool,
    ) -> Vec<Stall> {
        let looks = (from_s * 10..(from_s + seconds) * 10).map(|tenth| {
            let stalled = Nanoseconds(tenth * 1_000_000 * percent);
            let stall = meter.read(Nanoseconds(tenth * 100_000_000), Some(stalled));
            if takes {
                meter.note_taking();
            }
            stall
        });
        looks.filter(|it| *it != Stall::None).collect()
    }

    #[test]
    fn calm_is_calm() {
        assert_eq!(judged(&mut StallMeter::default(), 0, 30, 9, false), []);
        assert_eq!(judged(&mut StallMeter::default(), 0, 30, 9, true), []);
    }

    #[test]
    fn stalls_without_taking_are_those_of_others_once_a_second() {
        let judged = judged(&mut StallMeter::default(), 0, 5, 10, false);
        assert_eq!(judged.iter().filter(|it| **it == Stall::OfOthers).count(), 4);
        assert_eq!(judged.first(), Some(&Stall::OfOthers));
    }

    #[test]
    fn after_others_waited_nothing_is_taken_for_ten_seconds() {
        let mut meter = StallMeter::default();
        meter.read(Nanoseconds(0), Some(Nanoseconds(0)));
        let second = |s: u64| Nanoseconds(s * 1_000_000_000);
        assert_eq!(meter.read(second(1), Some(Nanoseconds(500_000_000))), Stall::OfOthers);
        assert_eq!(meter.read(second(10), Some(Nanoseconds(500_000_000))), Stall::Recent);
        assert_eq!(meter.read(second(11), Some(Nanoseconds(500_000_000))), Stall::None);
    }

    #[test]
    fn stalls_while_taking_pause_the_hog_until_it_is_known_whose_they_are() {
        let mut meter = StallMeter::default();
        let taking = judged(&mut meter, 0, 2, 50, true);
        assert!(!taking.is_empty() && taking.iter().all(|it| *it == Stall::Recent), "{taking:?}");
        let mut pausing = meter;
        // The pause is a clean window: the stalls go on, so they are those of others.
        let later = judged(&mut pausing, 2, 3, 50, false);
        assert!(later.contains(&Stall::OfOthers), "{later:?}");
    }

    #[test]
    fn a_kernel_that_does_not_count_says_nothing() {
        assert_eq!(StallMeter::default().read(Nanoseconds(0), None), Stall::None);
    }
}
