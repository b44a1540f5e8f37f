//! A client and an agent over both rings of a connection, with batches of one word in shared
//! memory.
//!
//! The client requests batches, as many ahead as its window allows, compares their content, writes
//! over it as a training may, and releases them. The agent writes a batch and hands it over; it
//! writes to its slot again only after the release. So a missing memory order, which lets one side
//! read too early or too late, gives a wrong number here.

use crate::{
    ring::{Consumer, Entry, Layout, Producer, PushError, Words},
    words::{Arc, AtomicU64, Ordering, thread},
};

const WORD_BYTES: u64 = 8;
const REQUEST: u64 = 1;
const RELEASE: u64 = 2;
const LEASE: u64 = 3;

/// The content of a batch after a client wrote over it.
const NORMALISED: u64 = u64::MAX;

#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Batches that are requested or leased at a time; a power of two.
    pub window: u32,
    pub batches: u64,
}

struct Shared {
    rings: Vec<AtomicU64>,
    /// One word for each batch of the window.
    arena: Vec<AtomicU64>,
}

impl Words for Shared {
    fn word(&self, offset: u64) -> Option<&AtomicU64> {
        self.rings.get(usize::try_from(offset / WORD_BYTES).ok()?)
    }
}

/// # Panics
///
/// If an entry is lost, duplicated, reordered or torn, or a batch has wrong content.
pub fn run(size: Size) {
    let submissions = Layout::new(0, 4 * size.window);
    let completions = Layout::new(submissions.end(), size.window);
    let zeroed = |count: u64| (0..count).map(|_| AtomicU64::new(0)).collect();
    let shared = Arc::new(Shared {
        rings: zeroed(completions.end() / WORD_BYTES),
        arena: zeroed(u64::from(size.window)),
    });
    let agent = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || agent(size, &shared, submissions, completions))
    };
    client(size, &shared, submissions, completions);
    agent.join().expect("the agent does not panic");
}

/// Sends numbers one way through a ring of `capacity` entries, which is full at times.
///
/// # Panics
///
/// If a number is lost, duplicated, reordered or torn.
pub fn stream(capacity: u32, numbers: u64) {
    let layout = Layout::new(0, capacity);
    let words = (0..layout.end() / WORD_BYTES).map(|_| AtomicU64::new(0)).collect();
    let shared = Arc::new(Shared { rings: words, arena: Vec::new() });
    let sender = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            let mut ring = Producer::new(layout);
            for number in 0..numbers {
                while let Err(error) = ring.push(&*shared, entry(REQUEST, number)) {
                    assert!(matches!(error, PushError::Full { .. }), "{error}");
                    thread::yield_now();
                }
            }
        })
    };
    let mut ring = Consumer::new(layout);
    for number in 0..numbers {
        assert_eq!(next(&mut ring, &shared), entry(REQUEST, number));
    }
    sender.join().expect("the sender does not panic");
}

fn client(size: Size, shared: &Shared, submissions: Layout, completions: Layout) {
    let mut out = Producer::new(submissions);
    let mut back = Consumer::new(completions);
    let mut asked = 0;
    for number in 0..size.batches {
        while asked < size.batches && asked < number + u64::from(size.window) {
            out.push(shared, entry(REQUEST, asked)).expect("the window leaves room for a request");
            asked += 1;
        }
        assert_eq!(next(&mut back, shared), entry(LEASE, number));
        let place = place(shared, size, number);
        assert_eq!(place.load(Ordering::Relaxed), number, "what the agent wrote");
        place.store(NORMALISED, Ordering::Relaxed);
        out.push(shared, entry(RELEASE, number)).expect("the window leaves room for a release");
    }
}

fn agent(size: Size, shared: &Shared, submissions: Layout, completions: Layout) {
    let mut into = Consumer::new(submissions);
    let mut out = Producer::new(completions);
    let (mut leased, mut released) = (0, 0);
    while released < size.batches {
        let found = next(&mut into, shared);
        if found == entry(REQUEST, leased) {
            let place = place(shared, size, leased);
            if leased >= u64::from(size.window) {
                assert_eq!(place.load(Ordering::Relaxed), NORMALISED, "what came back");
            }
            place.store(leased, Ordering::Relaxed);
            out.push(shared, entry(LEASE, leased)).expect("the window leaves room for an answer");
            leased += 1;
        } else {
            assert_eq!(found, entry(RELEASE, released), "in their order, each once");
            released += 1;
        }
    }
}

fn place(shared: &Shared, size: Size, number: u64) -> &AtomicU64 {
    let at = usize::try_from(number % u64::from(size.window)).expect("below the window");
    &shared.arena[at]
}

/// Every word identifies its entry, so that a torn one is detected.
fn entry(kind: u64, number: u64) -> Entry {
    std::array::from_fn(|word| kind << 56 | number << 3 | word as u64)
}

fn next(ring: &mut Consumer, shared: &Shared) -> Entry {
    loop {
        if let Some(entry) = ring.pop(shared).expect("both sides keep to the rules") {
            return entry;
        }
        thread::yield_now();
    }
}
