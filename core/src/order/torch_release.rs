//! The releases of PyTorch, and what their samplers do differently.

use core::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// From this count of samples on, PyTorch 2.6 and later draw 64-bit words, and earlier versions do
/// not.
///
/// # Source
///
/// `randperm_cpu`: the threshold is `0xffff_ffff / 20`.
pub const WIDE_SAMPLES: u32 = 0xffff_ffff / 20;

/// The first release for which `torch-random` is known: earlier samplers drew from the default
/// generator directly, in ways that changed between releases.
pub const OLDEST_RANDOM: Version = Version { major: 1, minor: 9 };

/// Since this release permutations of [`WIDE_SAMPLES`] and more are drawn from 64-bit words.
pub(super) const WIDE_SINCE: Version = Version { major: 2, minor: 6 };

/// Since this release a sampler with its own generator draws a second permutation and discards it.
pub(super) const DISCARDS_SINCE: Version = Version { major: 1, minor: 11 };

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "(u16, u16)", into = "(u16, u16)")]
pub struct Version {
    pub major: u16,
    pub minor: u16,
}

impl From<(u16, u16)> for Version {
    fn from((major, minor): (u16, u16)) -> Self {
        Self { major, minor }
    }
}

impl From<Version> for (u16, u16) {
    fn from(Version { major, minor }: Version) -> Self {
        (major, minor)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a version of PyTorch as `torch.__version__` prints it, for example `2.6.0`")]
pub struct VersionError;

impl FromStr for Version {
    type Err = VersionError;

    /// Reads `torch.__version__`; the part behind the second number is ignored.
    fn from_str(text: &str) -> Result<Self, VersionError> {
        let mut parts = text.splitn(3, '.').map(str::parse);
        match (parts.next(), parts.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Ok(Self { major, minor }),
            _ => Err(VersionError),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}
