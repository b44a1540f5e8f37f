//! Judges the host: what measures time, what is below it, what tells its topology.

use super::{Facts, Finding, FixPlace};

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    vec![clock(facts), hypervisor(facts), topology(facts)]
}

/// Clocks that are read without a call into the kernel.
const FAST_CLOCKS: [&str; 5] =
    ["tsc", "arch_sys_counter", "kvm-clock", "hyperv_clocksource_tsc_page", "riscv_clocksource"];

fn clock(facts: &Facts) -> Finding {
    let name = facts.clock.as_deref();
    let finding = Finding::ok("clock", name.unwrap_or("unknown"));
    if name.is_none_or(|name| FAST_CLOCKS.contains(&name)) {
        return finding;
    }
    finding
        .degraded(
            "each look at the clock is a system call of about 1 us, which blurs short measurements",
        )
        .fix(
            FixPlace::Host,
            "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource",
        )
        .fix(FixPlace::Boot, "tsc=reliable clocksource=tsc")
}

/// No fix: figures of a guest are right for the guest.
fn hypervisor(facts: &Facts) -> Finding {
    const SUBJECT: &str = "hypervisor";
    match facts.inventory.processor.is_virtual {
        None => Finding::ok(SUBJECT, "unknown"),
        Some(false) => Finding::ok(SUBJECT, "none"),
        Some(true) => Finding::ok(SUBJECT, "below this kernel").degraded(
            "caches, distances and frequencies are as it states them; stolen time is watched, and \
             figures that it spoils are flagged",
        ),
    }
}

fn topology(facts: &Facts) -> Finding {
    const SUBJECT: &str = "topology by hwloc";
    if facts.has_hwloc {
        return Finding::ok(SUBJECT, "built in");
    }
    Finding::ok(SUBJECT, "not built in")
        .degraded("the topology comes from sysfs alone, and is not compared with hwloc's")
        .fix(
            FixPlace::Build,
            "apt-get install libhwloc-dev libudev-dev && cargo build --features hwloc",
        )
}
