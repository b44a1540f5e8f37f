//! The sources of the bytes of batches, according to the metrics of the agents.

use serde::Serialize;

/// Bytes that were read for batches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Traffic {
    #[serde(rename = "cold_bytes")]
    pub(crate) cold: u64,
    #[serde(rename = "peer_bytes")]
    pub(crate) peer: u64,
    #[serde(rename = "cache_bytes")]
    pub(crate) cache: u64,
}

impl Traffic {
    pub(crate) fn parse(metrics: &str) -> Self {
        let mut traffic = Self::default();
        for line in metrics.lines().filter(|it| it.starts_with("tierfeed_read_bytes_total{")) {
            let Some((labels, value)) = line.rsplit_once(' ') else { continue };
            let bytes = value.parse().unwrap_or(0);
            *if labels.contains("tier=\"cold\"") {
                &mut traffic.cold
            } else if labels.contains("source=\"peer\"") {
                &mut traffic.peer
            } else {
                &mut traffic.cache
            } += bytes;
        }
        traffic
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            cold: self.cold + other.cold,
            peer: self.peer + other.peer,
            cache: self.cache + other.cache,
        }
    }

    /// The bytes that were read since `before`, by the same processes.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            cold: self.cold.saturating_sub(before.cold),
            peer: self.peer.saturating_sub(before.peer),
            cache: self.cache.saturating_sub(before.cache),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    pub(crate) fn share(self, bytes: u64) -> f64 {
        let all = self.cold + self.peer + self.cache;
        bytes as f64 / (all as f64).max(1.0)
    }
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
        assert_eq!(traffic, Traffic { cold: 7, peer: 20, cache: 13 });
        let twice = traffic.and(traffic);
        assert_eq!(twice.since(traffic), traffic);
        assert!((twice.share(twice.peer) - 0.5).abs() < 1e-9);
    }
}
