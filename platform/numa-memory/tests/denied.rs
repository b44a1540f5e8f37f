//! Behaviour if memory policies are denied, as by the seccomp profiles of container engines.
//!
//! A filter in a thread of its own denies the system calls there only.

#![expect(clippy::unwrap_used, reason = "a test that cannot prepare fails")]

use std::{fs, io, thread};

use tierfeed_numa_memory::{AllocateError, Pages, Placement, Policy, Region, Request};
use tierfeed_test_needs::{Need, skip};
use tierfeed_units::{Bytes, Locality, NumaNode};

/// The constant `SECCOMP_MODE_FILTER` of `linux/seccomp.h`.
const SECCOMP_MODE_FILTER: libc::c_ulong = 2;

fn instruction(code: u32, skip_unless: u8, value: u32) -> libc::sock_filter {
    libc::sock_filter { code: u16::try_from(code).unwrap(), jt: 0, jf: skip_unless, k: value }
}

/// Makes `calls` fail with `EPERM` in the calling thread, permanently.
fn deny(calls: &[libc::c_long]) -> io::Result<()> {
    let load_number = instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0);
    let mut filter = vec![load_number];
    for call in calls {
        let number = u32::try_from(*call).unwrap();
        let denied = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
        filter.push(instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, number));
        filter.push(instruction(libc::BPF_RET | libc::BPF_K, 0, denied));
    }
    filter.push(instruction(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW));
    let program =
        libc::sock_fprog { len: u16::try_from(filter.len()).unwrap(), filter: filter.as_mut_ptr() };
    let none: libc::c_ulong = 0;
    // SAFETY:
    // - The call takes no pointers.
    let no_new_privileges = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, none, none, none) };
    assert_eq!(no_new_privileges, 0);
    // SAFETY:
    // - `program` and the `filter` it points to live through the call, which copies both.
    let status =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &raw const program) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn allocate_without(calls: &'static [libc::c_long], node: u32) -> Result<Placement, AllocateError> {
    let allocate = move || {
        deny(calls).unwrap();
        let locality = Locality::Numa(NumaNode(node));
        let request = Request { len: Bytes::mib(1), locality, name: "denied", pages: Pages::Small };
        Region::allocate(&request).map(|region| region.placement())
    };
    thread::spawn(allocate).join().unwrap()
}

fn page_is_large() -> bool {
    nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).unwrap() > Some(4096)
}

/// The list of memory nodes, such as `0-1,3`.
fn memory_nodes() -> String {
    fs::read_to_string("/sys/devices/system/node/has_memory").unwrap().trim().to_owned()
}

/// The only node of a machine with one: memory lies there without any policy.
fn only_node() -> Option<u32> {
    memory_nodes().parse().ok()
}

#[test]
fn without_a_policy_memory_that_lies_right_is_verified_all_the_same() {
    let Some(node) = only_node() else { return skip(Need::OneNode, memory_nodes()) };
    let placement = allocate_without(&[libc::SYS_mbind], node).unwrap();
    assert!(matches!(placement, Placement::Verified { pages_sampled: 16, .. }));
}

#[test]
fn without_move_pages_the_placement_is_read_from_numa_maps() {
    let Some(node) = only_node() else { return skip(Need::OneNode, memory_nodes()) };
    let placement = allocate_without(&[libc::SYS_mbind, libc::SYS_move_pages], node).unwrap();
    let Placement::Verified { pages_sampled, .. } = placement else { panic!("{placement:?}") };
    assert!(pages_sampled > 16 || page_is_large(), "every page, not a sample of 16");
}

#[test]
fn without_a_policy_memory_on_another_node_is_misplaced() {
    if only_node().is_some() {
        return skip(Need::SeveralNodes, memory_nodes());
    }
    let nodes = memory_nodes();
    let last = nodes.rsplit([',', '-']).next().unwrap().parse().unwrap();
    let error = allocate_without(&[libc::SYS_mbind], last).unwrap_err();
    let is_denied = matches!(error, AllocateError::Misplaced { policy: Policy::Denied, .. });
    assert!(is_denied, "{error}");
    assert!(error.to_string().contains("CAP_SYS_NICE"), "{error}");
}
