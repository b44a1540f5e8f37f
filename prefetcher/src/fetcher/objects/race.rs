//! Brings a range by one request, or by two if the first is late; one that brings too little is given up.
//!
//! Both are polled by the task that puts their bytes to the place, and end when it ends: whoever has an
//! answer of [`Race::run`] knows that nobody writes any more.

use std::{
    future::poll_fn,
    io,
    ops::Range,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use tierfeed_core::units::{Bytes as Amount, Nanoseconds};
use tierfeed_dataset::format::FormatError;
use tierfeed_object_stores::{Client, RangeBody, RangeError, Version, open_range};
use tokio::{
    sync::SemaphorePermit,
    time::{Instant, sleep_until},
};

use super::{Requests, figures::count, landing::Landing};

/// In each period of silence at least as many bytes must come, or the rest.
pub(super) const PROGRESS_MIN: u64 = 16 << 10;

/// Why a range is not there.
#[derive(Debug)]
pub(super) enum Miss {
    /// The store did not send it.
    Store(RangeError),
    /// The place did not take it.
    Place(io::Error),
    /// It cannot be decoded.
    Damaged(FormatError),
}

impl From<RangeError> for Miss {
    fn from(error: RangeError) -> Self {
        Self::Store(error)
    }
}

/// The requests for one range that are in flight.
pub(super) struct Race<'a> {
    requests: &'a Requests,
    object: &'a Arc<Version>,
    running: Vec<Attempt<'a>>,
}

/// One request.
struct Attempt<'a> {
    state: State,
    /// Of the object, the next byte that it brings.
    at: u64,
    /// Where it was when the deadline was set.
    marked: u64,
    deadline: Instant,
    /// Of a hedge.
    extra: Option<SemaphorePermit<'a>>,
}

enum State {
    Asked(Pin<Box<dyn Future<Output = Result<RangeBody, RangeError>> + Send>>),
    Answered(RangeBody),
}

impl<'a> Race<'a> {
    pub(super) fn new(requests: &'a Requests, object: &'a Arc<Version>) -> Self {
        Self { requests, object, running: Vec::with_capacity(1) }
    }

    /// Brings the rest of `landing`.
    ///
    /// # Errors
    ///
    /// What the last request failed with; `landing` then has what came until then.
    pub(super) async fn run(mut self, landing: &mut Landing<'_>) -> Result<(), Miss> {
        let (began, asked) = (Instant::now(), landing.rest());
        let len = Amount(asked.end - asked.start);
        self.requests.earn();
        self.send(asked, None);
        let patience = self.object.strong_etag().and_then(|_| self.requests.patience(len));
        let mut late = patience.map(|patience| began + patience);
        while !landing.is_full() {
            let deadlines = self.running.iter().map(|attempt| attempt.deadline).chain(late);
            let look = deadlines.fold(Instant::now() + self.silence(), Instant::min);
            tokio::select! {
                biased;
                (index, outcome) = self.next() => self.apply(index, outcome, landing)?,
                () = sleep_until(look) => {
                    let now = Instant::now();
                    self.give_up_silent(now)?;
                    if late.is_some_and(|late| late <= now) {
                        late = None;
                        self.hedge(landing.rest());
                    }
                }
            }
        }
        let took = Nanoseconds(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        self.requests.observe(len, took);
        Ok(())
    }

    fn send(&mut self, range: Range<u64>, extra: Option<SemaphorePermit<'a>>) {
        count(&self.requests.counters.requests, 1);
        let at = range.start;
        let asked = ask(self.requests.client.clone(), Arc::clone(self.object), range);
        let state = State::Asked(Box::pin(asked));
        let deadline = Instant::now() + self.silence();
        self.running.push(Attempt { state, at, marked: at, deadline, extra });
    }

    /// Asks a second time, if that is within bounds.
    fn hedge(&mut self, rest: Range<u64>) {
        if let Some(extra) = self.requests.extra() {
            count(&self.requests.counters.hedges, 1);
            self.send(rest, Some(extra));
        }
    }

    fn silence(&self) -> Duration {
        self.requests.settings.patience.silence
    }

    /// What the first request that has something to say says. Nothing is lost if nobody waits for it.
    async fn next(&mut self) -> (usize, Result<Option<Bytes>, RangeError>) {
        poll_fn(|context| {
            for (index, attempt) in self.running.iter_mut().enumerate() {
                if let Poll::Ready(outcome) = attempt.poll(context) {
                    return Poll::Ready((index, outcome));
                }
            }
            Poll::Pending
        })
        .await
    }

    fn apply(
        &mut self,
        index: usize,
        outcome: Result<Option<Bytes>, RangeError>,
        landing: &mut Landing<'_>,
    ) -> Result<(), Miss> {
        let end = landing.rest().end;
        let attempt = &mut self.running[index];
        let error = match outcome {
            Ok(Some(piece)) => {
                let used = landing.take(attempt.at, &piece).map_err(Miss::Place)?;
                attempt.at += piece.len() as u64;
                let counters = &self.requests.counters;
                count(&counters.discarded, (piece.len() as u64).saturating_sub(used));
                if landing.is_full() && attempt.extra.is_some() {
                    counters.hedges_won.fetch_add(1, Ordering::Relaxed);
                }
                return Ok(());
            }
            // A body that ends has all that was asked for, and so the landing is full.
            Ok(None) => RangeError::Length { expected: end, found: attempt.at },
            Err(error) => error,
        };
        self.lose(index, error)
    }

    /// A request failed, which is no matter while there is another, unless no other can do better.
    fn lose(&mut self, index: usize, error: RangeError) -> Result<(), Miss> {
        self.running.remove(index);
        if self.running.is_empty() || !error.is_temporary() {
            return Err(error.into());
        }
        Ok(())
    }

    /// Ends requests that brought too little since their deadline was set.
    fn give_up_silent(&mut self, now: Instant) -> Result<(), Miss> {
        let silence = self.silence();
        while let Some(index) =
            self.running.iter_mut().position(|it| !it.is_on_its_way(now, silence))
        {
            self.lose(index, RangeError::Silent { silence, least: PROGRESS_MIN })?;
        }
        Ok(())
    }
}

async fn ask(
    client: Client,
    object: Arc<Version>,
    range: Range<u64>,
) -> Result<RangeBody, RangeError> {
    open_range(&**client.store(), &object, range).await
}

impl Attempt<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, RangeError>> {
        loop {
            match &mut self.state {
                State::Asked(asked) => match asked.as_mut().poll(context) {
                    Poll::Ready(Ok(body)) => self.state = State::Answered(body),
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                },
                State::Answered(body) => return body.poll_piece(context),
            }
        }
    }

    /// Whether enough came, or there is still time; then the deadline is a later one.
    fn is_on_its_way(&mut self, now: Instant, silence: Duration) -> bool {
        if now < self.deadline {
            return true;
        }
        let is_enough = self.at - self.marked >= PROGRESS_MIN;
        self.marked = self.at;
        self.deadline = now + silence;
        is_enough
    }
}
