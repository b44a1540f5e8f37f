//! Answers requests in their order while several samples are read at a time.
//!
//! Each of [`READS`] lanes is a thread that reads one sample after the other. Requests are
//! distributed to the lanes in turn and answers collected in turn, which keeps them in order
//! without a sorted queue; a lane holds at most one answer that waits.

use std::{
    io::{self, Read, Write},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
};

use tierfeed_client::reader::{Asked, Header, READS, ReadFault, TEXT_BYTES_MAX};
use tierfeed_core::units::Bytes;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The requests cannot be read, or end within one.
    #[error("cannot read a request: {0}")]
    Input(#[source] io::Error),
    #[error("cannot answer: {0}")]
    Output(#[source] io::Error),
}

type Answer = Result<Vec<u8>, ReadFault>;

/// Answers every request from `input` with what `read` returns, until `input` ends.
///
/// # Errors
///
/// If `input` ends within a request, or either side cannot be read or written. Earlier requests have
/// been answered if `output` accepts it.
pub(super) fn serve(
    read: impl Fn(Asked) -> Answer + Sync,
    input: impl Read + Send,
    output: impl Write,
) -> Result<(), ServeError> {
    let read = &read;
    thread::scope(|scope| {
        let (requests, answers): (Vec<_>, Vec<_>) = (0..READS)
            .map(|_| {
                let (ask, asked) = sync_channel::<Asked>(1);
                let (tell, told) = sync_channel(0);
                // A collector that has ended does not take the next answer either.
                scope.spawn(move || asked.iter().try_for_each(|asked| tell.send(read(asked))));
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

fn distribute(mut input: impl Read, lanes: &[SyncSender<Asked>]) -> io::Result<()> {
    for lane in lanes.iter().cycle() {
        let Some(asked) = next_request(&mut input)? else { break };
        if lane.send(asked).is_err() {
            break;
        }
    }
    Ok(())
}

/// Collects answers from the lanes in turn, until one has none any more: then no later one has.
fn collect(lanes: &[Receiver<Answer>], mut output: impl Write) -> io::Result<()> {
    for lane in lanes.iter().cycle() {
        let Ok(answer) = lane.recv() else { break };
        let (fault, errno, mut bytes) = match answer {
            Ok(bytes) => (None, None, bytes),
            Err(ReadFault { fault, errno, message }) => (Some(fault), errno, message.into_bytes()),
        };
        if fault.is_some() {
            bytes.truncate(TEXT_BYTES_MAX);
        }
        let header = Header { fault, errno: errno.unwrap_or(0), len: Bytes(bytes.len() as u64) };
        output.write_all(&header.to_bytes())?;
        output.write_all(&bytes)?;
        output.flush()?;
    }
    Ok(())
}

fn next_request(input: &mut impl Read) -> io::Result<Option<Asked>> {
    let mut bytes = [0; Asked::BYTES];
    let first = loop {
        match input.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            read => break read?,
        }
    };
    if first == 0 {
        return Ok(None);
    }
    input.read_exact(&mut bytes[first..])?;
    Ok(Some(Asked::of_bytes(bytes)))
}
