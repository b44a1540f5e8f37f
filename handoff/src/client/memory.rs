//! Memory that a training job requests besides its batches.

use std::{collections::BTreeMap, path::Path, time::Duration};

use tierfeed_core::units::Bytes;
use tierfeed_numa_memory::View;

use super::{
    connection::{Connection, Control},
    deadline::Deadline,
    error::{ConnectError, ControlError},
};
use crate::message::{FromAgent, FromClient, GRANT_CHUNKS_MAX, GrantId, Hello, Role};

/// Dropping it unmaps the memory, but the agent counts it as used until it is freed or the
/// connection ends.
#[derive(Debug)]
pub struct Grant {
    pub id: GrantId,
    /// The chunks, in the order of the agent; together at least as long as requested.
    pub chunks: Vec<View>,
}

/// A connection that only requests memory, for a process that reads no batches.
#[derive(Debug)]
pub struct MemoryClient {
    connection: Connection,
}

impl MemoryClient {
    pub fn connect(path: &Path, timeout: Duration) -> Result<Self, ConnectError> {
        let deadline = Deadline::after(timeout);
        let connection = Connection::connect(path, &deadline)?;
        connection.send_hello(&Hello::launched(BTreeMap::new(), Role::Memory))?;
        match connection.receive(&deadline)? {
            (FromAgent::Welcome { reading: None }, _) => Ok(Self { connection }),
            _ => Err(ConnectError::Protocol),
        }
    }

    /// Requests memory in chunks and waits for it.
    ///
    /// # Errors
    ///
    /// [`ControlError::Denied`] with the agent's reason if there is not enough.
    pub fn allocate(&self, bytes: Bytes, timeout: Duration) -> Result<Grant, ControlError> {
        allocate(&self.connection, bytes, timeout)
    }

    /// Unmaps memory and gives it back.
    ///
    /// # Errors
    ///
    /// If the agent is gone, or if this process is not the one that allocated the memory. The
    /// memory is unmapped in both cases.
    pub fn free(&self, grant: Grant) -> Result<(), ControlError> {
        free(&self.connection, grant)
    }
}

pub(super) fn allocate(
    connection: &Connection,
    bytes: Bytes,
    timeout: Duration,
) -> Result<Grant, ControlError> {
    connection.check_process()?;
    let mut control = connection.control();
    let request = control.next_request();
    connection.send_control(
        &control,
        &FromClient::AllocateMemory { request, bytes: bytes.0 },
        &[],
    )?;
    let deadline = Deadline::after(timeout);
    let mut collected = None;
    loop {
        let received = connection.receive(&deadline);
        let (answer, descriptors) = match received {
            Ok(received) => received,
            Err(error) => return Err(abandon(connection, &mut control, collected, error)),
        };
        match answer {
            FromAgent::Granted { request: answered, grant, chunks_total, chunk_bytes }
                if answered == request =>
            {
                let grant =
                    collected.get_or_insert_with(|| Grant { id: grant, chunks: Vec::new() });
                let mapped: Result<Vec<_>, _> = descriptors
                    .into_iter()
                    .zip(chunk_bytes)
                    .map(|(descriptor, len)| View::map(descriptor, Bytes(len)))
                    .collect();
                match mapped {
                    Ok(chunks) => grant.chunks.extend(chunks),
                    Err(error) => return Err(abandon(connection, &mut control, collected, error)),
                }
                if grant.chunks.len() >= (chunks_total as usize).min(GRANT_CHUNKS_MAX) {
                    return collected.ok_or(ControlError::TimedOut);
                }
            }
            FromAgent::Denied { request: answered, reason } if answered == request => {
                return Err(ControlError::Denied { reason });
            }
            other => connection.handle_late(&mut control, &other),
        }
    }
}

fn abandon(
    connection: &Connection,
    control: &mut Control,
    collected: Option<Grant>,
    error: impl Into<ControlError>,
) -> ControlError {
    if let Some(Grant { id, chunks }) = collected {
        drop(chunks);
        connection.give_back(control, id);
    }
    error.into()
}

pub(super) fn free(connection: &Connection, grant: Grant) -> Result<(), ControlError> {
    let Grant { id, chunks } = grant;
    drop(chunks);
    connection.check_process()?;
    let control = connection.control();
    connection.send_control(&control, &FromClient::FreeMemory { grant: id }, &[])
}
