//! Merges several traces into one, on the clock of the first.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde_json::Value;

/// The longest file that is read; browsers do not open longer ones.
pub const TRACE_BYTES_MAX: u64 = 2 << 30;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    #[error("cannot read {}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} has {len} B; at most {TRACE_BYTES_MAX} B are read", .path.display())]
    TooLong { path: PathBuf, len: u64 },
    #[error("{} is no JSON, which a trace must be (not compressed): {source}", .path.display())]
    Json { path: PathBuf, source: serde_json::Error },
    /// A trace that is a list of events only has no start time.
    #[error(
        "{} does not say when it began, as profiles of a PyTorch without Kineto do not; \
         it cannot be laid beside another", .path.display()
    )]
    NoClock { path: PathBuf },
    #[error("{}: no list `traceEvents`, which torch.profiler and tierfeed write", .path.display())]
    NoEvents { path: PathBuf },
}

/// The first trace with the events of the others, their times shifted to its clock. Times of a trace without
/// `baseTimeNanoseconds` count from 1970, as those of older profilers.
pub fn merge(paths: &[PathBuf]) -> Result<Value, MergeError> {
    let mut merged: Option<Value> = None;
    for path in paths {
        let mut trace = read(path)?;
        let Some(first) = &mut merged else {
            events(&mut trace, path)?;
            merged = Some(trace);
            continue;
        };
        let shift_us = microseconds(base(&trace) - base(first));
        let mut others = std::mem::take(events(&mut trace, path)?);
        others.iter_mut().for_each(|event| shift(event, shift_us));
        events(first, path)?.extend(others);
    }
    Ok(merged.unwrap_or(Value::Null))
}

fn read(path: &Path) -> Result<Value, MergeError> {
    let failed = |source| MergeError::Read { path: path.to_owned(), source };
    let len = fs::metadata(path).map_err(failed)?.len();
    if len > TRACE_BYTES_MAX {
        return Err(MergeError::TooLong { path: path.to_owned(), len });
    }
    let text = fs::read(path).map_err(failed)?;
    let json = |source| MergeError::Json { path: path.to_owned(), source };
    serde_json::from_slice(&text).map_err(json)
}

fn events<'a>(trace: &'a mut Value, path: &Path) -> Result<&'a mut Vec<Value>, MergeError> {
    if trace.is_array() {
        return Err(MergeError::NoClock { path: path.to_owned() });
    }
    let events = trace.get_mut("traceEvents").and_then(Value::as_array_mut);
    events.ok_or_else(|| MergeError::NoEvents { path: path.to_owned() })
}

/// Whole nanoseconds: a float would round a time since 1970 by a quarter of a microsecond.
fn base(trace: &Value) -> i128 {
    let base = trace.get("baseTimeNanoseconds");
    let whole =
        base.and_then(|base| base.as_i64().map(i128::from).or(base.as_u64().map(i128::from)));
    whole.unwrap_or(0)
}

fn shift(event: &mut Value, by_us: f64) {
    let Some(at) = event.get("ts").and_then(Value::as_f64) else { return };
    event["ts"] = Value::from(at + by_us);
}

#[expect(clippy::cast_precision_loss, reason = "104 days in nanoseconds are exact")]
fn microseconds(nanoseconds: i128) -> f64 {
    nanoseconds as f64 / 1000.0
}
