//! An answer on its way: its message, then the bytes of its samples, from where they lie.

use std::{io, sync::Arc};

use tierfeed_core::{id::SampleId, units::Bytes};
use tierfeed_numa_memory::SENT_RANGES_MAX;

use crate::peers::{
    Answer, AskId, Event, Held,
    channel::Channel,
    message::{Answered, Message, Tags},
    server::Shared,
};

/// The fields of a request that its answer needs.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) samples: Vec<SampleId>,
}

#[derive(Debug)]
pub(crate) struct Outgoing {
    request: Request,
    answer: Answer,
    /// Made when the answer is the next, because tags count.
    message: Option<Vec<u8>>,
    message_sent: usize,
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
        Self { request, answer, message: None, message_sent: 0, at: 0, done: Bytes(0), _sent: sent }
    }

    /// Sends what the connection takes; returns the number of bytes of samples, and 0 when all has left.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if the connection takes nothing now, else as `sendmsg(2)`.
    pub(crate) fn send(&mut self, channel: &mut Channel, tags: &mut Tags) -> io::Result<u64> {
        let (request, answer) = (&self.request, &self.answer);
        let bytes = self.message.get_or_insert_with(|| message(request, answer).tagged(tags));
        while self.message_sent < bytes.len() {
            self.message_sent += channel.send(&bytes[self.message_sent..])?;
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

fn message(request: &Request, answer: &Answer) -> Message {
    let id = request.id;
    let Answer::Samples(held) = answer else { return Message::OtherGeneration { id } };
    let entry = |(sample, held): (&SampleId, &Option<Held>)| Answered {
        sample: *sample,
        held: held.as_ref().map(|held| (held.len().0, held.xxh3())),
    };
    Message::Answer { id, entries: request.samples.iter().zip(held).map(entry).collect() }
}
