//! Keep-alive settings by which both ends of a TCP connection detect a lost host.

use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

/// The interval of HTTP/2 pings on an idle connection.
pub(crate) const PING_EVERY: Duration = Duration::from_secs(10);

/// A ping that is not answered within this time closes the connection.
pub(crate) const PONG_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Pings {
    pub(crate) every: Duration,
    pub(crate) answered_within: Duration,
}

pub(crate) const PINGS: Pings = Pings { every: PING_EVERY, answered_within: PONG_WITHIN };

const PROBE_AFTER: Duration = Duration::from_secs(10);
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES_MAX: u32 = 2;

/// Data that the other host does not acknowledge within this time closes the connection.
const ACKNOWLEDGED_WITHIN_MS: u32 = 20_000;

/// Disables Nagle's algorithm, and lets the kernel close connections to lost hosts.
pub(crate) fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, PROBES_MAX)?;
    sockopt::set_tcp_user_timeout(stream, ACKNOWLEDGED_WITHIN_MS)?;
    Ok(())
}
