//! The guarantees of a queue, each kept by both engines: one test body, two runners.

#![expect(clippy::unwrap_used, reason = "a test that cannot prepare fails")]

use std::{fs::File, io, num::NonZeroU32, ops::Range, os::unix::fs::FileExt as _, sync::Arc};

use proptest::{prelude::*, test_runner::FileFailurePersistence};
use tierfeed_file_io::{AlignedBuffer, Engine, Kind, Operation, Queue, direct, io_uring_available};
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
    a_read_across_the_end_is_short_and_one_behind_it_is_empty
    a_descriptor_of_the_wrong_kind_fails_its_operation_only
    an_empty_queue_has_nothing_to_wait_for
    a_dropped_queue_has_ended_its_writes
    random_operations_do_what_memory_would
}

const BLOCK: usize = 4096;

fn queue(engine: Engine, depth: u32) -> Queue {
    Queue::new(engine, NonZeroU32::new(depth).unwrap()).unwrap()
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

fn next(queue: &mut Queue) -> (Operation, io::Result<usize>) {
    queue.wait().unwrap().expect("an operation is in flight")
}

fn what_is_written_is_read_back_past_the_page_cache(engine: Engine) {
    let file = Arc::new(tempfile::tempfile().unwrap());
    if direct::alignment(&file).unwrap().is_some_and(|it| it.offset.0 <= BLOCK as u64) {
        direct::set_caching(&file, direct::Caching::Bypassed).unwrap();
    }
    for depth in [1, 2] {
        let mut queue = queue(engine, depth);
        queue.push(write(&file, BLOCK as u64, filled(BLOCK, 7), 1));
        assert_eq!(next(&mut queue).1.unwrap(), BLOCK);
        queue.push(read(&file, 0, 2 * BLOCK, 2));
        let (ended, read) = next(&mut queue);
        assert_eq!((ended.token, read.unwrap()), (2, 2 * BLOCK));
        let (hole, written) = ended.buffer.as_slice().split_at(BLOCK);
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
            queue.push(read(&file, index * BLOCK as u64, BLOCK, index));
        }
        let Some((ended, read)) = queue.wait().unwrap() else { break };
        let index = u8::try_from(ended.token).unwrap();
        assert_eq!(read.unwrap(), BLOCK);
        assert!(ended.buffer.as_slice().iter().all(|byte| *byte == index), "bytes of another");
        assert!(!std::mem::replace(&mut seen[usize::from(index)], true), "{index} came out twice");
    }
    assert!(seen.iter().all(|seen| *seen));
}

fn a_read_across_the_end_is_short_and_one_behind_it_is_empty(engine: Engine) {
    let file = file_of(&[3; 1000]);
    let mut queue = queue(engine, 2);
    queue.push(read(&file, 900, 500, 0));
    queue.push(read(&file, 5000, 500, 1));
    let mut lengths = [usize::MAX; 2];
    for _ in 0..2 {
        let (ended, read) = next(&mut queue);
        let len = read.unwrap();
        assert!(ended.buffer.as_slice()[len..].iter().all(|byte| *byte == 0));
        lengths[usize::try_from(ended.token).unwrap()] = len;
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
            queue.push(read(file, 0, 64, token));
        }
        while let Some(ended) = queue.wait().unwrap() {
            check_bad_and_good(ended);
        }
    }
}

/// Operations with an odd token are good.
fn check_bad_and_good((ended, outcome): (Operation, io::Result<usize>)) {
    const EBADF: i32 = 9;
    assert_eq!(ended.buffer.as_slice().len(), 64, "the buffer comes back either way");
    match outcome {
        Ok(len) => assert_eq!((ended.token % 2, len), (1, 64)),
        Err(error) => assert_eq!((ended.token % 2, error.raw_os_error()), (0, Some(EBADF))),
    }
}

fn an_empty_queue_has_nothing_to_wait_for(engine: Engine) {
    assert!(queue(engine, 1).wait().unwrap().is_none());
    assert!(queue(engine, 8).wait().unwrap().is_none());
}

fn a_dropped_queue_has_ended_its_writes(engine: Engine) {
    let file = file_of(&[]);
    for round in 0..20 {
        let mut queue = queue(engine, 16);
        for index in 0..16 {
            queue.push(write(&file, index * BLOCK as u64, filled(BLOCK, 1), index));
        }
        if round % 2 == 0 {
            next(&mut queue).1.unwrap();
        }
        drop(queue);
        assert_eq!(Arc::strong_count(&file), 1, "an operation still holds the file");
        file.write_all_at(&vec![2; 16 * BLOCK], 0).unwrap();
        let mut found = vec![0; 16 * BLOCK];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found.iter().all(|byte| *byte == 2), "written after the drop");
    }
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
        while conflicts && !self.expected.is_empty() || !self.queue.has_room() {
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
        self.queue.push(operation);
        Ok(())
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        let (ended, moved) = next(&mut self.queue);
        let position = self.expected.iter().position(|it| it.0 == ended.token);
        prop_assert!(position.is_some(), "an unknown token came out");
        let (.., bytes) = self.expected.swap_remove(position.unwrap());
        prop_assert_eq!(moved.unwrap(), bytes.len());
        prop_assert_eq!(ended.buffer.as_slice(), &bytes[..]);
        Ok(())
    }

    fn finish(mut self) -> Result<(), TestCaseError> {
        while !self.expected.is_empty() {
            self.check()?;
        }
        prop_assert!(self.queue.wait().unwrap().is_none());
        let mut found = vec![0; self.memory.len()];
        self.file.read_exact_at(&mut found, 0).unwrap();
        prop_assert_eq!(found, self.memory);
        Ok(())
    }
}
