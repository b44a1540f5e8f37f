//! Judges the system calls that this process may make.

use super::{
    Facts, Finding, FixPlace,
    facts::{Attempt, Call, Rings},
};

/// `CAP_SYS_NICE` of `linux/capability.h`.
const SYS_NICE: u32 = 23;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    vec![
        policies(facts),
        sys_nice(facts),
        read_back(facts),
        newer_mode(
            "preferred nodes",
            facts.call(Call::PreferredMany),
            "Linux 5.15 (MPOL_PREFERRED_MANY)",
            "chunks prefer their node by the older MPOL_PREFERRED, which places them alike",
        ),
        newer_mode(
            "weighted interleave",
            facts.call(Call::WeightedInterleave),
            "Linux 6.9 (MPOL_WEIGHTED_INTERLEAVE)",
            "nothing is lost in tierfeed; other programs cannot spread pages by bandwidth",
        ),
        newer_mode(
            "home node of a policy",
            facts.call(Call::HomeNode),
            "Linux 5.17 (set_mempolicy_home_node)",
            "memory that spills from a full node may go to any other, not to the nearest",
        ),
        rings(facts),
        memfd(facts),
        pidfd(facts),
    ]
}

fn policies(facts: &Facts) -> Finding {
    const SUBJECT: &str = "memory policies";
    let (set, get) = (facts.call(Call::Mbind), facts.call(Call::GetMempolicy));
    let found = format!("mbind {}, get_mempolicy {}", set.said(), get.said());
    let consequence =
        "memory lies where the kernel puts it, and a tier on another NUMA node is refused";
    match (set, get) {
        (Attempt::Done, Attempt::Done) | (Attempt::Untried, _) => Finding::ok(SUBJECT, found),
        (Attempt::Done, _) => let_calls_through(Finding::degraded(
            SUBJECT,
            found,
            "memory is placed, but other tools cannot show its policy",
        )),
        (set, _) if set.is_denied() => {
            let_calls_through(Finding::missing(SUBJECT, found, consequence))
        }
        _ => Finding::missing(SUBJECT, found, consequence)
            .fix(FixPlace::Host, "boot a kernel built with CONFIG_NUMA=y"),
    }
}

/// The profiles of engines let these calls through with the capability; a unit needs the group of
/// calls.
fn let_calls_through(finding: Finding) -> Finding {
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
        (false, false) => let_calls_through(Finding::missing(
            SUBJECT,
            "not held, and calls are denied without it",
            "memory cannot be placed, or its place cannot be read back",
        )),
    }
}

fn read_back(facts: &Facts) -> Finding {
    const SUBJECT: &str = "placement read back";
    let attempt = facts.call(Call::MovePages);
    match attempt {
        Attempt::Done | Attempt::Untried => {
            Finding::ok(SUBJECT, format!("move_pages {}", attempt.said()))
        }
        Attempt::Refused(_) => let_calls_through(Finding::degraded(
            SUBJECT,
            format!("move_pages {}", attempt.said()),
            "the place of memory is read from numa_maps, and else reported as unverified",
        )),
    }
}

/// Where policies are denied altogether, an old kernel cannot be told from a filter, and the finding about
/// policies has the fix.
fn newer_mode(
    subject: &'static str,
    attempt: Attempt,
    since: &str,
    consequence: &'static str,
) -> Finding {
    match attempt {
        Attempt::Done | Attempt::Untried => Finding::ok(subject, attempt.said()),
        denied if denied.is_denied() => {
            let_calls_through(Finding::degraded(subject, attempt.said(), consequence))
        }
        Attempt::Refused(_) => Finding::degraded(subject, attempt.said(), consequence)
            .fix(FixPlace::Host, format!("boot {since} or later")),
    }
}

fn rings(facts: &Facts) -> Finding {
    const SUBJECT: &str = "io_uring";
    let lost = |found: String| {
        Finding::degraded(
            SUBJECT,
            found,
            "files are read and written by threads, one per operation",
        )
    };
    let newer = "boot Linux 5.6 or later, built with CONFIG_IO_URING=y";
    match &facts.rings {
        Rings::Usable => Finding::ok(SUBJECT, "works"),
        Rings::Untried => Finding::ok(SUBJECT, "not tried"),
        Rings::NotInKernel => lost("not in this kernel".to_owned()).fix(FixPlace::Host, newer),
        Rings::TooOld => lost("lacks operations of Linux 5.6".to_owned()).fix(FixPlace::Host, newer),
        Rings::Disabled(value) => lost(format!("kernel.io_uring_disabled is {value}"))
            .fix(FixPlace::Host, "sysctl -w kernel.io_uring_disabled=0"),
        Rings::Filtered => lost("io_uring_setup is refused by a seccomp filter".to_owned())
            .fix(FixPlace::Container, "--security-opt seccomp=PROFILE.json that allows io_uring_setup, io_uring_enter, io_uring_register")
            .fix(FixPlace::Kubernetes, "securityContext: { seccompProfile: { type: Localhost, localhostProfile: PROFILE.json } }")
            .fix(FixPlace::Systemd, "SystemCallFilter=io_uring_setup io_uring_enter io_uring_register"),
        Rings::LockedMemory => lost("a ring does not fit into the memory that may be locked".to_owned())
            .fix(FixPlace::Shell, "ulimit -l unlimited")
            .fix(FixPlace::Container, "--ulimit memlock=-1")
            .fix(FixPlace::Systemd, "LimitMEMLOCK=infinity"),
        Rings::Failed(said) => lost(said.clone()),
    }
}

fn memfd(facts: &Facts) -> Finding {
    const SUBJECT: &str = "sealed memfds";
    let setting = facts
        .memfd_noexec
        .map_or_else(String::new, |value| format!(", vm.memfd_noexec is {value}"));
    let found = format!("memfd_create {}{setting}", facts.memfd.said());
    match facts.memfd {
        Attempt::Done | Attempt::Untried => Finding::ok(SUBJECT, found),
        Attempt::Refused(_) => Finding::missing(
            SUBJECT,
            found,
            "no batch can be handed to a trainer; trainers read the cold store themselves",
        )
        .fix(FixPlace::Container, "--security-opt seccomp=PROFILE.json that allows memfd_create")
        .fix(FixPlace::Host, "sysctl -w vm.memfd_noexec=1")
        .fix(FixPlace::Systemd, "SystemCallFilter=memfd_create"),
    }
}

fn pidfd(facts: &Facts) -> Finding {
    const SUBJECT: &str = "pidfds";
    let found = format!("pidfd_open {}", facts.pidfd.said());
    let consequence = "a trainer's death is seen only when the last copy of its socket closes";
    match facts.pidfd {
        Attempt::Done | Attempt::Untried => Finding::ok(SUBJECT, found),
        denied if denied.is_denied() => Finding::degraded(SUBJECT, found, consequence)
            .fix(FixPlace::Container, "--security-opt seccomp=PROFILE.json that allows pidfd_open")
            .fix(FixPlace::Systemd, "SystemCallFilter=pidfd_open"),
        Attempt::Refused(_) => Finding::degraded(SUBJECT, found, consequence)
            .fix(FixPlace::Host, "boot Linux 5.3 or later"),
    }
}
