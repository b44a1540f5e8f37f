//! The metrics of an agent about the content of its tiers, for comparison with the view of the kernel.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use anyhow::Context as _;
use serde::Serialize;

/// An undisturbed agent answers within this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// More than all metrics of a small job.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// The chunks of all tiers together, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct TierUsage {
    /// Chunks that the data plane holds, including those that were given up and are still in use.
    pub(crate) held_bytes: u64,
    /// Chunks that the session may have.
    pub(crate) allowed_bytes: u64,
}

impl TierUsage {
    pub(crate) fn read(socket: &Path) -> anyhow::Result<Self> {
        Self::parse(&metrics(socket)?).context("the metrics have no bytes of tiers")
    }

    fn parse(metrics: &str) -> Option<Self> {
        let held_bytes = sum(metrics, "tierfeed_tier_held_bytes{")?;
        Some(Self { held_bytes, allowed_bytes: sum(metrics, "tierfeed_tier_capacity_bytes{")? })
    }
}

/// The metrics of the agent at `socket`, as Prometheus gets them.
pub(crate) fn metrics(socket: &Path) -> anyhow::Result<String> {
    let mut stream = UnixStream::connect(socket).with_context(|| socket.display().to_string())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    Ok(answer)
}

/// The sum over all lines that begin with `name`; `None` if there are none, or a value is no whole number.
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
    fn the_chunks_of_all_tiers_are_summed() {
        let metrics = "tierfeed_tier_held_bytes{tier=\"scratch\"} 5\n\
                       tierfeed_tier_held_bytes{tier=\"storage\"} 7\n\
                       tierfeed_tier_capacity_bytes{tier=\"storage\"} 20\n\
                       tierfeed_tier_used_bytes{tier=\"storage\"} 1\n";
        let expected = TierUsage { held_bytes: 12, allowed_bytes: 20 };
        assert_eq!(TierUsage::parse(metrics), Some(expected));
        assert_eq!(TierUsage::parse(&metrics.replace("capacity", "room")), None);
        assert_eq!(TierUsage::parse(&metrics.replace(" 7", " many")), None);
    }
}
