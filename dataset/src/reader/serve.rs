//! The side of the reading process: numbers in, samples out.
//!
//! Each of [`READS`] lanes is a thread that reads one sample after the other. Numbers are
//! distributed to the lanes in turn and answers collected in turn, which keeps them in order
//! without a sorted queue; a lane holds at most one answer that waits.

use std::{
    io::{self, Read, Write},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
};

use crate::Index;
use tierfeed_core::id::SampleId;

use super::{HEADER_BYTES, READ, READS, TEXT_BYTES_MAX, code_of};
use crate::read::ReadError;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The numbers cannot be read, or end within one.
    #[error("cannot read the number of a sample, 4 bytes: {0}")]
    Input(#[source] io::Error),
    #[error("cannot answer: {0}")]
    Output(#[source] io::Error),
}

/// Answers every number from `input` with its sample of `index`, which `read` reads into a buffer
/// of its length, until `input` ends.
///
/// # Errors
///
/// If `input` ends within a number, or either side cannot be read or written. Earlier requests have
/// been answered if `output` accepts it.
pub fn serve(
    index: &Index,
    read: impl Fn(SampleId, &mut [u8]) -> Result<(), ReadError> + Sync,
    input: impl Read + Send,
    output: impl Write,
) -> Result<(), ServeError> {
    let read = &read;
    thread::scope(|scope| {
        let (requests, answers): (Vec<_>, Vec<_>) = (0..READS)
            .map(|_| {
                let (ask, asked) = sync_channel::<SampleId>(1);
                let (tell, told) = sync_channel(0);
                // A collector that has ended does not take the next answer either.
                scope.spawn(move || {
                    asked.iter().try_for_each(|sample| tell.send(answer(index, read, sample)))
                });
                (ask, told)
            })
            .unzip();
        let distributing = scope.spawn(move || distribute(input, &requests));
        let told = collect(&answers, output).map_err(ServeError::Output);
        // Lanes that wait for the collector to take their answer end now.
        drop(answers);
        let asked = distributing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        told.and(asked.map_err(ServeError::Input))
    })
}

fn distribute(mut input: impl Read, lanes: &[SyncSender<SampleId>]) -> io::Result<()> {
    for lane in lanes.iter().cycle() {
        let Some(sample) = next_number(&mut input)? else { break };
        if lane.send(SampleId(sample)).is_err() {
            break;
        }
    }
    Ok(())
}

/// Collects answers from the lanes in turn, until one has none any more: then no later one has.
fn collect(lanes: &[Receiver<Vec<u8>>], mut output: impl Write) -> io::Result<()> {
    for lane in lanes.iter().cycle() {
        let Ok(answer) = lane.recv() else { break };
        output.write_all(&answer)?;
        output.flush()?;
    }
    Ok(())
}

fn next_number(input: &mut impl Read) -> io::Result<Option<u32>> {
    let mut number = [0; 4];
    let mut filled = 0;
    while filled < number.len() {
        match input.read(&mut number[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(u32::from_le_bytes(number)))
}

fn answer(
    index: &Index,
    read: &(impl Fn(SampleId, &mut [u8]) -> Result<(), ReadError> + Sync),
    sample: SampleId,
) -> Vec<u8> {
    let samples = index.len();
    let outcome = if sample.0 < samples {
        let len = usize::try_from(index.size(sample).0).expect("a sample fits in memory");
        let mut answer = vec![0; HEADER_BYTES + len];
        read(sample, &mut answer[HEADER_BYTES..]).map(|()| answer)
    } else {
        Err(ReadError::Unknown { sample, samples })
    };
    let (status, mut answer) = match outcome {
        Ok(answer) => (READ, answer),
        Err(error) => (code_of(error.fault()), text(&error)),
    };
    let len = (answer.len() - HEADER_BYTES) as u64;
    answer[0] = status;
    answer[1..HEADER_BYTES].copy_from_slice(&len.to_le_bytes());
    answer
}

/// A text behind an empty header.
fn text(error: &ReadError) -> Vec<u8> {
    let mut answer = vec![0; HEADER_BYTES];
    answer.extend_from_slice(error.to_string().as_bytes());
    answer.truncate(HEADER_BYTES + TEXT_BYTES_MAX);
    answer
}
