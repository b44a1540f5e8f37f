//! What an agent says that its tiers hold, from its metrics, to be compared with what the kernel says.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use anyhow::Context as _;
use serde::Serialize;

/// An agent that nothing happens to answers within this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// More than all metrics of a small job.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// Of all tiers together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Books {
    /// Chunks that the data plane has, those included that were given up and are still in use.
    pub(crate) held_bytes: u64,
    /// Chunks that the session may have.
    pub(crate) allowed_bytes: u64,
}

impl Books {
    /// Asks the agent that answers at `socket`.
    pub(crate) fn read(socket: &Path) -> anyhow::Result<Self> {
        let mut stream =
            UnixStream::connect(socket).with_context(|| socket.display().to_string())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
        Self::parse(&answer).context("the metrics do not say what tiers hold")
    }

    fn parse(metrics: &str) -> Option<Self> {
        let held_bytes = sum(metrics, "tierfeed_tier_held_bytes{")?;
        Some(Self { held_bytes, allowed_bytes: sum(metrics, "tierfeed_tier_capacity_bytes{")? })
    }
}

/// Of all lines that begin so; `None` if there are none, or one is no whole number.
fn sum(metrics: &str, name: &str) -> Option<u64> {
    let lines: Vec<&str> = metrics.lines().filter(|line| line.starts_with(name)).collect();
    let values = lines.iter().map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
    let values: Vec<u64> = values.collect::<Option<_>>()?;
    (!values.is_empty()).then(|| values.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_tiers_hold_is_summed() {
        let metrics = "tierfeed_tier_held_bytes{tier=\"scratch\"} 5\n\
                       tierfeed_tier_held_bytes{tier=\"storage\"} 7\n\
                       tierfeed_tier_capacity_bytes{tier=\"storage\"} 20\n\
                       tierfeed_tier_used_bytes{tier=\"storage\"} 1\n";
        let expected = Books { held_bytes: 12, allowed_bytes: 20 };
        assert_eq!(Books::parse(metrics), Some(expected));
        assert_eq!(Books::parse(&metrics.replace("capacity", "room")), None);
        assert_eq!(Books::parse(&metrics.replace(" 7", " many")), None);
    }
}
