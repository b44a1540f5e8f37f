//! An answer on its way: its head, then the bytes of its samples, from where they lie.

use std::{io, sync::Arc};

use tierfeed_core::{id::SampleId, units::Bytes};
use tierfeed_numa_memory::SENT_RANGES_MAX;

use crate::peers::{
    Answer, AskId, Event, Held,
    access::Tags,
    channel::Channel,
    server::Shared,
    wire::{Answered, Header, Kind},
};

/// The fields of a request that its answer needs.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) generation: u64,
    pub(crate) samples: Vec<SampleId>,
}

#[derive(Debug)]
pub(crate) struct Outgoing {
    request: Request,
    answer: Answer,
    /// Head and tag; made when the answer is the next, because tags count.
    head: Option<Vec<u8>>,
    head_sent: usize,
    /// The sample whose bytes are sent, and how many were.
    at: usize,
    done: Bytes,
    /// Declared behind `answer`, so that its views are dropped before [`Event::Sent`].
    _sent: Sent,
}

/// Says [`Event::Sent`] when it is dropped.
pub(crate) struct Sent {
    id: AskId,
    shared: Arc<Shared>,
}

impl Sent {
    pub(crate) fn new(id: AskId, shared: &Arc<Shared>) -> Self {
        Self { id, shared: Arc::clone(shared) }
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        (self.shared.event)(Event::Sent(self.id));
    }
}

impl std::fmt::Debug for Sent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Sent").field(&self.id).finish()
    }
}

impl Outgoing {
    pub(crate) fn new(request: Request, mut answer: Answer, sent: Sent) -> Self {
        if let Answer::Samples(held) = &mut answer {
            held.resize_with(request.samples.len(), || None);
        }
        Self { request, answer, head: None, head_sent: 0, at: 0, done: Bytes(0), _sent: sent }
    }

    /// Sends what the connection takes; returns the number of bytes of samples, and 0 when all has left.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if the connection takes nothing now, else as `sendmsg(2)`.
    pub(crate) fn send(&mut self, channel: &mut Channel, tags: &mut Tags) -> io::Result<u64> {
        let (request, answer) = (&self.request, &self.answer);
        let bytes = self.head.get_or_insert_with(|| head(request, answer, tags));
        while self.head_sent < bytes.len() {
            self.head_sent += channel.send(&bytes[self.head_sent..])?;
        }
        let Answer::Samples(held) = &self.answer else { return Ok(0) };
        let left = held
            .get(self.at..)
            .unwrap_or_default()
            .iter()
            .zip([self.done].into_iter().chain(std::iter::repeat(Bytes(0))));
        let ranges = left.filter_map(|(held, done)| Some(held.as_ref()?.ranges_from(done)));
        let ranges: Vec<_> = ranges.flatten().take(SENT_RANGES_MAX).collect();
        if ranges.is_empty() {
            return Ok(0);
        }
        let sent = channel.send_ranges(&ranges)?;
        self.advance(sent);
        Ok(sent.0)
    }

    fn advance(&mut self, by: Bytes) {
        let Answer::Samples(held) = &self.answer else { return };
        self.done.0 += by.0;
        while let Some(sample) = held.get(self.at) {
            let len = sample.as_ref().map_or(0, |held| held.len().0);
            if self.done.0 < len {
                return;
            }
            self.done.0 -= len;
            self.at += 1;
        }
    }
}

fn head(request: &Request, answer: &Answer, tags: &mut Tags) -> Vec<u8> {
    let (kind, samples): (_, &[Option<Held>]) = match answer {
        Answer::Samples(samples) => (Kind::Answer, samples),
        Answer::OtherGeneration => (Kind::OtherGeneration, &[]),
    };
    let count = u32::try_from(samples.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::new();
    let &Request { id, generation, .. } = request;
    Header { kind, id, generation, count, within_ms: 0 }.write(&mut bytes);
    for (sample, held) in request.samples.iter().zip(samples) {
        let held = held.as_ref().map(|held| (held.len().0, held.xxh3()));
        Answered { sample: *sample, held }.write(&mut bytes);
    }
    let tag = tags.sign(&bytes);
    bytes.extend(tag);
    bytes
}
