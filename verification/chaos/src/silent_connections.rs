//! Connections over which nothing is sent, and requests for metrics while they are open.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, ensure};

use crate::{clock::Clock, testbed::Testbed};

/// A manager keeps fewer connections that have not sent anything.
const TO_MANAGER: usize = 300;
/// Fewer connections are served with metrics at a time.
const TO_METRICS: usize = 50;

/// An answer comes within this time while silent connections are open.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(5);

const CONNECT_PATIENCE: Duration = Duration::from_millis(500);

/// Open connections over which nothing is sent; closed when dropped.
#[derive(Debug)]
pub(crate) struct SilentConnections(Vec<TcpStream>);

impl SilentConnections {
    /// Connects until no more is accepted: a process that is stopped or gone accepts none.
    pub(crate) fn open(testbed: &Testbed, manager: Option<&str>) -> Self {
        let agents = testbed.world.nodes().map(|node| testbed.agent_targets(node));
        let targets = agents.chain([testbed.manager_targets()]);
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

/// Scrapes the process that wrote `targets`, with the token beside it, and returns how long the answer
/// took.
pub(crate) fn scrape(clock: Clock, targets: &Path) -> anyhow::Result<Duration> {
    let begin = clock.now();
    let token = fs::read_to_string(targets.with_file_name("metrics.token"))?;
    let address = address_in(targets)?;
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    let token = token.trim();
    let request = format!("GET /metrics HTTP/1.0\r\nAuthorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("no answer")?;
    ensure!(answer.contains(" 200 "), "{}", answer.lines().next().unwrap_or_default());
    Ok(clock.since(begin))
}

/// The address of metrics in a file of targets for Prometheus.
fn address_in(targets: &Path) -> anyhow::Result<SocketAddr> {
    let text = fs::read_to_string(targets).with_context(|| targets.display().to_string())?;
    let document: serde_json::Value = serde_json::from_str(&text)?;
    let address = document[0]["targets"][0].as_str().context("no address")?;
    Ok(address.parse()?)
}
