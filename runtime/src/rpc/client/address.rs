//! The address of a manager: a socket file of this host, or a host and a port.

use std::{fmt, path::PathBuf, str::FromStr};

/// The address of a manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A socket file of this host.
    Unix(PathBuf),
    /// A host and a port.
    Tcp(String),
}

/// A text that is no address of a manager.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is no address; write HOST:PORT or unix:/PATH")]
pub struct NoAddress {
    /// The text that was given.
    pub found: String,
}

impl FromStr for Address {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Self, NoAddress> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.into()));
        }
        match text.rsplit_once(':') {
            Some((host, port))
                if !host.is_empty() && port.parse::<u16>().is_ok_and(|it| it > 0) =>
            {
                Ok(Self::Tcp(text.to_owned()))
            }
            _ => Err(NoAddress { found: text.to_owned() }),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => f.write_str(address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_as_they_print() {
        for text in ["unix:/run/a b.sock", "127.0.0.1:7000", "[::1]:7000", "node7:1"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", "node7", "node7:", ":7000", "node7:0", "node7:65536", "node7:http"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
