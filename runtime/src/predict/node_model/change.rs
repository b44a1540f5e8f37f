//! Parses a change of a tier: `cxl=64GiB`, `scratch=none`.

use std::str::FromStr;

use tierfeed_core::{
    tier::Kind,
    units::{Bytes, ParseError},
};

/// A change of one tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The kind of the tier.
    pub kind: Kind,
    /// The new size as in a job file, staging included; `None` removes the tier.
    pub size: Option<Bytes>,
}

/// Why a text is no change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// It has no equals sign.
    #[error("`{text}`: expected TIER=SIZE or TIER=none, such as cxl=64GiB")]
    NoSize {
        /// The text that was given.
        text: String,
    },
    /// It names no tier.
    #[error("`{name}` in `{text}`: expected one of {NAMES}")]
    UnknownTier {
        /// The text that was given.
        text: String,
        /// The name in the text.
        name: String,
    },
    /// Its size cannot be parsed.
    #[error("`{size}` in `{text}`: {source}, or none")]
    BadSize {
        /// The text that was given.
        text: String,
        /// The size in the text.
        size: String,
        /// The parser's error.
        source: ParseError,
    },
}

const NAMES: &str = "main (main-memory), cxl (cxl-memory), scratch, storage";

/// The kind that a name as in job files, or its short form, stands for.
///
/// # Errors
///
/// What would be right.
pub fn parse_kind(name: &str) -> Result<Kind, &'static str> {
    match name {
        "main" => Ok(Kind::MainMemory),
        "cxl" => Ok(Kind::CxlMemory),
        name => name.parse().map_err(|_| NAMES),
    }
}

impl FromStr for Change {
    type Err = ChangeError;

    fn from_str(text: &str) -> Result<Self, ChangeError> {
        let quoted = || text.to_owned();
        let parts = text.split_once('=').ok_or_else(|| ChangeError::NoSize { text: quoted() })?;
        let (name, size) = (parts.0.trim(), parts.1.trim());
        let kind = parse_kind(name)
            .map_err(|_| ChangeError::UnknownTier { text: quoted(), name: name.to_owned() })?;
        if size == "none" {
            return Ok(Self { kind, size: None });
        }
        let parsed = size.parse();
        let size = parsed.map_err(|source| ChangeError::BadSize {
            text: quoted(),
            size: size.to_owned(),
            source,
        })?;
        Ok(Self { kind, size: Some(size) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_names_stand_for_the_same_tier() {
        for (text, kind, size) in [
            ("cxl=64GiB", Kind::CxlMemory, Some(Bytes(64 << 30))),
            ("cxl-memory = 64 GiB", Kind::CxlMemory, Some(Bytes(64 << 30))),
            ("main=1 MiB", Kind::MainMemory, Some(Bytes::mib(1))),
            ("scratch=none", Kind::Scratch, None),
            ("storage=1TB", Kind::Storage, Some(Bytes(1_000_000_000_000))),
        ] {
            assert_eq!(text.parse(), Ok(Change { kind, size }), "{text}");
        }
    }

    #[test]
    fn a_wrong_change_is_named_with_what_would_be_right() {
        for (text, parts) in [
            ("cxl", ["`cxl`", "TIER=SIZE"]),
            ("", ["``", "cxl=64GiB"]),
            ("nvme=1GiB", ["`nvme` in `nvme=1GiB`", "scratch, storage"]),
            ("cxl=64", ["`64` in `cxl=64`", "GiB"]),
            ("cxl=", ["`` in `cxl=`", "a number with a unit, or none"]),
            ("cxl=99999999 TiB", ["99999999 TiB", "too large"]),
        ] {
            let said = text.parse::<Change>().map_err(|error| error.to_string());
            let said = said.expect_err(text);
            assert!(parts.iter().all(|part| said.contains(part)), "{text}: {said}");
        }
    }
}
