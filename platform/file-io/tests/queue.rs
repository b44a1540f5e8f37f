//! The guarantees of a queue, each kept by both engines: one test body, two runners.

#![expect(clippy::unwrap_used, reason = "a test that cannot prepare fails")]

use std::{fs::File, num::NonZeroU32, ops::Range, os::unix::fs::FileExt as _, sync::Arc};

use proptest::{prelude::*, test_runner::FileFailurePersistence};
use tierfeed_file_io::{
    AlignedBuffer, Completion, DEPTH_MAX, Engine, Kind, Operation, Queue, QueueError, Refusal,
    direct, io_uring_available,
};
use tierfeed_test_needs::{Need, skip};

/// Runs each body on threads, and on a ring if this machine has `io_uring`.
macro_rules! on_both_engines {
    ($($name:ident)+) => {
        mod threads {
            $(#[test] fn $name() { super::$name(super::Engine::Threads); })+
        }
        mod ring {
            $(#[test] fn $name() {
                match super::io_uring_available() {
                    Ok(()) => super::$name(super::Engine::IoUring),
                    Err(reason) => super::skip(super::Need::IoUring, reason),
                }
            })+
        }
    };
}

on_both_engines! {
    what_is_written_is_read_back_past_the_page_cache
    all_of_many_in_flight_come_out_once_with_their_own_bytes
    a_full_queue_gives_the_operation_back
    a_read_across_the_end_is_short_and_one_behind_it_is_empty
    a_descriptor_of_the_wrong_kind_fails_its_operation_only
    an_offset_that_would_mean_the_current_position_is_refused
    an_empty_queue_has_nothing_to_wait_for
    a_dropped_queue_has_ended_its_writes
    more_depth_than_the_bound_is_refused
    random_operations_do_what_memory_would
}

const BLOCK: usize = 4096;

fn queue(engine: Engine, depth: u32) -> Queue {
    let queue = Queue::new(engine, NonZeroU32::new(depth).unwrap()).unwrap();
    assert_eq!(queue.engine(), engine);
    queue
}

fn file_of(bytes: &[u8]) -> Arc<File> {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(bytes, 0).unwrap();
    Arc::new(file)
}

fn filled(len: usize, byte: u8) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(len);
    buffer.as_mut_slice().fill(byte);
    buffer
}

fn read(file: &Arc<File>, offset: u64, len: usize, token: u64) -> Operation {
    let buffer = AlignedBuffer::zeroed(len);
    Operation { file: Arc::clone(file), kind: Kind::Read, offset, buffer, token }
}

fn write(file: &Arc<File>, offset: u64, buffer: AlignedBuffer, token: u64) -> Operation {
    Operation { file: Arc::clone(file), kind: Kind::Write, offset, buffer, token }
}

fn next(queue: &mut Queue) -> Completion {
    queue.wait().unwrap().expect("an operation is in flight")
}

fn what_is_written_is_read_back_past_the_page_cache(engine: Engine) {
    let file = Arc::new(tempfile::tempfile().unwrap());
    if direct::alignment(&file).unwrap().is_some_and(|it| it.offset.0 <= BLOCK as u64) {
        direct::set_caching(&file, direct::Caching::Bypassed).unwrap();
    }
    for depth in [1, 2] {
        let mut queue = queue(engine, depth);
        queue.push(write(&file, BLOCK as u64, filled(BLOCK, 7), 1)).unwrap();
        assert_eq!(next(&mut queue).outcome.unwrap(), BLOCK);
        queue.push(read(&file, 0, 2 * BLOCK, 2)).unwrap();
        let completion = next(&mut queue);
        assert_eq!((completion.token, completion.outcome.unwrap()), (2, 2 * BLOCK));
        let (hole, written) = completion.buffer.as_slice().split_at(BLOCK);
        assert!(hole.iter().all(|byte| *byte == 0) && written.iter().all(|byte| *byte == 7));
    }
}

fn all_of_many_in_flight_come_out_once_with_their_own_bytes(engine: Engine) {
    const COUNT: u8 = 200;
    const DEPTH: u32 = 32;
    let bytes: Vec<u8> = (0..COUNT).flat_map(|index| [index; BLOCK]).collect();
    let file = file_of(&bytes);
    let mut queue = queue(engine, DEPTH);
    let mut pending = 0..u64::from(COUNT);
    let mut seen = [false; COUNT as usize];
    loop {
        while queue.has_room() {
            let Some(index) = pending.next() else { break };
            queue.push(read(&file, index * BLOCK as u64, BLOCK, index)).unwrap();
            if index % 3 == 0 {
                queue.start();
            }
        }
        assert!(queue.in_flight() <= DEPTH);
        let Some(completion) = queue.wait().unwrap() else { break };
        let index = u8::try_from(completion.token).unwrap();
        assert_eq!(completion.outcome.unwrap(), BLOCK);
        assert!(completion.buffer.as_slice().iter().all(|byte| *byte == index), "bytes of another");
        assert!(!std::mem::replace(&mut seen[usize::from(index)], true), "{index} came out twice");
    }
    assert!(seen.iter().all(|seen| *seen));
    assert_eq!(queue.in_flight(), 0);
}

fn a_full_queue_gives_the_operation_back(engine: Engine) {
    let file = file_of(&[5; BLOCK]);
    for depth in [1, 3] {
        let mut queue = queue(engine, depth);
        for token in 0..u64::from(depth) {
            queue.push(read(&file, 0, BLOCK, token)).unwrap();
        }
        let refused = queue.push(write(&file, 0, filled(9, 9), 42)).unwrap_err();
        assert_eq!(refused.reason, Refusal::Full { depth });
        assert_eq!(refused.operation.token, 42);
        assert_eq!(refused.operation.buffer.as_slice(), [9; 9]);
        next(&mut queue);
        queue.push(refused.operation).unwrap();
        while queue.wait().unwrap().is_some() {}
    }
}

fn a_read_across_the_end_is_short_and_one_behind_it_is_empty(engine: Engine) {
    let file = file_of(&[3; 1000]);
    let mut queue = queue(engine, 2);
    queue.push(read(&file, 900, 500, 0)).unwrap();
    queue.push(read(&file, 5000, 500, 1)).unwrap();
    let mut lengths = [usize::MAX; 2];
    for _ in 0..2 {
        let completion = next(&mut queue);
        let len = completion.outcome.unwrap();
        assert!(completion.buffer.as_slice()[len..].iter().all(|byte| *byte == 0));
        lengths[usize::try_from(completion.token).unwrap()] = len;
    }
    assert_eq!(lengths, [100, 0]);
}

fn a_descriptor_of_the_wrong_kind_fails_its_operation_only(engine: Engine) {
    let write_only = tempfile::NamedTempFile::new().unwrap();
    let write_only = Arc::new(File::options().write(true).open(write_only.path()).unwrap());
    let good = file_of(&[1; 64]);
    for depth in [1, 4] {
        let mut queue = queue(engine, depth);
        for (token, file) in [(0, &write_only), (1, &good), (2, &write_only), (3, &good)] {
            if !queue.has_room() {
                check_bad_and_good(next(&mut queue));
            }
            queue.push(read(file, 0, 64, token)).unwrap();
        }
        while let Some(completion) = queue.wait().unwrap() {
            check_bad_and_good(completion);
        }
    }
}

/// Operations with an odd token are good.
fn check_bad_and_good(completion: Completion) {
    const EBADF: i32 = 9;
    assert_eq!(completion.buffer.as_slice().len(), 64, "the buffer comes back either way");
    match completion.outcome {
        Ok(len) => assert_eq!((completion.token % 2, len), (1, 64)),
        Err(error) => assert_eq!((completion.token % 2, error.raw_os_error()), (0, Some(EBADF))),
    }
}

fn an_offset_that_would_mean_the_current_position_is_refused(engine: Engine) {
    let file = file_of(&[1; 64]);
    let mut queue = queue(engine, 1);
    for offset in [u64::MAX, Operation::OFFSET_MAX + 1] {
        let refused = queue.push(read(&file, offset, 64, 0)).unwrap_err();
        assert_eq!(refused.reason, Refusal::Offset { offset });
    }
    assert_eq!(queue.in_flight(), 0);
}

fn an_empty_queue_has_nothing_to_wait_for(engine: Engine) {
    assert!(queue(engine, 1).wait().unwrap().is_none());
    assert!(queue(engine, 8).wait().unwrap().is_none());
}

/// Also if the drop comes before the kernel was told of all of them.
fn a_dropped_queue_has_ended_its_writes(engine: Engine) {
    let file = file_of(&[]);
    for round in 0..20 {
        let mut queue = queue(engine, 16);
        for index in 0..16 {
            queue.push(write(&file, index * BLOCK as u64, filled(BLOCK, 1), index)).unwrap();
        }
        if round % 2 == 0 {
            next(&mut queue);
        }
        drop(queue);
        assert_eq!(Arc::strong_count(&file), 1, "an operation still holds the file");
        file.write_all_at(&vec![2; 16 * BLOCK], 0).unwrap();
        let mut found = vec![0; 16 * BLOCK];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found.iter().all(|byte| *byte == 2), "written after the drop");
    }
}

fn more_depth_than_the_bound_is_refused(engine: Engine) {
    let outcome = Queue::new(engine, NonZeroU32::new(DEPTH_MAX + 1).unwrap());
    assert!(matches!(outcome, Err(QueueError::TooDeep { depth }) if depth == DEPTH_MAX + 1));
}

/// As long as any step reaches: the end of a file has a test of its own.
const LEN: usize = 29_000;

#[derive(Debug, Clone)]
struct Step {
    is_write: bool,
    offset: u16,
    len: u16,
    byte: u8,
}

prop_compose! {
    fn any_step()(
        is_write in any::<bool>(), offset in 0_u16..20_000, len in 1_u16..=9_000, byte in 1_u8..,
    ) -> Step {
        Step { is_write, offset, len, byte }
    }
}

/// Operations that overlap have no order, so an overlapping one waits until the queue is empty.
fn random_operations_do_what_memory_would(engine: Engine) {
    let steps = prop::collection::vec(any_step(), 1..40);
    let config = ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::with_cases(40)
    };
    proptest!(config, |(steps in steps, depth in 1_u32..12)| {
        let mut body = Body::new(queue(engine, depth));
        for (token, step) in steps.iter().enumerate() {
            body.play(token as u64, step)?;
        }
        body.finish()?;
    });
}

struct Body {
    queue: Queue,
    file: Arc<File>,
    memory: Vec<u8>,
    /// Token, range, whether it writes, and the expected content of its buffer.
    expected: Vec<(u64, Range<usize>, bool, Vec<u8>)>,
}

impl Body {
    fn new(queue: Queue) -> Self {
        let memory = vec![0; LEN];
        Self { queue, file: file_of(&memory), memory, expected: Vec::new() }
    }

    fn play(&mut self, token: u64, step: &Step) -> Result<(), TestCaseError> {
        let range = usize::from(step.offset)..usize::from(step.offset) + usize::from(step.len);
        let conflicts = self.expected.iter().any(|(_, other, is_write, _)| {
            (step.is_write || *is_write) && other.start < range.end && range.start < other.end
        });
        while conflicts && self.queue.in_flight() > 0 || !self.queue.has_room() {
            self.check()?;
        }
        let (len, offset) = (usize::from(step.len), u64::from(step.offset));
        let operation = if step.is_write {
            self.memory[range.clone()].fill(step.byte);
            write(&self.file, offset, filled(len, step.byte), token)
        } else {
            read(&self.file, offset, len, token)
        };
        let bytes = self.memory[range.clone()].to_vec();
        self.expected.push((token, range, step.is_write, bytes));
        self.queue.push(operation).unwrap();
        Ok(())
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        let completion = next(&mut self.queue);
        let position = self.expected.iter().position(|it| it.0 == completion.token);
        prop_assert!(position.is_some(), "an unknown token came out");
        let (.., bytes) = self.expected.swap_remove(position.unwrap());
        prop_assert_eq!(completion.outcome.unwrap(), bytes.len());
        prop_assert_eq!(completion.buffer.as_slice(), &bytes[..]);
        Ok(())
    }

    fn finish(mut self) -> Result<(), TestCaseError> {
        while self.queue.in_flight() > 0 {
            self.check()?;
        }
        prop_assert!(self.expected.is_empty());
        let mut found = vec![0; self.memory.len()];
        self.file.read_exact_at(&mut found, 0).unwrap();
        prop_assert_eq!(found, self.memory);
        Ok(())
    }
}
