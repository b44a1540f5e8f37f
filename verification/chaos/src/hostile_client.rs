//! A client that attacks the agent for a given time. Its attacks follow from a seed.
//!
//! It runs as the user of the agent, as a broken or compromised trainer does. Other ranks must get their
//! batches on time and with the right bytes; [`crate::interference`] checks that.

#![expect(
    clippy::unnecessary_wraps,
    clippy::unit_arg,
    clippy::large_stack_arrays,
    reason = "all attacks have one signature; a buffer of a packet"
)]

use std::{
    collections::BTreeMap,
    io::{IoSlice, Write as _},
    net::{TcpListener, TcpStream},
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::Context as _;
use nix::{
    libc,
    sys::socket::{
        AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, sendmsg,
        setsockopt, socket, sockopt,
    },
};
use serde::{Deserialize, Serialize};
use tierfeed_core::{
    fleet::launch::RANK_ARGUMENT,
    id::{BatchId, Epoch, Rank, Step},
    latency_quantiles::Draws,
    units::Bytes,
};
use tierfeed_handoff::{
    self as handoff, Client, ConnectError, Hello, PROTOCOL, Reply, RequestError,
};
use tierfeed_harness::clock::now;

use crate::{arguments::HostileArguments, role::Role, supervisor::Supervisor};

/// Time to wait for an agent, which may be stopped or gone.
const PATIENCE: Duration = Duration::from_millis(500);

/// Silent connections that it keeps open; beyond that it closes the oldest.
const SILENT_MAX: usize = 128;

const REPETITIONS: u32 = 50;

#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) moves: BTreeMap<String, u64>,
    /// The number of times that it was accepted as a rank of another process.
    pub(crate) impersonations: u64,
}

type Attack = fn(&mut Hostile<'_>) -> anyhow::Result<()>;

/// By the names under which they are counted, in the order in which seeds draw them.
const ATTACKS: [(&str, Attack); 8] = [
    ("floods", |it| it.flood()),
    ("poses", |it| it.impersonate()),
    ("lingers", |it| it.send_lingering()),
    ("jumps", |it| it.request_far_epochs()),
    ("babbles", |it| it.send_garbage()),
    ("is silent", |it| it.open_silent()),
    ("scribbles", |it| it.overwrite_staging()),
    ("comes and goes", |it| it.reconnect()),
];

/// Starts a hostile client, which ends by itself and prints its [`Tally`].
pub(crate) fn start(at: &Supervisor<'_>, seed: u64, time: Duration) -> anyhow::Result<Child> {
    let mut hostile = Command::new(&at.programs.own);
    hostile.args(["hostile", "--seed", &seed.to_string()]);
    hostile.arg("--socket").arg(at.testbed.folder.run_dir(Role::Agent(0)).join("agent.sock"));
    let rank = at.testbed.world.ranks().end;
    hostile.args(["--rank", &rank.to_string(), "--time", &format!("{} ms", time.as_millis())]);
    if let Some(manager) = &at.address {
        hostile.args(["--manager", manager]);
    }
    hostile.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    hostile.spawn().context("cannot start the hostile client")
}

pub(crate) fn attack(arguments: &HostileArguments) -> Tally {
    let begin = now();
    let mut hostile = Hostile {
        arguments,
        draws: Draws::of(arguments.seed, 0),
        silent: Vec::new(),
        tally: Tally::default(),
    };
    while begin.elapsed() < Duration::from_nanos(arguments.time.0) {
        let (name, attack) = ATTACKS[hostile.below(ATTACKS.len())];
        // Errors are expected: the agent is gone, or closes the connection.
        let _ = attack(&mut hostile);
        *hostile.tally.moves.entry(name.to_owned()).or_default() += 1;
    }
    hostile.tally
}

struct Hostile<'a> {
    arguments: &'a HostileArguments,
    draws: Draws,
    silent: Vec<OwnedFd>,
    tally: Tally,
}

impl Hostile<'_> {
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.draws.word() % end as u64).expect("below a small number")
    }

    fn attached(&self) -> Result<Client, ConnectError> {
        let hello = Hello::of_rank(Rank(self.arguments.rank), handoff::Role::Trainer);
        Client::connect(&self.arguments.socket, &hello, PATIENCE)
    }

    /// Publishes orders without waiting for answers.
    fn flood(&mut self) -> anyhow::Result<()> {
        let control = ControlSocket::connect(&self.arguments.socket)?;
        control.send(&hello(self.arguments.rank), &[])?;
        for epoch in 0..REPETITIONS {
            let publish =
                format!(r#"{{"type":"publish","request":1,"epoch":{epoch},"samples":100}}"#);
            control.send(publish.as_bytes(), &[])?;
            control.send(br#"{"type":"order_written","request":1}"#, &[])?;
        }
        Ok(())
    }

    /// Connects as a rank of another process.
    fn impersonate(&mut self) -> anyhow::Result<()> {
        for rank in (0..self.arguments.rank).map(Rank) {
            // As a worker of a process that is not its parent.
            let hello = Hello { trainer: 1 << 22, ..Hello::of_rank(rank, handoff::Role::Worker) };
            let client = Client::connect(&self.arguments.socket, &hello, PATIENCE);
            self.tally.impersonations += u64::from(client.is_ok());
        }
        Ok(())
    }

    /// Sends a socket whose last `close` would block for a minute.
    fn send_lingering(&mut self) -> anyhow::Result<()> {
        let (lingering, _peer) = lingering_socket()?;
        let control = ControlSocket::connect(&self.arguments.socket)?;
        control.send(&[b' '; 5000], &[lingering.as_raw_fd()])?;
        Ok(())
    }

    /// Requests batches of epochs far from each other.
    fn request_far_epochs(&mut self) -> anyhow::Result<()> {
        let client = self.attached()?;
        let order = client.briefing().order;
        for _ in 0..REPETITIONS {
            let epoch = Epoch(u32::try_from(self.below(order.epochs as usize))?);
            let rank = Rank(self.arguments.rank);
            let asked = client.request(BatchId { epoch, step: Step(0), rank });
            if let Err(RequestError::Disconnected(_)) = asked {
                break;
            }
            take(&client, Duration::from_millis(5));
        }
        Ok(())
    }

    fn reconnect(&self) -> anyhow::Result<()> {
        (0..REPETITIONS).try_for_each(|_| Ok(drop(self.attached()?)))
    }

    /// Sends random bytes as messages, some of them too long.
    fn send_garbage(&mut self) -> anyhow::Result<()> {
        for _ in 0..REPETITIONS {
            let len = 1 + self.below(6000);
            let bytes: Vec<u8> = (0..len).map(|_| self.draws.word().to_le_bytes()[0]).collect();
            ControlSocket::connect(&self.arguments.socket)?.send(&bytes, &[])?;
        }
        Ok(())
    }

    /// Connects to agent and manager, and sends nothing.
    fn open_silent(&mut self) -> anyhow::Result<()> {
        for _ in 0..REPETITIONS / 5 {
            self.silent.push(ControlSocket::connect(&self.arguments.socket)?.0);
            if let Some(manager) = &self.arguments.manager {
                self.silent.push(TcpStream::connect(manager)?.into());
            }
        }
        let surplus = self.silent.len().saturating_sub(SILENT_MAX);
        self.silent.drain(..surplus);
        Ok(())
    }

    /// Overwrites its staging memory while batches arrive there.
    fn overwrite_staging(&mut self) -> anyhow::Result<()> {
        let client = self.attached()?;
        let mut next = Some(client.briefing().order.first(Rank(self.arguments.rank)));
        let noise = vec![0xdb; 64 << 10];
        for _ in 0..REPETITIONS / 5 {
            while let Some(batch) = next
                && client.request(batch).is_ok()
            {
                next = client.briefing().order.after(batch);
            }
            let mut offset = 0;
            while client.arena().write(Bytes(offset), &noise).is_ok() {
                offset += noise.len() as u64;
            }
            take(&client, Duration::from_millis(5));
        }
        Ok(())
    }
}

/// Takes a batch if one is ready, and releases it.
fn take(client: &Client, patience: Duration) {
    if let Ok(Reply::Batch(leased)) = client.next(patience) {
        // The agent may have closed the connection.
        let _ = client.release(leased.lease);
    }
}

/// The first message of a client. The public client does not let it send this message again.
fn hello(rank: u32) -> Vec<u8> {
    let pid = std::process::id();
    let text = format!(
        r#"{{"type":"hello","protocol":{PROTOCOL},"role":"trainer","pid":{pid},"trainer":{pid},"pages":"pageable","variables":{{"{RANK_ARGUMENT}":"{rank}"}}}}"#
    );
    text.into_bytes()
}

/// A control socket without the protocol of a client.
struct ControlSocket(OwnedFd);

impl ControlSocket {
    fn connect(path: &Path) -> anyhow::Result<Self> {
        let (family, kind) = (AddressFamily::Unix, SockType::SeqPacket);
        let control = Self(socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?);
        connect(control.0.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(control)
    }

    fn send(&self, bytes: &[u8], descriptors: &[RawFd]) -> nix::Result<()> {
        let rights = [ControlMessage::ScmRights(descriptors)];
        let control = if descriptors.is_empty() { &[] } else { &rights[..] };
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(bytes)], control, flags, None).map(drop)
    }
}

/// A TCP socket with bytes in flight to a peer that does not read them, and that peer.
fn lingering_socket() -> anyhow::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut sending = TcpStream::connect(listener.local_addr()?)?;
    let (peer, _) = listener.accept()?;
    sending.set_nonblocking(true)?;
    while sending.write(&[0; 64 << 10]).is_ok() {}
    setsockopt(&sending.as_fd(), sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 60 })?;
    Ok((sending, peer))
}
