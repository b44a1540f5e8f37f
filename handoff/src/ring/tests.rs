use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// Memory of this process in the role of shared memory.
struct Heap(Vec<AtomicU64>);

impl Heap {
    fn new(layout: Layout) -> Self {
        Self((0..layout.end() / WORD_BYTES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Words for Heap {
    fn word(&self, offset: u64) -> Option<&AtomicU64> {
        assert!(offset.is_multiple_of(WORD_BYTES));
        self.0.get(usize::try_from(offset / WORD_BYTES).unwrap())
    }
}

const CAPACITY: u32 = 4;

fn layout() -> Layout {
    Layout::new(128, CAPACITY)
}

fn entry(number: u64) -> Entry {
    std::array::from_fn(|word| number * 10 + word as u64)
}

#[derive(Debug, Clone)]
enum Op {
    Push,
    Pop,
    /// The other process writes an arbitrary value into one of the words.
    Scribble(u64, u64),
}

fn honest_op() -> impl Strategy<Value = Op> {
    prop_oneof![Just(Op::Push), Just(Op::Pop)]
}

fn any_op() -> impl Strategy<Value = Op> {
    let value = prop_oneof![0_u64..12, (0_u64..12).prop_map(|it| u64::MAX - it), any::<u64>()];
    // The two positions are few among the words, so they get tests of their own.
    let positions = prop::sample::select(vec![layout().pushed(), layout().popped()]);
    let anywhere = (0..layout().end() / WORD_BYTES).prop_map(|word| word * WORD_BYTES);
    let place = prop_oneof![positions, anywhere];
    prop_oneof![honest_op(), (place, value).prop_map(|(place, value)| Op::Scribble(place, value))]
}

proptest! {
    #[test]
    fn entries_come_out_as_they_went_in(ops in prop::collection::vec(honest_op(), 0..200)) {
        let memory = Heap::new(layout());
        let (mut producer, mut consumer) = (Producer::new(layout()), Consumer::new(layout()));
        let mut model = VecDeque::new();
        for (number, op) in (0..).zip(ops) {
            if matches!(op, Op::Push) {
                let pushed = producer.push(&memory, entry(number));
                if model.len() == CAPACITY as usize {
                    prop_assert_eq!(pushed, Err(PushError::Full { capacity: 4 }), "invariant 2");
                } else {
                    prop_assert_eq!(pushed, Ok(()));
                    model.push_back(entry(number));
                }
            } else {
                prop_assert_eq!(consumer.pop(&memory), Ok(model.pop_front()), "invariant 1");
            }
            prop_assert_eq!(consumer.waiting(&memory), Ok(model.len() as u64));
        }
    }

    /// `Heap::word` panics or returns `None` outside of the memory, and `word` panics then.
    #[test]
    fn nothing_in_the_shared_memory_leads_a_side_astray(
        ops in prop::collection::vec(any_op(), 0..200),
    ) {
        let memory = Heap::new(layout());
        let (mut producer, mut consumer) = (Producer::new(layout()), Consumer::new(layout()));
        for op in ops {
            match op {
                Op::Push => drop(producer.push(&memory, entry(7))),
                Op::Pop => drop(consumer.pop(&memory)),
                Op::Scribble(offset, value) => {
                    memory.word(offset).unwrap().store(value, Ordering::Relaxed);
                }
            }
            prop_assert!(consumer.waiting(&memory).is_ok_and(|it| it <= 4) || consumer.pop(&memory).is_err());
        }
    }
}

#[test]
fn positions_wrap_with_their_64_bits() {
    let memory = Heap::new(layout());
    let start = u64::MAX - 1;
    let mut producer = Producer { layout: layout(), pushed: start };
    let mut consumer = Consumer { layout: layout(), popped: start };
    for offset in [layout().pushed(), layout().popped()] {
        memory.word(offset).unwrap().store(start, Ordering::Relaxed);
    }
    for number in 0..5 {
        producer.push(&memory, entry(number)).unwrap();
        assert_eq!(consumer.pop(&memory), Ok(Some(entry(number))));
    }
}

#[test]
fn a_position_that_runs_ahead_or_back_is_noticed() {
    let memory = Heap::new(layout());
    let (mut producer, mut consumer) = (Producer::new(layout()), Consumer::new(layout()));
    producer.push(&memory, entry(0)).unwrap();
    for pushed in [5, u64::MAX] {
        memory.word(layout().pushed()).unwrap().store(pushed, Ordering::Relaxed);
        assert_eq!(consumer.pop(&memory), Err(Corrupt { theirs: pushed, ours: 0, capacity: 4 }));
    }
    for popped in [2, u64::MAX - 4] {
        memory.word(layout().popped()).unwrap().store(popped, Ordering::Relaxed);
        assert!(matches!(producer.push(&memory, entry(1)), Err(PushError::Corrupt(_))));
    }
}

#[test]
fn a_hundred_thousand_entries_pass_between_two_threads_in_order() {
    const ENTRIES: u64 = 100_000;
    let memory = Heap::new(layout());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut producer = Producer::new(layout());
            for number in 0..ENTRIES {
                while let Err(PushError::Full { .. }) = producer.push(&memory, entry(number)) {
                    std::thread::yield_now();
                }
            }
        });
        let mut consumer = Consumer::new(layout());
        for number in 0..ENTRIES {
            let popped = loop {
                match consumer.pop(&memory).unwrap() {
                    Some(popped) => break popped,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(popped, entry(number));
        }
    });
}
