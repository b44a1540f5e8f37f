//! A race that `ThreadSanitizer` must find: otherwise its silence elsewhere means nothing.

use std::{sync::Barrier, thread};

use tierfeed_numa_memory::{Pages, Region, Request};
use tierfeed_units::{Bytes, Locality};

/// Two threads write the same bytes of a region without synchronisation.
#[test]
#[ignore = "scripts/sanitize.sh runs it, to see that the sanitizer reports the race"]
fn two_threads_that_write_one_place_race() {
    let (len, locality, pages) = (Bytes(4096), Locality::Anywhere, Pages::Small);
    let region = Region::allocate(&Request { len, locality, name: "race", pages }).unwrap();
    // Otherwise the first may end before the second begins, and the thread that starts both orders
    // them.
    let both = Barrier::new(2);
    thread::scope(|scope| {
        for value in [1, 2] {
            let (region, both) = (&region, &both);
            scope.spawn(move || {
                both.wait();
                region.write(Bytes(0), &[value; 64]).unwrap();
            });
        }
    });
    let mut bytes = [0; 64];
    region.read(Bytes(0), &mut bytes).unwrap();
    assert!(bytes[0] == 1 || bytes[0] == 2);
}
