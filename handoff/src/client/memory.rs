//! Memory that a training job asks for besides its batches.

use std::{collections::BTreeMap, path::Path, time::Duration};

use tierfeed_core::units::Bytes;
use tierfeed_numa_memory::View;

use super::{
    deadline::Deadline,
    error::{ConnectError, ControlError},
    link::{Control, Link},
};
use crate::message::{FromAgent, FromClient, GRANT_CHUNKS_MAX, GrantId, Hello, Role};

/// Memory from the agent, in chunks.
///
/// Dropping it unmaps the memory, but the agent counts it as used until it is freed or the
/// connection ends.
#[derive(Debug)]
pub struct Grant {
    /// Its name.
    pub id: GrantId,
    /// The chunks, in the order of the agent; together at least as long as was asked for.
    pub chunks: Vec<View>,
}

/// A connection that only asks for memory, for a process that reads no batches.
#[derive(Debug)]
pub struct MemoryClient {
    link: Link,
}

impl MemoryClient {
    /// Connects to the agent that listens at `path`.
    ///
    /// # Errors
    ///
    /// As [`ConnectError`] tells.
    pub fn connect(path: &Path, timeout: Duration) -> Result<Self, ConnectError> {
        let deadline = Deadline::after(timeout);
        let link = Link::connect(path, &deadline)?;
        link.say_hello(&Hello::launched(BTreeMap::new(), Role::Memory))?;
        match link.hear_welcome(&deadline)? {
            (FromAgent::Welcome { reading: None }, _) => Ok(Self { link }),
            _ => Err(ConnectError::Protocol),
        }
    }

    /// Asks for memory in chunks and waits for it.
    ///
    /// # Errors
    ///
    /// [`ControlError::Denied`] with the agent's reason if there is not enough.
    pub fn allocate(&self, bytes: Bytes, timeout: Duration) -> Result<Grant, ControlError> {
        allocate(&self.link, bytes, timeout)
    }

    /// Unmaps memory and gives it back.
    ///
    /// # Errors
    ///
    /// If the agent is gone, or in another process than the one that allocated it. The memory is
    /// unmapped all the same.
    pub fn free(&self, grant: Grant) -> Result<(), ControlError> {
        free(&self.link, grant)
    }
}

pub(super) fn allocate(
    link: &Link,
    bytes: Bytes,
    timeout: Duration,
) -> Result<Grant, ControlError> {
    link.check_process()?;
    let mut control = link.control();
    let request = control.next_request();
    link.tell(&control, &FromClient::AllocateMemory { request, bytes: bytes.0 }, &[])?;
    let deadline = Deadline::after(timeout);
    let mut collected = None;
    loop {
        let heard = link.hear(&deadline);
        let (answer, descriptors) = match heard {
            Ok(heard) => heard,
            Err(error) => return Err(abandon(link, &mut control, collected, error)),
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
                    Err(error) => return Err(abandon(link, &mut control, collected, error)),
                }
                if grant.chunks.len() >= (chunks_total as usize).min(GRANT_CHUNKS_MAX) {
                    return collected.ok_or(ControlError::TimedOut);
                }
            }
            FromAgent::Denied { request: answered, reason } if answered == request => {
                return Err(ControlError::Denied { reason });
            }
            other => link.settle_late(&mut control, &other),
        }
    }
}

/// Gives back what has come so far of a grant that cannot be completed.
fn abandon(
    link: &Link,
    control: &mut Control,
    collected: Option<Grant>,
    error: impl Into<ControlError>,
) -> ControlError {
    if let Some(Grant { id, chunks }) = collected {
        drop(chunks);
        link.give_back(control, id);
    }
    error.into()
}

pub(super) fn free(link: &Link, grant: Grant) -> Result<(), ControlError> {
    let Grant { id, chunks } = grant;
    drop(chunks);
    link.check_process()?;
    let control = link.control();
    link.tell(&control, &FromClient::FreeMemory { grant: id }, &[])
}
