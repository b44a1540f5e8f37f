//! Memory in reserved huge pages, on a host whose pool is filled for the test.
//!
//! The pool belongs to the whole host: other processes that want reserved pages would get these. So
//! this runs in a machine of its own (`make test-numa`), and the tests run one after the other.
//! Without the right to fill the pool the tests are skipped with a message.

#![expect(clippy::unwrap_used, reason = "a test that cannot prepare fails")]

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
};

use nix::fcntl::{Flock, FlockArg};
use tierfeed_numa_memory::{HugePages, Pages, Region, Request, View};
use tierfeed_test_needs::{Need, skip};
use tierfeed_units::{Bytes, Locality};

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
const HUGE: u64 = 2 << 20;

/// A pool with some more pages; restored when dropped.
struct Pool {
    before: u64,
    lock: Flock<File>,
}

impl Pool {
    /// `None`, with a message, if this process may not fill the pool or has too little memory.
    #[track_caller]
    fn with(pages: u64) -> Option<Self> {
        match Self::fill(pages) {
            Ok(pool) => Some(pool),
            Err(error) => {
                skip(Need::HugePages, error);
                None
            }
        }
    }

    fn fill(pages: u64) -> io::Result<Self> {
        let file = File::options().write(true).open(Path::new(POOL).join("nr_hugepages"))?;
        let lock = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno)?;
        let pool = Self { before: count("nr_hugepages"), lock };
        pool.resize(pool.before + pages)?;
        match count("nr_hugepages") {
            now if now == pool.before + pages => Ok(pool),
            now => Err(io::Error::other(format!("{now} pages, and not {pages} more"))),
        }
    }

    fn resize(&self, pages: u64) -> io::Result<()> {
        (&*self.lock).write_all(pages.to_string().as_bytes())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.resize(self.before).unwrap();
    }
}

fn count(name: &str) -> u64 {
    fs::read_to_string(Path::new(POOL).join(name)).unwrap().trim().parse().unwrap()
}

fn free() -> u64 {
    count("free_hugepages") - count("resv_hugepages")
}

fn allocate(len: Bytes) -> Region {
    let (locality, pages) = (Locality::Anywhere, Pages::Reserved);
    Region::allocate(&Request { len, locality, name: "reserved", pages }).unwrap()
}

#[test]
fn memory_lies_in_reserved_pages_as_long_as_it_lives() {
    let Some(_pool) = Pool::with(4) else { return };
    let before = free();
    let region = allocate(Bytes(2 * HUGE + 1));
    assert_eq!((region.huge_pages(), region.len()), (HugePages::Reserved, Bytes(3 * HUGE)));
    assert_eq!(free(), before - 3);
    assert_eq!(region.resident().unwrap(), Bytes(3 * HUGE));
    drop(region);
    assert_eq!(free(), before);
}

#[test]
fn every_mapping_of_reserved_pages_sees_the_same_bytes() {
    let Some(_pool) = Pool::with(2) else { return };
    let region = allocate(Bytes(2 * HUGE));
    assert_eq!(region.huge_pages(), HugePages::Reserved);
    let view = View::map(region.fd().try_clone_to_owned().unwrap(), region.len()).unwrap();
    let last = Bytes(2 * HUGE - 4);
    region.write(last, b"ours").unwrap();
    let mut bytes = [0; 4];
    view.read(last, &mut bytes).unwrap();
    assert_eq!(bytes, *b"ours");
    view.write(Bytes(0), b"from").unwrap();
    region.read(Bytes(0), &mut bytes).unwrap();
    assert_eq!(bytes, *b"from");
    assert_eq!(region.bus_errors(), 0);
}

#[test]
fn reserved_pages_stay_when_memory_is_given_back() {
    let Some(_pool) = Pool::with(2) else { return };
    let region = allocate(Bytes(2 * HUGE));
    let before = free();
    region.write(Bytes(HUGE), b"kept").unwrap();
    assert!(!region.give_back(Bytes(HUGE), Bytes(HUGE)).unwrap());
    assert!(!region.restore(Bytes(HUGE), Bytes(HUGE)).unwrap());
    let mut bytes = [0; 4];
    region.read(Bytes(HUGE), &mut bytes).unwrap();
    assert_eq!((bytes, free()), (*b"kept", before));
}

#[test]
fn where_the_pool_is_too_small_nothing_is_taken_from_it() {
    let Some(_pool) = Pool::with(2) else { return };
    let before = free();
    let region = allocate(Bytes((before + 1) * HUGE));
    assert_ne!(region.huge_pages(), HugePages::Reserved);
    assert_eq!(region.len(), Bytes((before + 1) * HUGE));
    assert_eq!(free(), before);
}
