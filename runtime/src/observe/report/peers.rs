//! The bytes that a node read from other nodes, and they from it.

use serde::Serialize;
use tierfeed_core::units::Bytes;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PeerEntry {
    pub node: u32,
    pub received_bytes: u64,
    /// Includes what did not arrive in time.
    pub sent_bytes: u64,
    /// Reads of it that failed, late ones included; what it did not have is not.
    pub failures: u64,
    /// The number of times that it was not asked for a while, because it failed or was slower than the cold
    /// store.
    pub pauses: u64,
    /// Its rate at the end; absent if nothing was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_s: Option<u64>,
    /// The shortest time from a request to its first byte, of late; absent if nothing was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trip_ns: Option<u64>,
}

/// A line of text; `None` if there was no traffic.
pub(super) fn line(peers: &[PeerEntry], missed: u64) -> Option<String> {
    let sum = |of: fn(&PeerEntry) -> u64| Bytes(peers.iter().map(of).sum());
    let (received, sent) = (sum(|it| it.received_bytes), sum(|it| it.sent_bytes));
    let other = peers.iter().map(|it| it.failures).sum::<u64>();
    (!peers.is_empty()).then(|| {
        format!(
            "other nodes: {received} read from {} of them, {sent} sent; {missed} samples were asked for in vain, \
             {other} of them late or by failures",
            peers.len()
        )
    })
}
