//! How the ends of a TCP connection notice that the other host is gone.

use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

/// A connection on which nothing arrives is asked for a sign of life this often, by HTTP/2.
pub(crate) const PING_EVERY: Duration = Duration::from_secs(10);

/// The sign must come within this time, else the connection is closed.
pub(crate) const PONG_WITHIN: Duration = Duration::from_secs(10);

/// How often the other end of a connection is asked for a sign of life, and how long it may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pings {
    pub(crate) every: Duration,
    pub(crate) answered_within: Duration,
}

/// What a manager asks of agents.
pub(crate) const PINGS: Pings = Pings { every: PING_EVERY, answered_within: PONG_WITHIN };

const PROBE_AFTER: Duration = Duration::from_secs(10);
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES_MAX: u32 = 2;

/// Data that the other host did not acknowledge within this time closes the connection.
const ACKNOWLEDGED_WITHIN_MS: u32 = 20_000;

/// Sends small messages at once, and lets the kernel close a connection to a host that is gone.
pub(crate) fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, PROBES_MAX)?;
    sockopt::set_tcp_user_timeout(stream, ACKNOWLEDGED_WITHIN_MS)?;
    Ok(())
}
