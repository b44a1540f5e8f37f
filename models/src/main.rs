//! The ring of the hand-off, its very source file, in worlds that find what tests do not:
//!
//! - under loom every order of few operations, with every value that weak memory allows,
//! - under shuttle two million requests in random schedules,
//! - with real threads two million requests, which ThreadSanitizer watches.
//!
//! `scripts/model.sh` runs them.

mod exchange;
#[path = "../../prefetcher/src/handoff/ring.rs"]
mod ring;
mod words;

use exchange::Size;

#[cfg(feature = "loom")]
fn main() {
    // A ring of one entry is filled and emptied, its places are used again, and both sides wait.
    let size = Size { window: 1, batches: number("TIERFEED_MODEL_BATCHES", 2) };
    words::model(|| exchange::stream(1, 3));
    words::model(move || exchange::run(size));
    println!("loom: orders of {} batches, window {}, and of 3 entries", size.batches, size.window);
}

#[cfg(all(feature = "shuttle", not(feature = "loom")))]
fn main() {
    let (batches, requests) = (20, number("TIERFEED_MODEL_BATCHES", 2_000_000));
    shuttle::check_random(|| exchange::stream(2, 20), 1_000);
    let schedules = requests.div_ceil(2 * batches);
    for window in [2, 4] {
        let size = Size { window, batches };
        let schedules = usize::try_from(schedules).expect("a number of schedules");
        shuttle::check_random(move || exchange::run(size), schedules);
    }
    println!("shuttle: {} requests in {} random schedules", 2 * schedules * batches, 2 * schedules);
}

#[cfg(not(any(feature = "loom", feature = "shuttle")))]
fn main() {
    let size = Size { window: 16, batches: number("TIERFEED_MODEL_BATCHES", 2_000_000) };
    exchange::stream(4, size.batches);
    exchange::run(size);
    println!("threads: {} requests, window {}", size.batches, size.window);
}

/// A number from the environment.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number of batches"))
}
