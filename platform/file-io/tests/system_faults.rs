//! Errors of system calls: memory, rings and reads when the kernel refuses.
//!
//! Each test runs itself again below strace, which makes chosen calls fail (`--inject`) as a kernel
//! would: no mock stands between the code and the answer. Calls are counted from the start of the
//! process, so a case names calls that only the code under test makes.

#![expect(clippy::unwrap_used, reason = "a test that cannot prepare fails")]

use std::{env, fs::File, os::unix::fs::FileExt as _, process::Command, sync::Arc};

use tierfeed_file_io::{
    io_uring_available,
    reads::{Destination, Ended, Read, ReadRing, RegionRange, Waker},
};
use tierfeed_numa_memory::{AllocateError, Pages, Region, Request, Step};
use tierfeed_test_needs::{Need, skip};
use tierfeed_units::{Bytes, Locality};

const BLOCK: usize = 4096;
const LEN: Bytes = Bytes(1 << 20);

/// Set in the process below strace.
const BELOW_STRACE: &str = "TIERFEED_TEST_BELOW_STRACE";

/// Runs the calling test again with the faults, in the syntax of `strace -e inject=`. Returns
/// whether this is that run.
#[track_caller]
fn has_faults(test: &str, faults: &[&str]) -> bool {
    if is_below_strace() {
        return true;
    }
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null"]);
    for fault in faults {
        strace.arg("-e").arg(format!("inject={fault}"));
    }
    strace.arg(env::current_exe().unwrap()).args([test, "--exact", "--test-threads=1"]);
    let output = match strace.env(BELOW_STRACE, "1").output() {
        Ok(output) => output,
        Err(error) => {
            skip(Need::Strace, error);
            return false;
        }
    };
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("PTRACE_TRACEME") || said.contains("ptrace(PTRACE_SEIZE") {
        skip(Need::Strace, said);
        return false;
    }
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && out.contains("1 passed"), "{faults:?}: {out}{said}");
    false
}

#[expect(clippy::disallowed_methods, reason = "how a test tells its other process what it is")]
fn is_below_strace() -> bool {
    env::var(BELOW_STRACE).is_ok()
}

fn allocate() -> Result<Region, AllocateError> {
    let (locality, pages) = (Locality::Anywhere, Pages::Small);
    Region::allocate(&Request { len: LEN, locality, name: "faults", pages })
}

fn step_of(error: AllocateError) -> (Step, Option<i32>) {
    match error {
        AllocateError::System { step, source, .. } => (step, source.raw_os_error()),
        other => panic!("{other}"),
    }
}

/// Reads two blocks over a ring, each with its own byte, and compares. Returns how often the ring
/// accepted nothing.
fn read_two_blocks(region: &Arc<Region>) -> u32 {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(&[7; BLOCK], 0).unwrap();
    file.write_all_at(&[8; BLOCK], BLOCK as u64).unwrap();
    let (file, mut ring): (Arc<File>, _) =
        (Arc::new(file), ReadRing::new(4, Waker::new().unwrap()).unwrap());
    for token in 0..2 {
        let offset = token * BLOCK as u64;
        let range =
            RegionRange { region: Arc::clone(region), offset: Bytes(offset), len: Bytes(4096) };
        let to = Destination::Ranges(vec![range]);
        ring.push(Read { file: Arc::clone(&file), offset, to, token }).unwrap();
    }
    let (mut ended, mut refused) = (Vec::<Ended>::new(), 0);
    while ended.len() < 2 {
        if ring.wait(None, &mut ended).is_err() {
            refused += 1;
            assert!(refused < 100, "the ring takes nothing any more");
        }
    }
    assert!(ended.iter().all(|it| it.outcome.as_ref().is_ok_and(|read| *read == BLOCK)));
    let mut bytes = vec![0; 2 * BLOCK];
    region.read(Bytes(0), &mut bytes).unwrap();
    assert!(bytes[..BLOCK].iter().all(|it| *it == 7) && bytes[BLOCK..].iter().all(|it| *it == 8));
    refused
}

#[test]
fn an_interrupted_fallocate_is_made_again() {
    if !has_faults("an_interrupted_fallocate_is_made_again", &["fallocate:error=EINTR:when=1..3"]) {
        return;
    }
    assert_eq!(allocate().unwrap().resident().unwrap(), LEN);
}

#[test]
fn a_host_without_descriptors_or_memory_is_an_error_that_says_so() {
    let faults = ["memfd_create:error=EMFILE:when=1", "fallocate:error=ENOSPC:when=1"];
    if !has_faults("a_host_without_descriptors_or_memory_is_an_error_that_says_so", &faults) {
        return;
    }
    assert_eq!(step_of(allocate().unwrap_err()), (Step::Create, Some(libc::EMFILE)));
    assert_eq!(step_of(allocate().unwrap_err()), (Step::Reserve, Some(libc::ENOSPC)));
    allocate().unwrap();
}

/// Invariant 3 of the holes of a region: memory that may not be there is not pinned.
#[test]
fn memory_that_cannot_be_given_back_or_taken_again_is_an_error_and_reads_go_on() {
    let faults = ["fallocate:error=ENOMEM:when=2..3"];
    let name = "memory_that_cannot_be_given_back_or_taken_again_is_an_error_and_reads_go_on";
    if !has_faults(name, &faults) {
        return;
    }
    let (region, half) = (Arc::new(allocate().unwrap()), Bytes(LEN.0 / 2));
    let error = region.give_back(half, half).unwrap_err();
    assert_eq!(step_of(error), (Step::GiveBack, Some(libc::ENOMEM)));
    let pinned = region.pin_around(half, Bytes(1), LEN, |_, _, _| ());
    assert_eq!(pinned, None, "it may be gone");
    let error = region.restore(half, half).unwrap_err();
    assert_eq!(step_of(error), (Step::Reserve, Some(libc::ENOMEM)));
    assert_eq!(region.resident().unwrap(), half, "what was not taken again has no memory");
    if io_uring_available().is_ok() {
        read_two_blocks(&region);
    }
    region.restore(half, half).unwrap();
    assert_eq!(region.resident().unwrap(), LEN);
}

#[test]
fn a_kernel_that_registers_nothing_reads_all_the_same() {
    // The first two query the abilities of the kernel.
    let faults = ["io_uring_register:error=ENOMEM:when=3+"];
    if !has_faults("a_kernel_that_registers_nothing_reads_all_the_same", &faults) {
        return;
    }
    if let Err(reason) = io_uring_available() {
        return skip(Need::IoUring, reason);
    }
    read_two_blocks(&Arc::new(allocate().unwrap()));
}

#[test]
fn a_ring_that_is_interrupted_or_short_of_memory_loses_no_read() {
    for error in ["EINTR", "ENOMEM", "EAGAIN", "EBUSY"] {
        let fault = format!("io_uring_enter:error={error}:when=1+2");
        if !has_faults("a_ring_that_is_interrupted_or_short_of_memory_loses_no_read", &[&fault]) {
            continue;
        }
        if let Err(reason) = io_uring_available() {
            return skip(Need::IoUring, reason);
        }
        read_two_blocks(&Arc::new(allocate().unwrap()));
        return;
    }
}
