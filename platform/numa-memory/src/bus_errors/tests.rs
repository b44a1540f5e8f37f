use std::{os::fd::AsFd as _, process::Command};

use memmap2::MmapOptions;
use nix::{
    sys::{
        memfd::{MFdFlags, memfd_create},
        signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction},
    },
    unistd::ftruncate,
};
use tierfeed_test_needs::{Need, skip};
use tierfeed_units::{Bytes, Locality};

use super::{
    injection::{break_page, poison_page},
    *,
};
use crate::{Mapping, Pages, Region, Request};

const LEN: usize = 64 << 10;

fn region() -> Region {
    let len = Bytes(LEN as u64);
    let request = Request { len, locality: Locality::Anywhere, name: "bus", pages: Pages::Small };
    Region::allocate(&request).unwrap()
}

fn address_of(region: &Region, offset: u64) -> usize {
    region.as_ptr_range(Bytes(offset), Bytes(1)).unwrap().addr()
}

#[test]
fn a_page_that_vanishes_under_its_mapping_is_an_error_and_no_end() {
    catch().unwrap();
    let fd = memfd_create("bus-truncated", MFdFlags::MFD_CLOEXEC).unwrap();
    ftruncate(&fd, i64::try_from(LEN).unwrap()).unwrap();
    let raw = MmapOptions::new().len(LEN).map_raw(&fd).unwrap();
    let mapping = Mapping::watched(raw, crate::placement::page_bytes());
    mapping.fill(Bytes(0), mapping.len(), 7).unwrap();
    assert_eq!(mapping.bus_errors(), 0);
    ftruncate(fd.as_fd(), 8192).unwrap();
    let mut bytes = vec![1; LEN];
    mapping.read(Bytes(0), &mut bytes).unwrap();
    assert!(bytes[..8192].iter().all(|it| *it == 7), "what is left is as it was");
    assert!(bytes[8192..].iter().all(|it| *it == 0));
    assert_eq!(mapping.bus_errors(), 14, "one for each page that is gone");
    mapping.fill(Bytes(0), mapping.len(), 9).unwrap();
    assert_eq!(mapping.bus_errors(), 14, "it can be used, and breaks no more");
}

#[test]
fn only_the_mapping_that_broke_is_marked() {
    catch().unwrap();
    let (good, bad) = (region(), region());
    break_page(address_of(&bad, 4096)).unwrap();
    good.copy_from(Bytes(0), &bad, Bytes(0), Bytes(LEN as u64)).unwrap();
    assert_eq!((good.bus_errors(), bad.bus_errors()), (0, 1));
    drop(bad);
    assert_eq!(region().bus_errors(), 0, "a new mapping does not inherit the mark");
}

#[test]
fn hardware_poison_is_an_error_and_no_end() {
    catch().unwrap();
    let region = region();
    region.fill(Bytes(0), Bytes(LEN as u64), 7).unwrap();
    if let Err(error) = poison_page(address_of(&region, 8192)) {
        skip(Need::MemoryPoison, error);
        return;
    }
    let mut bytes = vec![1; LEN];
    region.read(Bytes(0), &mut bytes).unwrap();
    assert!(region.bus_errors() >= 1);
    assert!(bytes[..8192].iter().all(|it| *it == 7));
    assert!(bytes[8192..12288].iter().all(|it| *it == 0));
}

#[test]
fn more_mappings_than_a_block_holds_are_watched() {
    catch().unwrap();
    let regions: Vec<_> = (0..SLOTS + 20).map(|_| region()).collect();
    let last = regions.last().unwrap();
    break_page(address_of(last, 0)).unwrap();
    last.read(Bytes(0), &mut [0; 8]).unwrap();
    assert_eq!(last.bus_errors(), 1);
}

/// Environment variable that tells a test, run again in a process of its own, what to do.
const FOREIGN: &str = "TIERFEED_TEST_FOREIGN_BUS_ERROR";

#[test]
fn a_foreign_bus_error_still_ends_the_process() {
    if let Some(how) = order() {
        // Rust's own handler takes a sent signal for a mistake, and waits for it to come again.
        if how == "sent" {
            let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
            // SAFETY:
            // - The default handler is no function of this process.
            unsafe { sigaction(Signal::SIGBUS, &default) }.unwrap();
        }
        catch().unwrap();
        match how.as_str() {
            "access" => touch_behind_the_end(),
            _ => raise(Signal::SIGBUS).unwrap(),
        }
        return;
    }
    for how in ["access", "sent"] {
        let name = "bus_errors::tests::a_foreign_bus_error_still_ends_the_process";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let child = child.args([name, "--exact"]).env(FOREIGN, how);
        let status = child.output().unwrap().status;
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        assert_eq!(signal, Some(libc::SIGBUS), "{how}: {status}");
    }
}

#[expect(clippy::disallowed_methods, reason = "how a test tells its other process what to do")]
fn order() -> Option<String> {
    std::env::var(FOREIGN).ok()
}

/// Reads a mapping that is not watched, behind the end of its file.
fn touch_behind_the_end() {
    let fd = memfd_create("bus-foreign", MFdFlags::MFD_CLOEXEC).unwrap();
    let raw = MmapOptions::new().len(LEN).map_raw(&fd).unwrap();
    Mapping::new(raw).read(Bytes(0), &mut [0; 8]).unwrap();
}
