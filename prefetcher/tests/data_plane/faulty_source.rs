//! A source of made-up samples that fails where a seed says so.

use std::{
    io,
    path::PathBuf,
    sync::{Condvar, Mutex},
};

use tierfeed_core::{id::SampleId, session::Fault, units::Bytes};
use tierfeed_dataset::read::{ReadError, Source, Version};
use tierfeed_prefetcher::fetcher::Target;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Fine,
    Vanished,
    Changed,
    Truncated,
    Broken,
    Panics,
}

impl Fate {
    /// The outcome that must be reported to the session.
    pub(crate) fn outcome(self) -> Result<(), Fault> {
        match self {
            Self::Fine => Ok(()),
            Self::Vanished => Err(Fault::Vanished),
            Self::Changed => Err(Fault::Changed),
            Self::Truncated => Err(Fault::Truncated),
            Self::Broken | Self::Panics => Err(Fault::Io),
        }
    }
}

/// Delivers [`content`], unless the fate of the sample is another.
#[derive(Debug, Default)]
pub(crate) struct FaultySource {
    /// With 0 no read fails; else one sample in four fails.
    pub(crate) seed: u64,
    /// Reads block while this is closed.
    pub(crate) gate: Gate,
}

impl FaultySource {
    pub(crate) fn fate(&self, sample: SampleId) -> Fate {
        if self.seed == 0 {
            return Fate::Fine;
        }
        match mix(self.seed ^ u64::from(sample.0)) % 20 {
            0 => Fate::Vanished,
            1 => Fate::Changed,
            2 => Fate::Truncated,
            3 => Fate::Broken,
            4 => Fate::Panics,
            _ => Fate::Fine,
        }
    }
}

impl Source for FaultySource {
    fn read(&self, sample: SampleId, to: &Target) -> Result<(), ReadError> {
        self.gate.pass();
        let len = to.len();
        let path = PathBuf::from(format!("/made-up/{}", sample.0));
        let bytes = content(sample, len);
        // Half of the bytes arrive before anything goes wrong.
        let arrives = if self.fate(sample) == Fate::Fine { bytes.len() } else { bytes.len() / 2 };
        to.write(Bytes(0), &bytes[..arrives])
            .map_err(|source| ReadError::Io { path: path.clone(), source })?;
        let version = Version { size: len, mtime_ns: 0 };
        match self.fate(sample) {
            Fate::Fine => Ok(()),
            Fate::Vanished => Err(ReadError::Vanished { path }),
            Fate::Changed => {
                let found = Version { mtime_ns: 1, ..version };
                Err(ReadError::Changed { path, indexed: version, found })
            }
            Fate::Truncated => {
                Err(ReadError::Truncated { path, needed: len, found: Bytes(len.0 / 2) })
            }
            Fate::Broken => {
                Err(ReadError::Io { path, source: io::Error::from_raw_os_error(libc::EIO) })
            }
            Fate::Panics => panic!("by plan"),
        }
    }

    fn stop(&self) {
        self.gate.open();
    }
}

#[derive(Debug, Default)]
pub(crate) struct Gate {
    is_closed: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    pub(crate) fn close(&self) {
        *self.is_closed.lock().unwrap() = true;
    }

    pub(crate) fn open(&self) {
        *self.is_closed.lock().unwrap() = false;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let closed = self.is_closed.lock().unwrap();
        drop(self.changed.wait_while(closed, |closed| *closed).unwrap());
    }
}

pub(crate) fn content(sample: SampleId, len: Bytes) -> Vec<u8> {
    (0..len.0).map(|index| mix(index << 20 ^ u64::from(sample.0)).to_le_bytes()[0]).collect()
}

/// The finalizer of `SplitMix64`.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
