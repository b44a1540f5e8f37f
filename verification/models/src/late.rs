//! A scheduler in which a relaxed load may take effect later than its place in the program: loom
//! executes every read in program order, but hardware and compilers may delay it.
//!
//! A late load returns a guess: a value that was stored after the present one in an earlier
//! schedule. From then on it waits for that store. It must take effect before the next release
//! store of its thread, the next access of its thread to the same word, and the end of its thread;
//! if the word did not have the guessed value by then, the schedule is impossible and is discarded.
//! Otherwise it works like shuttle: one access after the other, in random order.
//!
//! So it checks the accesses that must happen before a release store, and those that an acquire load must
//! precede.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use shuttle::sync::atomic::AtomicBool;
pub use shuttle::{sync::Arc, thread};
pub use std::sync::atomic::Ordering;

/// One of this many relaxed loads is late, if there is a guess.
const LATE_ONE_OF: u64 = 24;

static WORLD: Mutex<World> = Mutex::new(World::new());

#[derive(Debug)]
pub struct AtomicU64 {
    number: usize,
    /// A point at which shuttle switches threads.
    door: AtomicBool,
}

#[derive(Debug)]
struct World {
    values: Vec<u64>,
    late: Vec<Late>,
    /// The values that were stored after a value, by word, in all schedules.
    stored_after: BTreeMap<(usize, u64), u64>,
    has_failed: bool,
    state: u64,
}

/// A load that has returned and not taken effect.
#[derive(Debug)]
struct Late {
    thread: thread::ThreadId,
    word: usize,
    guess: u64,
    has_happened: bool,
}

impl World {
    const fn new() -> Self {
        Self {
            values: Vec::new(),
            late: Vec::new(),
            stored_after: BTreeMap::new(),
            has_failed: false,
            state: 1,
        }
    }

    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.state >> 33
    }

    /// The deadline for late loads of this thread, of one word or of all.
    fn settle(&mut self, word: Option<usize>) {
        let this = thread::current().id();
        let ends = |late: &mut Late| late.thread == this && word.is_none_or(|it| it == late.word);
        let missed = self.late.extract_if(.., ends).any(|late| !late.has_happened);
        self.has_failed |= missed;
    }
}

fn world() -> MutexGuard<'static, World> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins a schedule; the recorded stores stay.
pub fn begin() {
    let mut world = world();
    world.values.clear();
    world.late.clear();
    world.has_failed = false;
}

/// Ends a thread. The values that its late loads returned may still be stored just before.
pub fn end_thread() {
    thread::yield_now();
    world().settle(None);
}

/// Whether a load did not find the value that it had returned, so that the schedule is discarded.
pub fn has_failed() -> bool {
    world().has_failed
}

impl AtomicU64 {
    pub fn new(value: u64) -> Self {
        let mut world = world();
        world.values.push(value);
        Self { number: world.values.len() - 1, door: AtomicBool::new(false) }
    }

    pub fn load(&self, order: Ordering) -> u64 {
        let mut world = self.enter();
        let value = world.values[self.number];
        let guess = world.stored_after.get(&(self.number, value)).copied();
        match guess {
            Some(guess) if order == Ordering::Relaxed && world.draw() % LATE_ONE_OF == 0 => {
                let (thread, word) = (thread::current().id(), self.number);
                world.late.push(Late { thread, word, guess, has_happened: false });
                guess
            }
            _ => value,
        }
    }

    pub fn store(&self, value: u64, order: Ordering) {
        let mut world = self.enter();
        if order == Ordering::Release {
            world.settle(None);
        }
        let before = std::mem::replace(&mut world.values[self.number], value);
        world.stored_after.insert((self.number, before), value);
        for late in world.late.iter_mut().filter(|late| late.word == self.number) {
            late.has_happened |= late.guess == value;
        }
    }

    fn enter(&self) -> MutexGuard<'static, World> {
        // Before the lock: another thread may run first.
        self.door.load(Ordering::SeqCst);
        let mut world = world();
        world.settle(Some(self.number));
        world
    }
}

/// Sends numbers one way through a ring of `capacity` entries. Returns whether the schedule
/// counted.
///
/// # Panics
///
/// If a number is lost, duplicated, reordered or torn.
pub fn stream(capacity: u32, numbers: u64) -> bool {
    use crate::ring::{Consumer, Entry, Layout, Producer, Words};

    struct Shared(Vec<AtomicU64>);

    impl Words for Shared {
        fn word(&self, offset: u64) -> Option<&AtomicU64> {
            self.0.get(usize::try_from(offset / 8).ok()?)
        }
    }

    let entry = |number: u64| -> Entry { std::array::from_fn(|word| number << 3 | word as u64) };
    begin();
    let layout = Layout::new(0, capacity);
    let shared = Arc::new(Shared((0..layout.end() / 8).map(|_| AtomicU64::new(0)).collect()));
    let sender = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            let mut ring = Producer::new(layout);
            for number in 1..=numbers {
                // A guess may be impossible: then the schedule has failed, or soon will.
                while ring.push(&*shared, entry(number)).is_err() && !has_failed() {
                    thread::yield_now();
                }
            }
            end_thread();
        })
    };
    let mut ring = Consumer::new(layout);
    let mut received = Vec::new();
    while received.len() as u64 != numbers && !has_failed() {
        match ring.pop(&*shared) {
            Ok(Some(entry)) => received.push(entry),
            Ok(None) | Err(_) => thread::yield_now(),
        }
    }
    end_thread();
    sender.join().expect("the sender does not panic");
    if has_failed() {
        return false;
    }
    assert_eq!(received, (1..=numbers).map(entry).collect::<Vec<_>>());
    true
}

/// Two threads that each read one word and then write the other. Returns whether both read the
/// value that is written after the read: possible unless the memory orders forbid it.
pub fn buffers_loads(load: Ordering, store: Ordering) -> bool {
    begin();
    let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let side = |mine: usize| {
        let words = Arc::clone(&words);
        move || {
            let found = words[mine].load(load);
            words[1 - mine].store(1, store);
            end_thread();
            found
        }
    };
    let other = thread::spawn(side(1));
    let found = side(0)();
    let both = found == 1 && other.join().expect("the other side does not panic") == 1;
    both && !has_failed()
}
