//! Connections over which nothing is sent.

use std::{net::TcpStream, time::Duration};

use crate::{metrics::address_in, testbed::Testbed};

/// A manager keeps fewer connections that have not sent anything.
const TO_MANAGER: usize = 300;
/// Fewer connections are served with metrics at a time.
const TO_METRICS: usize = 50;

const CONNECT_PATIENCE: Duration = Duration::from_millis(500);

/// Open connections over which nothing is sent; closed when dropped.
#[derive(Debug)]
pub(crate) struct SilentConnections(Vec<TcpStream>);

impl SilentConnections {
    /// Connects until no more is accepted: a process that is stopped or gone accepts none.
    pub(crate) fn open(testbed: &Testbed, manager: Option<&str>) -> Self {
        let targets = testbed.world.servers().map(|it| testbed.folder.targets(it));
        let metrics = targets.filter_map(|targets| address_in(&targets).ok());
        let manager = manager.and_then(|it| it.parse().ok()).map(|it| (it, TO_MANAGER));
        let mut silent = Vec::new();
        for (address, count) in manager.into_iter().chain(metrics.map(|it| (it, TO_METRICS))) {
            let connect = || TcpStream::connect_timeout(&address, CONNECT_PATIENCE).ok();
            silent.extend(std::iter::repeat_with(connect).take(count).map_while(|it| it));
        }
        Self(silent)
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }
}
