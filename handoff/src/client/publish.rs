//! Hands over the order of an epoch: requests a file, fills it, waits until the agent has taken it.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    os::fd::OwnedFd,
    time::Duration,
};

use tierfeed_core::id::{Epoch, SampleId};

use super::{
    Client,
    connection::{Connection, Control},
    deadline::Deadline,
    error::ControlError,
};
use crate::message::{FromAgent, FromClient, RequestId};

impl Client {
    /// Hands over the samples that this rank reads in an epoch, in reading order, and waits until
    /// the agent has taken them. Needed before the first request for an epoch whose order is
    /// `published`.
    pub fn publish(
        &self,
        epoch: Epoch,
        samples: &[SampleId],
        timeout: Duration,
    ) -> Result<(), ControlError> {
        let connection = &self.connection;
        connection.check_process()?;
        let samples_count =
            u32::try_from(samples.len()).map_err(|_| ControlError::TooManySamples)?;
        let deadline = Deadline::after(timeout);
        let mut control = connection.control();
        // The agent takes one order at a time; an earlier call may have timed out before its answer
        // came.
        if let Some(earlier) = control.unanswered {
            receive_published(connection, &mut control, earlier, &deadline)?;
        }
        let request = control.next_request();
        let wish = FromClient::Publish { request, epoch: epoch.0, samples: samples_count };
        connection.send_control(&control, &wish, &[])?;
        let file = receive_file(connection, &mut control, request, &deadline)?;
        fill_order(file, samples).map_err(ControlError::System)?;
        connection.send_control(&control, &FromClient::OrderWritten { request }, &[])?;
        control.unanswered = Some(request);
        receive_published(connection, &mut control, request, &deadline)
    }
}

fn receive_file(
    connection: &Connection,
    control: &mut Control,
    request: RequestId,
    deadline: &Deadline,
) -> Result<OwnedFd, ControlError> {
    loop {
        let (answer, descriptors) = connection.receive(deadline)?;
        match answer {
            FromAgent::OrderFile { request: answered } if answered == request => {
                return match <[OwnedFd; 1]>::try_from(descriptors) {
                    Ok([file]) => Ok(file),
                    Err(_) => Err(ControlError::Denied { reason: NO_FILE.into() }),
                };
            }
            FromAgent::Denied { request: answered, reason } if answered == request => {
                return Err(ControlError::Denied { reason });
            }
            other => connection.handle_late(control, &other),
        }
    }
}

const NO_FILE: &str = "no file came for the order";

fn receive_published(
    connection: &Connection,
    control: &mut Control,
    request: RequestId,
    deadline: &Deadline,
) -> Result<(), ControlError> {
    loop {
        let (answer, _) = connection.receive(deadline)?;
        match answer {
            FromAgent::Published { request: answered } if answered == request => {
                control.unanswered = None;
                return Ok(());
            }
            other => connection.handle_late(control, &other),
        }
    }
}

/// Writes the numbers of `samples`, 32 bits each, little-endian.
pub(crate) fn fill_order(file: OwnedFd, samples: &[SampleId]) -> io::Result<()> {
    let mut writer = BufWriter::with_capacity(64 * 1024, File::from(file));
    for sample in samples {
        writer.write_all(&sample.0.to_le_bytes())?;
    }
    writer.flush()
}
