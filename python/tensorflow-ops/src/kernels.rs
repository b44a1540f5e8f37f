//! The ops: a batch by its number, the moment at which a pipeline wants it, its delivery, and strings.
//!
//! All are stateless, so that iterators over them can be checkpointed.

use std::{ffi::CStr, sync::Arc};

use tierfeed_core::units::Nanoseconds;
use tierfeed_handoff::monotonic_now;

use crate::{
    c_api::{self, Attributes, Code, Context, Failure, Kernel},
    cold::closed,
    control,
    feed::Feed,
    outputs::fill,
};

const FEED: &CStr = c"feed: int";

pub(crate) fn register() -> Result<(), Failure> {
    c_api::register::<Batch>()?;
    c_api::register::<Wanted>()?;
    c_api::register::<Delivered>()?;
    c_api::register::<Strings>()
}

fn feed_of(attributes: &Attributes) -> Result<Arc<Feed>, Failure> {
    let number = attributes.number(c"feed")?;
    control::feed(number).ok_or_else(closed)
}

/// Hands out the batch of a number (`Feed::batch`).
struct Batch(Arc<Feed>);

impl Kernel for Batch {
    const NAME: &'static CStr = c"TierfeedBatch";
    const INPUTS: &'static [&'static CStr] = &[c"number: int64"];
    const OUTPUTS: &'static [&'static CStr] = &[
        c"data: uint8",
        c"starts: int64",
        c"lengths: int64",
        c"labels: int64",
        c"samples: int64",
        c"ticket: int64",
        c"fields: string",
    ];
    const ATTRIBUTES: &'static [&'static CStr] = &[FEED];

    fn create(attributes: &Attributes) -> Result<Self, Failure> {
        feed_of(attributes).map(Self)
    }

    fn compute(&self, context: &Context<'_>) -> Result<(), Failure> {
        let Self(feed) = self;
        let batch = feed.batch(context.number(0)?)?;
        let answer = feed.get(batch)?;
        if answer.staged.end() == 0 {
            // No tensor refers to its memory, so it is gone before the pipeline takes it.
            feed.delivered(answer.ticket, monotonic_now());
        }
        fill(context, feed.form(), &answer)
    }
}

/// Notes the batch that the pipeline waits for, and since when.
struct Wanted(Arc<Feed>);

impl Kernel for Wanted {
    const NAME: &'static CStr = c"TierfeedWanted";
    const INPUTS: &'static [&'static CStr] = &[c"number: int64"];
    const OUTPUTS: &'static [&'static CStr] = &[c"wanted_ns: int64"];
    const ATTRIBUTES: &'static [&'static CStr] = &[FEED];

    fn create(attributes: &Attributes) -> Result<Self, Failure> {
        feed_of(attributes).map(Self)
    }

    fn compute(&self, context: &Context<'_>) -> Result<(), Failure> {
        let Self(feed) = self;
        let batch = feed.batch(context.number(0)?)?;
        let now = i64::try_from(feed.wanted(batch).0).unwrap_or(i64::MAX);
        context.set_numbers(0, &[], &[now])
    }
}

/// Reports that the pipeline takes a batch. It passes the labels and fields on, so that the graph cannot
/// leave the report out.
///
/// The number of a batch has a meaning only in one order, so the order of a checkpoint is compared with that
/// of the job.
struct Delivered(Arc<Feed>);

impl Kernel for Delivered {
    const NAME: &'static CStr = c"TierfeedDelivered";
    const INPUTS: &'static [&'static CStr] = &[
        c"wanted_ns: int64",
        c"ticket: int64",
        c"labels: int64",
        c"fields: string",
        c"saved_order: int64",
        c"order: int64",
    ];
    const OUTPUTS: &'static [&'static CStr] = &[c"taken: int64", c"taken_fields: string"];
    const ATTRIBUTES: &'static [&'static CStr] = &[FEED];

    fn create(attributes: &Attributes) -> Result<Self, Failure> {
        feed_of(attributes).map(Self)
    }

    fn compute(&self, context: &Context<'_>) -> Result<(), Failure> {
        if context.number(4)? != context.number(5)? {
            let message = "the checkpoint of this iterator was saved in another order: dataset, order, \
                           batch_size or world differ from those of the job; restore it in the job that \
                           it was saved in, or name epoch= and start_step= of the dataset";
            return Err(Failure::new(Code::FailedPrecondition, message));
        }
        let wanted = u64::try_from(context.number(0)?).unwrap_or(0);
        self.0.delivered(context.number(1)?, Nanoseconds(wanted));
        context.forward(2, 0)?;
        context.forward(3, 1)
    }
}

struct Strings;

impl Kernel for Strings {
    const NAME: &'static CStr = c"TierfeedStrings";
    const INPUTS: &'static [&'static CStr] = &[c"data: uint8", c"starts: int64", c"lengths: int64"];
    const OUTPUTS: &'static [&'static CStr] = &[c"strings: string"];
    const ATTRIBUTES: &'static [&'static CStr] = &[];

    fn create(_: &Attributes) -> Result<Self, Failure> {
        Ok(Self)
    }

    fn compute(&self, context: &Context<'_>) -> Result<(), Failure> {
        let (starts, lengths) = (context.numbers(1)?, context.numbers(2)?);
        context.bytes(0, |data| {
            let ranges = starts.iter().zip(&lengths).map(|(start, len)| {
                let start = usize::try_from(*start).ok()?;
                data.get(start..start.checked_add(usize::try_from(*len).ok()?)?)
            });
            let strings: Option<Vec<_>> = ranges.collect();
            let strings = strings.filter(|_| starts.len() == lengths.len()).ok_or_else(|| {
                let message =
                    format!("a row lies outside of the {} bytes of its batch", data.len());
                Failure::new(Code::InvalidArgument, message)
            })?;
            context.set_strings(0, &strings)
        })
    }
}
