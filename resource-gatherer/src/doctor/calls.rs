//! Judges the system calls that this process may make.

use tierfeed_file_io::Unavailable;

use super::{Attempt, Call, Facts, Finding, FixPlace};

/// `CAP_SYS_NICE` of `linux/capability.h`.
const SYS_NICE: u32 = 23;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let newer_mode = |subject, call| {
        let attempt = facts.call(call);
        (Finding::ok(subject, attempt.said()), attempt)
    };
    vec![
        policies(facts),
        sys_nice(facts),
        read_back(facts),
        since(
            newer_mode("preferred nodes", Call::PreferredMany),
            "Linux 5.15 (MPOL_PREFERRED_MANY)",
            "chunks prefer their node by the older MPOL_PREFERRED, which places them alike",
            let_policies_through,
        ),
        since(
            newer_mode("weighted interleave", Call::WeightedInterleave),
            "Linux 6.9 (MPOL_WEIGHTED_INTERLEAVE)",
            "nothing is lost in tierfeed; other programs cannot spread pages by bandwidth",
            let_policies_through,
        ),
        rings(facts),
        memfd(facts),
        pidfd(facts),
    ]
}

fn policies(facts: &Facts) -> Finding {
    let (set, get) = (facts.call(Call::Mbind), facts.call(Call::GetMempolicy));
    let finding = Finding::ok(
        "memory policies",
        format!("mbind {}, get_mempolicy {}", set.said(), get.said()),
    );
    match (set, get) {
        (Attempt::Done, Attempt::Done) | (Attempt::Untried, _) => finding,
        (Attempt::Done, _) => let_policies_through(
            finding.degraded("memory is placed, but other tools cannot show its policy"),
        ),
        (Attempt::Refused(_), _) => {
            let finding = finding.missing(
                "memory lies where the kernel puts it, and a tier on another NUMA node is refused",
            );
            if set.is_denied() {
                let_policies_through(finding)
            } else {
                finding.fix(FixPlace::Host, "boot a kernel built with CONFIG_NUMA=y")
            }
        }
    }
}

/// The profiles of engines let these calls through with the capability; a unit needs the group of
/// calls.
fn let_policies_through(finding: Finding) -> Finding {
    finding
        .fix(FixPlace::Container, "--cap-add SYS_NICE")
        .fix(FixPlace::Kubernetes, "securityContext: { capabilities: { add: [\"SYS_NICE\"] } }")
        .fix(FixPlace::Systemd, "SystemCallFilter=@resources")
}

fn sys_nice(facts: &Facts) -> Finding {
    const SUBJECT: &str = "CAP_SYS_NICE";
    let has = facts.has_capability(SYS_NICE);
    let works = [Call::Mbind, Call::MovePages].iter().all(|call| !facts.call(*call).is_denied());
    match (has, works) {
        (true, _) => Finding::ok(SUBJECT, "held"),
        (false, true) => Finding::ok(SUBJECT, "not held, and not needed: no call is denied"),
        (false, false) => let_policies_through(
            Finding::ok(SUBJECT, "not held, and calls are denied without it")
                .missing("memory cannot be placed, or its place cannot be read back"),
        ),
    }
}

fn read_back(facts: &Facts) -> Finding {
    let attempt = facts.call(Call::MovePages);
    let finding = Finding::ok("placement read back", format!("move_pages {}", attempt.said()));
    if !attempt.is_refused() {
        return finding;
    }
    let_policies_through(
        finding.degraded(
            "the place of memory is read from numa_maps, and else reported as unverified",
        ),
    )
}

/// Judges a call that the kernel has since a version. Where it is denied, an old kernel cannot be told from
/// a filter, and `let_through` has the fix.
pub(super) fn since(
    (finding, attempt): (Finding, Attempt),
    version: &str,
    consequence: &'static str,
    let_through: impl FnOnce(Finding) -> Finding,
) -> Finding {
    match attempt {
        Attempt::Done | Attempt::Untried => finding,
        denied if denied.is_denied() => let_through(finding.degraded(consequence)),
        Attempt::Refused(_) => {
            finding.degraded(consequence).fix(FixPlace::Host, format!("boot {version} or later"))
        }
    }
}

pub(super) fn let_call_through(finding: Finding, call: &str) -> Finding {
    finding
        .fix(FixPlace::Container, format!("--security-opt seccomp=PROFILE.json that allows {call}"))
        .fix(FixPlace::Systemd, format!("SystemCallFilter={call}"))
}

fn rings(facts: &Facts) -> Finding {
    const NEWER: &str = "boot Linux 5.6 or later, built with CONFIG_IO_URING=y";
    let finding = |found: &str| Finding::ok("io_uring", found);
    let lost = |found: &str| {
        finding(found).degraded("files are read and written by threads, one per operation")
    };
    let Some(usable) = &facts.rings else { return finding("not tried") };
    let Err(reason) = usable else { return finding("works") };
    match reason {
        Unavailable::NotInKernel => lost("not in this kernel").fix(FixPlace::Host, NEWER),
        Unavailable::TooOld => lost("lacks operations of Linux 5.6").fix(FixPlace::Host, NEWER),
        Unavailable::Disabled { value } => lost(&format!("kernel.io_uring_disabled is {value}"))
            .fix(FixPlace::Host, "sysctl -w kernel.io_uring_disabled=0"),
        Unavailable::Filtered => lost("io_uring_setup is refused by a seccomp filter")
            .fix(FixPlace::Container, "--security-opt seccomp=PROFILE.json that allows io_uring_setup, io_uring_enter, io_uring_register")
            .fix(FixPlace::Kubernetes, "securityContext: { seccompProfile: { type: Localhost, localhostProfile: PROFILE.json } }")
            .fix(FixPlace::Systemd, "SystemCallFilter=io_uring_setup io_uring_enter io_uring_register"),
        Unavailable::LockedMemory => lost("a ring does not fit into the memory that may be locked")
            .fix(FixPlace::Shell, "ulimit -l unlimited")
            .fix(FixPlace::Container, "--ulimit memlock=-1")
            .fix(FixPlace::Systemd, "LimitMEMLOCK=infinity"),
        other => lost(&other.to_string()),
    }
}

fn memfd(facts: &Facts) -> Finding {
    let setting = facts
        .memfd_noexec
        .map_or_else(String::new, |value| format!(", vm.memfd_noexec is {value}"));
    let found = format!("memfd_create {}{setting}", facts.memfd.said());
    let finding = Finding::ok("sealed memfds", found);
    if !facts.memfd.is_refused() {
        return finding;
    }
    finding
        .missing("no batch can be handed to a trainer; trainers read the cold store themselves")
        .fix(FixPlace::Container, "--security-opt seccomp=PROFILE.json that allows memfd_create")
        .fix(FixPlace::Host, "sysctl -w vm.memfd_noexec=1")
        .fix(FixPlace::Systemd, "SystemCallFilter=memfd_create")
}

fn pidfd(facts: &Facts) -> Finding {
    let found = format!("pidfd_open {}", facts.pidfd.said());
    since(
        (Finding::ok("pidfds", found), facts.pidfd),
        "Linux 5.3",
        "a trainer's death is seen only when the last copy of its socket closes",
        |finding| let_call_through(finding, "pidfd_open"),
    )
}
