//! Metrics of manager and agents, as Prometheus gets them: the sources of the bytes of batches, and the content
//! of tiers, for comparison with the view of the kernel.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use serde::Serialize;
use tierfeed_harness::clock::now;

/// An undisturbed agent answers within this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// An answer comes within this time while silent connections are open.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(5);

/// More than all metrics of a small job.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// The metrics of the agent in a run directory.
pub(crate) fn of_agent(run_dir: &Path) -> anyhow::Result<String> {
    let socket = run_dir.join("observe.sock");
    let stream = UnixStream::connect(&socket).with_context(|| socket.display().to_string())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    request(stream, "")
}

/// Scrapes the process that wrote `targets`, with the token beside it, and returns how long the answer took.
pub(crate) fn scrape(targets: &Path) -> anyhow::Result<Duration> {
    let begin = now();
    let token = fs::read_to_string(targets.with_file_name("metrics.token"))?;
    let stream = TcpStream::connect_timeout(&address_in(targets)?, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    request(stream, &format!("Authorization: Bearer {}\r\n", token.trim()))?;
    Ok(begin.elapsed())
}

fn request(mut stream: impl Read + Write, headers: &str) -> anyhow::Result<String> {
    stream.write_all(format!("GET /metrics HTTP/1.0\r\n{headers}\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer).context("no answer")?;
    ensure!(answer.contains(" 200 "), "{}", answer.lines().next().unwrap_or_default());
    Ok(answer)
}

/// The address of metrics in a file of targets for Prometheus.
pub(crate) fn address_in(targets: &Path) -> anyhow::Result<SocketAddr> {
    let text = fs::read_to_string(targets).with_context(|| targets.display().to_string())?;
    let document: serde_json::Value = serde_json::from_str(&text)?;
    let address = document[0]["targets"][0].as_str().context("no address")?;
    Ok(address.parse()?)
}

/// Bytes that were read for batches, by where they lay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_field_names, reason = "the keys of the outcome name their unit")]
pub(crate) struct Traffic {
    pub(crate) cold_bytes: u64,
    pub(crate) peer_bytes: u64,
    pub(crate) cache_bytes: u64,
}

impl Traffic {
    /// Of the metrics of one agent, or of several in one text.
    pub(crate) fn parse(metrics: &str) -> Self {
        let sum = |label| sum(metrics, "tierfeed_read_bytes_total{", label).unwrap_or(0);
        let (cold_bytes, peer_bytes) = (sum("tier=\"cold\""), sum("source=\"peer\""));
        Self { cold_bytes, peer_bytes, cache_bytes: sum("") - cold_bytes - peer_bytes }
    }

    /// The bytes that were read since `before`, by the same processes.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            cold_bytes: self.cold_bytes.saturating_sub(before.cold_bytes),
            peer_bytes: self.peer_bytes.saturating_sub(before.peer_bytes),
            cache_bytes: self.cache_bytes.saturating_sub(before.cache_bytes),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    pub(crate) fn cold_percent(self) -> f64 {
        let all = self.cold_bytes + self.peer_bytes + self.cache_bytes;
        1e2 * self.cold_bytes as f64 / (all as f64).max(1.0)
    }
}

/// The chunks of all tiers together, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TierUsage {
    /// Chunks that the data plane holds, including those that were given up and are still in use.
    pub(crate) held_bytes: u64,
    /// Chunks that the session may have.
    pub(crate) allowed_bytes: u64,
}

impl TierUsage {
    pub(crate) fn parse(metrics: &str) -> Option<Self> {
        let held_bytes = sum(metrics, "tierfeed_tier_held_bytes{", "")?;
        let allowed_bytes = sum(metrics, "tierfeed_tier_capacity_bytes{", "")?;
        Some(Self { held_bytes, allowed_bytes })
    }
}

/// The sum over all lines that begin with `name` and have `label`; `None` if no line begins so, or a value is
/// no whole number.
fn sum(metrics: &str, name: &str, label: &str) -> Option<u64> {
    let mut lines = metrics.lines().filter(|line| line.starts_with(name)).peekable();
    lines.peek()?;
    let values = lines.map(|line| line.rsplit_once(' '));
    values
        .map(|it| {
            let (labels, value) = it?;
            if labels.contains(label) { value.parse().ok() } else { Some(0) }
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_by_where_they_lay() {
        let metrics = "tierfeed_read_bytes_total{tier=\"cold\",source=\"file\"} 7\n\
                       tierfeed_read_bytes_total{tier=\"none\",source=\"peer\"} 20\n\
                       tierfeed_read_bytes_total{tier=\"main-memory\",source=\"cache\"} 10\n\
                       tierfeed_read_bytes_total{tier=\"cxl-memory\",source=\"cache\"} 3\n\
                       tierfeed_page_cache_read_bytes_total 7\n";
        let traffic = Traffic::parse(metrics);
        assert_eq!(traffic, Traffic { cold_bytes: 7, peer_bytes: 20, cache_bytes: 13 });
        let twice = Traffic::parse(&metrics.repeat(2));
        assert_eq!(twice.since(traffic), traffic);
        assert!((twice.cold_percent() - 17.5).abs() < 1e-9);
    }

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
