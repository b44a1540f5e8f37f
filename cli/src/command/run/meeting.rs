//! How the nodes of a job find each other: the first listens and says where in the run directory of the job, or
//! at an address that the user gives; the others look there until it answers.

use std::{
    fs,
    io::{self, Read as _},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, anyhow};
use nix::{ifaddrs::getifaddrs, unistd::gethostname};
use tierfeed_core::id::NodeId;
use tierfeed_runtime::{
    manager::Listener,
    rpc::{
        call::JobText,
        client::{Address, CallError, Client},
    },
    run_dir::{RunDir, rendezvous::Rendezvous},
    transport::token::Token,
};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

use super::FIRST;
use crate::failure::Failure;

const FAILED_BYTES_MAX: u64 = 64 << 10;

const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How long one attempt may take: some addresses of the first node may lead nowhere.
const ATTEMPT_WITHIN: Duration = Duration::from_secs(3);

/// How long a node looks before it says for what.
const SAID_AFTER: Duration = Duration::from_secs(10);

const ADDRESSES_MAX: usize = 32;

/// The meeting place of the nodes of a job, as far as the user says it.
#[derive(Debug)]
pub(super) struct Meeting {
    pub(super) address: Option<String>,
    pub(super) token: Option<Token>,
}

#[derive(Debug)]
pub(super) struct Found {
    pub(super) client: Client,
    pub(super) address: String,
    pub(super) token: Token,
    pub(super) job: JobText,
}

impl Meeting {
    /// Listens for the other nodes, and says where in the run directory of the job. Returns also the address
    /// at which this host reaches it.
    pub(super) async fn open(self, job_dir: &RunDir) -> Result<(Listener, String, Token), Failure> {
        let token = self.token.map_or_else(Token::generate, Ok)?;
        let listen = self.address.as_deref().map_or_else(|| "0.0.0.0:0".to_owned(), to_listen_at);
        let listener = Listener::tcp(&listen, &token).await.map_err(Failure::input)?;
        let bound = listener.tcp_address()?.context("no network address")?;
        let own = own_address(bound);
        let addresses = match self.address {
            Some(address) => vec![address],
            None => addresses(bound.port()),
        };
        tracing::info!(address = addresses[0], "waits for the other nodes");
        Rendezvous { addresses, token: token.clone() }.write(&job_dir.rendezvous())?;
        Ok((listener, own, token))
    }

    /// Looks for the first node until it answers. A first node that failed since this one `arrived` is not waited
    /// for; without a time, one that failed at any time.
    pub(super) async fn find(
        self,
        job_dir: &RunDir,
        arrived: Option<SystemTime>,
        within: Duration,
    ) -> Result<Found, Failure> {
        let (began, mut is_said) = (Instant::now(), false);
        loop {
            let missed = match self.look(job_dir).await {
                Ok(found) => return Ok(found),
                Err(missed) => missed,
            };
            if let Some(failure) = failed_since(job_dir, arrived) {
                return Err(failure);
            }
            if missed.downcast_ref::<CallError>().is_some_and(|error| !error.is_loss()) {
                return Err(Failure::Input(missed));
            }
            if began.elapsed() >= within {
                return Err(Failure::Work(missed.context("the first node does not answer")));
            }
            if !is_said && began.elapsed() >= SAID_AFTER {
                tracing::info!("waits for the first node: {missed}");
                is_said = true;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn look(&self, job_dir: &RunDir) -> anyhow::Result<Found> {
        let path = job_dir.rendezvous();
        let (addresses, token) = match (&self.address, &self.token) {
            (Some(address), Some(token)) => (vec![address.clone()], token.clone()),
            (address, token) => {
                let read = move || Rendezvous::read(&path);
                let read = tokio::task::spawn_blocking(read).await??;
                let addresses = address.clone().map_or(read.addresses, |it| vec![it]);
                (addresses, token.clone().unwrap_or(read.token))
            }
        };
        let mut attempts = JoinSet::new();
        for address in addresses.into_iter().take(ADDRESSES_MAX) {
            attempts.spawn(attempt(address, token.clone()));
        }
        let mut missed =
            anyhow!("{}: no address of the first node", job_dir.rendezvous().display());
        while let Some(outcome) = attempts.join_next().await {
            match outcome? {
                Ok(found) => return Ok(found),
                Err(other) => missed = other,
            }
        }
        Err(missed)
    }
}

/// Tells the processes that wait for this one, the first of its node or of the job, why they wait in vain.
pub(super) fn tell_failed(job_dir: &RunDir, node_dir: &RunDir, node: NodeId, failure: &Failure) {
    let first = if node == FIRST { "the first node" } else { "the first process of the node" };
    let code = failure.code();
    let why = failure.message().unwrap_or_else(|| "its message says why".to_owned());
    let text = format!("{code}\n{first} ended with code {code}: {why}\n");
    let of_job = (node == FIRST).then(|| job_dir.failed());
    for path in [node_dir.failed()].into_iter().chain(of_job) {
        if let Err(error) = fs::write(path, &text) {
            tracing::debug!(%error, "others may wait in vain");
        }
    }
}

pub(super) fn forget_failed(job_dir: &RunDir) {
    // An error means that none did.
    let _ = fs::remove_file(job_dir.failed());
}

/// The present, by the clock of the file system.
pub(super) fn arrival(node_dir: &RunDir) -> io::Result<SystemTime> {
    let mark = node_dir.arrival();
    fs::write(&mark, "")?;
    let time = fs::metadata(&mark)?.modified();
    fs::remove_file(&mark)?;
    time
}

/// The failure of the first process of a directory, if it happened since `then`. Without a time the directory
/// belongs to this run alone.
pub(super) fn failed_since(run_dir: &RunDir, then: Option<SystemTime>) -> Option<Failure> {
    let path = run_dir.failed();
    let failed_at = fs::metadata(&path).ok()?.modified().ok()?;
    if then.is_some_and(|then| failed_at < then) {
        return None;
    }
    let mut text = String::new();
    fs::File::open(&path).ok()?.take(FAILED_BYTES_MAX).read_to_string(&mut text).ok()?;
    let (code, why) = text.split_once('\n')?;
    Some(Failure::Passed(code.parse().ok()?, Some(anyhow!("{}", why.trim_end()))))
}

async fn attempt(address: String, token: Token) -> anyhow::Result<Found> {
    let silent = || anyhow!("{address} does not answer");
    let call = async {
        let client = Client::connect(&Address::Tcp(address.clone()), Some(&token)).await?;
        let job = client.job().await?;
        anyhow::Ok((client, job))
    };
    let (client, job) = timeout(ATTEMPT_WITHIN, call).await.map_err(|_| silent())??;
    Ok(Found { client, address, token, job })
}

/// A host name may lead to the loopback device on its own host, so all devices are listened at; the token
/// keeps strangers out.
fn to_listen_at(address: &str) -> String {
    match address.rsplit_once(':') {
        Some((host, port)) if host.trim_matches(['[', ']']).parse::<IpAddr>().is_err() => {
            format!("0.0.0.0:{port}")
        }
        _ => address.to_owned(),
    }
}

/// The address at which this host reaches its own manager. Others may reach it too, because by it the agent
/// chooses where it listens for them.
fn own_address(bound: SocketAddr) -> String {
    let found = if bound.ip().is_unspecified() { addresses(bound.port()) } else { Vec::new() };
    found.into_iter().next().unwrap_or_else(|| bound.to_string())
}

/// Every address of this host, those that other hosts may reach first.
fn addresses(port: u16) -> Vec<String> {
    let name = gethostname().ok().and_then(|name| name.into_string().ok());
    let found = getifaddrs().into_iter().flatten();
    let ips: Vec<_> =
        found.filter_map(|device| device.address?.as_sockaddr_in().copied()).collect();
    let (loopback, others): (Vec<_>, Vec<_>) =
        ips.into_iter().map(|it| it.ip()).partition(Ipv4Addr::is_loopback);
    let ips = others.into_iter().chain(loopback).map(|ip| ip.to_string());
    let hosts = ips.chain(name).take(ADDRESSES_MAX);
    hosts.map(|host| format!("{host}:{port}")).collect()
}

/// The host of an address, as trainers get it in `MASTER_ADDR`.
pub(super) fn host_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']'])
}

pub(super) fn typed(address: Option<&Address>) -> Result<Option<String>, Failure> {
    match address {
        None => Ok(None),
        Some(Address::Tcp(address)) => Ok(Some(address.clone())),
        Some(Address::Unix(path)) => Err(Failure::Input(anyhow!(
            "unix:{}: the nodes of a job meet at HOST:PORT",
            path.display()
        ))),
    }
}

/// The index that the first node built, for the agent of a node. Where it cannot be linked, the agent takes it
/// from the manager.
pub(super) fn share_index(job_dir: &RunDir, node_dir: &RunDir) {
    let (from, to) = (job_dir.index(), node_dir.index());
    if from == to || !from.exists() {
        return;
    }
    // An error means that there is none.
    let _ = fs::remove_file(&to);
    if let Err(error) = fs::hard_link(&from, &to) {
        tracing::debug!(path = %to.display(), %error, "the index is not linked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_listened_for_everywhere_and_a_number_there() {
        assert_eq!(to_listen_at("node7:7070"), "0.0.0.0:7070");
        assert_eq!(to_listen_at("10.0.0.7:7070"), "10.0.0.7:7070");
        assert_eq!(to_listen_at("[::1]:7070"), "[::1]:7070");
    }

    #[test]
    fn the_first_node_is_reached_as_others_reach_it() {
        let port = 7070;
        let own = own_address(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
        assert_eq!(Some(&own), addresses(port).first());
        let bound = SocketAddr::from((Ipv4Addr::new(10, 0, 0, 7), port));
        assert_eq!(own_address(bound), "10.0.0.7:7070");
    }

    #[test]
    fn this_host_has_an_address_and_others_come_before_loopback() {
        let addresses = addresses(7070);
        assert!(addresses.iter().all(|it| it.ends_with(":7070")), "{addresses:?}");
        let loopback = addresses.iter().position(|it| it.starts_with("127."));
        let other = addresses.iter().position(|it| !it.starts_with("127."));
        assert!(other < loopback, "{addresses:?}");
    }
}
