//! Reads a range by one request, or by two if the first is late; gives up requests without progress.
//!
//! One task polls both requests and writes their bytes, and both end with it: after [`Race::run`] returned,
//! no request writes any more.

use std::{
    future::poll_fn,
    io,
    ops::Range,
    pin::Pin,
    sync::Arc,
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

use super::{Requests, range_writer::RangeWriter};

/// The least number of bytes that a request must deliver in each `Patience::silence`.
pub(super) const PROGRESS_MIN: u64 = 16 << 10;

#[derive(Debug)]
pub(super) enum FetchError {
    Store(RangeError),
    Target(io::Error),
    Damaged(FormatError),
}

impl From<RangeError> for FetchError {
    fn from(error: RangeError) -> Self {
        Self::Store(error)
    }
}

pub(super) struct Race<'a> {
    requests: &'a Requests,
    object: &'a Arc<Version>,
    running: Vec<Attempt<'a>>,
}

struct Attempt<'a> {
    state: State,
    /// The offset in the object of the next byte that it delivers.
    at: u64,
    /// The value of `at` when the deadline was set.
    marked: u64,
    deadline: Instant,
    /// `None` for the first request, which needs no permit.
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

    /// Reads the remaining range of `writer`.
    ///
    /// # Errors
    ///
    /// The error of the last request; `writer` keeps the bytes that arrived before.
    pub(super) async fn run(mut self, writer: &mut RangeWriter<'_>) -> Result<(), FetchError> {
        let (began, asked) = (Instant::now(), writer.remaining());
        let len = Amount(asked.end - asked.start);
        self.requests.count_needed();
        self.send(asked, None);
        let delay = self.object.strong_etag().and_then(|_| self.requests.hedge_delay(len));
        let mut hedge_at = delay.map(|delay| began + delay);
        while !writer.is_full() {
            let deadlines = self.running.iter().map(|attempt| attempt.deadline).chain(hedge_at);
            let wake = deadlines.fold(Instant::now() + self.silence(), Instant::min);
            tokio::select! {
                biased;
                (index, outcome) = self.next() => self.apply(index, outcome, writer)?,
                () = sleep_until(wake) => {
                    let now = Instant::now();
                    self.give_up_silent(now)?;
                    if hedge_at.is_some_and(|at| at <= now) {
                        hedge_at = None;
                        self.hedge(writer.remaining());
                    }
                }
            }
        }
        let took = Nanoseconds(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        self.requests.observe(len, took);
        Ok(())
    }

    fn send(&mut self, range: Range<u64>, extra: Option<SemaphorePermit<'a>>) {
        self.requests.counters.count(|figures| figures.requests += 1);
        let at = range.start;
        let asked = ask(self.requests.client.clone(), Arc::clone(self.object), range);
        let state = State::Asked(Box::pin(asked));
        let deadline = Instant::now() + self.silence();
        self.running.push(Attempt { state, at, marked: at, deadline, extra });
    }

    fn hedge(&mut self, remaining: Range<u64>) {
        if let Some(extra) = self.requests.try_hedge() {
            self.requests.counters.count(|figures| figures.hedges += 1);
            self.send(remaining, Some(extra));
        }
    }

    fn silence(&self) -> Duration {
        self.requests.settings.patience.silence
    }

    /// The next piece or error of any request, with its index. Cancel safe.
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
        writer: &mut RangeWriter<'_>,
    ) -> Result<(), FetchError> {
        let end = writer.remaining().end;
        let attempt = &mut self.running[index];
        let error = match outcome {
            Ok(Some(piece)) => {
                let used = writer.write(attempt.at, &piece).map_err(FetchError::Target)?;
                attempt.at += piece.len() as u64;
                let discarded = (piece.len() as u64).saturating_sub(used);
                let is_won = writer.is_full() && attempt.extra.is_some();
                if discarded > 0 || is_won {
                    self.requests.counters.count(|figures| {
                        figures.discarded.0 += discarded;
                        figures.hedges_won += u64::from(is_won);
                    });
                }
                return Ok(());
            }
            // A body that ends has delivered its whole range, so the writer would be full.
            Ok(None) => RangeError::Length { expected: end, found: attempt.at },
            Err(error) => error,
        };
        self.drop_attempt(index, error)
    }

    /// Removes a failed request. An error if it was the last one, or if the error is permanent.
    fn drop_attempt(&mut self, index: usize, error: RangeError) -> Result<(), FetchError> {
        self.running.remove(index);
        if self.running.is_empty() || !error.is_temporary() {
            return Err(error.into());
        }
        Ok(())
    }

    /// Ends requests that delivered too little since their deadline was set.
    fn give_up_silent(&mut self, now: Instant) -> Result<(), FetchError> {
        let silence = self.silence();
        while let Some(index) =
            self.running.iter_mut().position(|it| !it.makes_progress(now, silence))
        {
            self.drop_attempt(index, RangeError::Silent { silence, least: PROGRESS_MIN })?;
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

    /// Whether there is still time, or enough bytes arrived; in the latter case the deadline is extended.
    fn makes_progress(&mut self, now: Instant, silence: Duration) -> bool {
        if now < self.deadline {
            return true;
        }
        let is_enough = self.at - self.marked >= PROGRESS_MIN;
        self.marked = self.at;
        self.deadline = now + silence;
        is_enough
    }
}
