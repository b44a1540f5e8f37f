//! The ring of the hand-off, compiled from its source file, in four environments that find more
//! than tests, and the holes of a region beside an io_uring that pins its pages, in the first two
//! of them:
//!
//! - under loom every order of few operations, with every value that weak memory allows,
//! - under shuttle two million requests in random schedules,
//! - with loads that take effect late, which loom does not cover, in random schedules,
//! - with real threads two million requests, which ThreadSanitizer watches.
//!
//! `scripts/model.sh` runs them.

#[cfg(not(feature = "late"))]
mod exchange;
#[cfg(all(any(feature = "loom", feature = "shuttle"), not(feature = "late")))]
#[path = "../../../platform/numa-memory/src/region/holes.rs"]
mod holes;
#[cfg(feature = "late")]
mod late;
#[cfg(all(any(feature = "loom", feature = "shuttle"), not(feature = "late")))]
mod pinning;
#[path = "../../../handoff/src/ring.rs"]
mod ring;
#[cfg(feature = "loom")]
#[path = "../../../platform/numa-memory/src/bus_errors/slot.rs"]
mod slot;
#[cfg(feature = "loom")]
mod watched;
mod words;

#[cfg(not(feature = "late"))]
use exchange::Size;

#[cfg(feature = "loom")]
fn main() {
    // A ring of one entry is filled and emptied, its slots are reused, and both sides wait.
    let size = Size { window: 1, batches: number("TIERFEED_MODEL_BATCHES", 2) };
    words::model(|| exchange::stream(1, 3));
    words::model(move || exchange::run(size));
    println!("loom: orders of {} batches, window {}, and of 3 entries", size.batches, size.window);
    words::model(|| pinning::run(1, 2));
    println!("loom: memory that is given back and taken again beside a ring that pins it");
    words::model(watched::run);
    println!("loom: slots of watched mappings that change hands while they are looked up");
}

#[cfg(feature = "late")]
fn main() {
    use std::sync::atomic::{AtomicU64, Ordering};

    static COUNTED: AtomicU64 = AtomicU64::new(0);

    // A check of the scheduler: two relaxed loads may both be late, and an order on either side
    // forbids it.
    let buffered = |load, store| {
        static FOUND: AtomicU64 = AtomicU64::new(0);
        FOUND.store(0, Ordering::Relaxed);
        let count = move || {
            FOUND.fetch_add(u64::from(late::buffers_loads(load, store)), Ordering::Relaxed);
        };
        shuttle::check_random(count, 20_000);
        FOUND.load(Ordering::Relaxed)
    };
    assert_ne!(buffered(Ordering::Relaxed, Ordering::Relaxed), 0, "no load is ever late");
    assert_eq!(buffered(Ordering::Acquire, Ordering::Relaxed), 0, "acquire loads are not late");
    assert_eq!(buffered(Ordering::Relaxed, Ordering::Release), 0, "nothing passes a release store");

    let schedules = number("TIERFEED_MODEL_BATCHES", 2_000_000).div_ceil(20);
    let schedules = usize::try_from(schedules).expect("a number of schedules");
    for (capacity, numbers) in [(1, 3), (2, 6)] {
        let count = move || {
            COUNTED.fetch_add(u64::from(late::stream(capacity, numbers)), Ordering::Relaxed);
        };
        shuttle::check_random(count, schedules);
    }
    let counted = COUNTED.load(Ordering::Relaxed);
    let enough = schedules as u64 / 10;
    assert!(counted > enough, "{counted} schedules are possible, and {enough} are too few");
    println!("late loads: {counted} of {} random schedules are possible", 2 * schedules);
}

#[cfg(all(feature = "shuttle", not(any(feature = "loom", feature = "late"))))]
fn main() {
    let (batches, requests) = (20, number("TIERFEED_MODEL_BATCHES", 2_000_000));
    shuttle::check_random(|| exchange::stream(2, 20), 1_000);
    let schedules = requests.div_ceil(2 * batches);
    for window in [2, 4] {
        let size = Size { window, batches };
        let schedules = usize::try_from(schedules).expect("a number of schedules");
        shuttle::check_random(move || exchange::run(size), schedules);
    }
    shuttle::check_random(|| pinning::run(3, 12), 20_000);
    println!("shuttle: {} requests in {} random schedules", 2 * schedules * batches, 2 * schedules);
}

#[cfg(not(any(feature = "loom", feature = "shuttle")))]
fn main() {
    let size = Size { window: 16, batches: number("TIERFEED_MODEL_BATCHES", 2_000_000) };
    exchange::stream(4, size.batches);
    exchange::run(size);
    println!("threads: {} requests, window {}", size.batches, size.window);
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number of batches"))
}
