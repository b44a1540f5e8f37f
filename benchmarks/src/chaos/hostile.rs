//! A client of the agent that means harm, for as long as it is told to. A seed draws what it does next.
//!
//! It runs as the user of the agent, as a trainer does that is broken or taken over by an attacker. Other
//! ranks must get their batches on time and with the right bytes; [`super::siege`] checks that.

#![expect(
    clippy::unnecessary_wraps,
    clippy::unit_arg,
    clippy::large_stack_arrays,
    reason = "every ordeal has one form; a buffer of a packet"
)]

use std::{
    collections::BTreeMap,
    io::{IoSlice, Write as _},
    net::{TcpListener, TcpStream},
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd},
    path::{Path, PathBuf},
    time::Duration,
};

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
use tierfeed_handoff::{Client, ConnectError, Hello, PROTOCOL, Reply, RequestError, Role};

use super::clock::Clock;

/// For an agent that is stopped or gone.
const PATIENCE: Duration = Duration::from_millis(500);

/// Sockets of each kind that say nothing; the oldest go when there are more.
const SILENT_MAX: usize = 128;

/// How often a move that is one call is repeated.
const REPEATED: u32 = 50;

/// What to do.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the agent listens.
    pub socket: PathBuf,
    /// Where the manager listens.
    pub manager: Option<String>,
    /// The rank that it may have.
    pub rank: u32,
    /// For how long.
    pub time: Duration,
    /// Of its moves.
    pub seed: u64,
}

/// What it did.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Tally {
    /// Moves of each kind.
    pub moves: BTreeMap<String, u64>,
    /// How often it was let in as another rank than its own.
    pub let_in: u64,
}

#[derive(Debug, Clone, Copy)]
enum Move {
    /// Publications without waiting for an answer.
    Flood,
    /// Says that it is a rank that another process reads.
    Pose,
    /// Sends a socket whose last `close` would wait for a minute.
    Linger,
    /// Asks for batches of epochs far from each other.
    Jump,
    /// Sends what is no message, or one that is too long.
    Babble,
    /// Connects and says nothing, to the agent and to the manager.
    BeSilent,
    /// Writes all over its staging memory while batches come into it.
    Scribble,
    /// Connects and leaves.
    Churn,
}

impl Move {
    const ALL: [Self; 8] = [
        Self::Flood,
        Self::Pose,
        Self::Linger,
        Self::Jump,
        Self::Babble,
        Self::BeSilent,
        Self::Scribble,
        Self::Churn,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Flood => "floods",
            Self::Pose => "poses",
            Self::Linger => "lingers",
            Self::Jump => "jumps",
            Self::Babble => "babbles",
            Self::BeSilent => "is silent",
            Self::Scribble => "scribbles",
            Self::Churn => "comes and goes",
        }
    }
}

/// Does harm until the time is over.
pub fn attack(settings: &Settings) -> Tally {
    let clock = Clock::start();
    let mut hostile = Hostile {
        settings,
        draws: Draws::of(settings.seed, 0),
        silent: Vec::new(),
        tally: Tally::default(),
    };
    while clock.now() < settings.time {
        let kind = Move::ALL[hostile.below(Move::ALL.len())];
        // An agent that is gone, or that ends the connection meanwhile, is what it wants.
        let _ = hostile.play(kind);
        *hostile.tally.moves.entry(kind.name().to_owned()).or_default() += 1;
    }
    hostile.tally
}

struct Hostile<'a> {
    settings: &'a Settings,
    draws: Draws,
    silent: Vec<OwnedFd>,
    tally: Tally,
}

impl Hostile<'_> {
    fn play(&mut self, kind: Move) -> anyhow::Result<()> {
        match kind {
            Move::Flood => self.flood(),
            Move::Pose => self.pose(),
            Move::Linger => self.linger(),
            Move::Jump => self.jump(),
            Move::Babble => self.babble(),
            Move::BeSilent => self.be_silent(),
            Move::Scribble => self.scribble(),
            Move::Churn => self.churn(),
        }
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.draws.word() % end as u64).expect("below a small number")
    }

    fn attached(&self) -> Result<Client, ConnectError> {
        let hello = Hello::of_rank(Rank(self.settings.rank), Role::Trainer);
        Client::connect(&self.settings.socket, &hello, PATIENCE)
    }

    fn flood(&mut self) -> anyhow::Result<()> {
        let link = Link::connect(&self.settings.socket)?;
        link.say(&hello(self.settings.rank), &[])?;
        for epoch in 0..REPEATED {
            let publish =
                format!(r#"{{"type":"publish","request":1,"epoch":{epoch},"samples":100}}"#);
            link.say(publish.as_bytes(), &[])?;
            link.say(br#"{"type":"order_written","request":1}"#, &[])?;
        }
        Ok(())
    }

    fn pose(&mut self) -> anyhow::Result<()> {
        for rank in (0..self.settings.rank).map(Rank) {
            // As a worker of a process that it does not descend from.
            let hello = Hello { trainer: 1 << 22, ..Hello::of_rank(rank, Role::Worker) };
            let client = Client::connect(&self.settings.socket, &hello, PATIENCE);
            self.tally.let_in += u64::from(client.is_ok());
        }
        Ok(())
    }

    fn linger(&mut self) -> anyhow::Result<()> {
        let (lingering, _peer) = lingering()?;
        let link = Link::connect(&self.settings.socket)?;
        link.say(&[b' '; 5000], &[lingering.as_raw_fd()])?;
        Ok(())
    }

    fn jump(&mut self) -> anyhow::Result<()> {
        let client = self.attached()?;
        let order = client.briefing().order;
        for _ in 0..REPEATED {
            let epoch = Epoch(u32::try_from(self.below(order.epochs as usize))?);
            let rank = Rank(self.settings.rank);
            let asked = client.request(BatchId { epoch, step: Step(0), rank });
            if let Err(RequestError::Disconnected(_)) = asked {
                break;
            }
            take(&client, Duration::from_millis(5));
        }
        Ok(())
    }

    fn churn(&self) -> anyhow::Result<()> {
        (0..REPEATED).try_for_each(|_| Ok(drop(self.attached()?)))
    }

    fn babble(&mut self) -> anyhow::Result<()> {
        for _ in 0..REPEATED {
            let len = 1 + self.below(6000);
            let bytes: Vec<u8> = (0..len).map(|_| self.draws.word().to_le_bytes()[0]).collect();
            Link::connect(&self.settings.socket)?.say(&bytes, &[])?;
        }
        Ok(())
    }

    fn be_silent(&mut self) -> anyhow::Result<()> {
        for _ in 0..REPEATED / 5 {
            self.silent.push(Link::connect(&self.settings.socket)?.0);
            if let Some(manager) = &self.settings.manager {
                self.silent.push(TcpStream::connect(manager)?.into());
            }
        }
        let surplus = self.silent.len().saturating_sub(SILENT_MAX);
        self.silent.drain(..surplus);
        Ok(())
    }

    fn scribble(&mut self) -> anyhow::Result<()> {
        let client = self.attached()?;
        let mut next = Some(client.briefing().order.first(Rank(self.settings.rank)));
        let noise = vec![0xdb; 64 << 10];
        for _ in 0..REPEATED / 5 {
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

/// Takes what is there, and gives it back.
fn take(client: &Client, patience: Duration) {
    if let Ok(Reply::Batch(leased)) = client.next(patience) {
        // The agent may have ended the connection.
        let _ = client.release(leased.lease);
    }
}

/// The first message of a client, which the public one would not let it say twice.
fn hello(rank: u32) -> Vec<u8> {
    let pid = std::process::id();
    let text = format!(
        r#"{{"type":"hello","protocol":{PROTOCOL},"role":"trainer","pid":{pid},"trainer":{pid},"variables":{{"{RANK_ARGUMENT}":"{rank}"}}}}"#
    );
    text.into_bytes()
}

/// A control socket without the rules of a client.
struct Link(OwnedFd);

impl Link {
    fn connect(path: &Path) -> anyhow::Result<Self> {
        let (family, kind) = (AddressFamily::Unix, SockType::SeqPacket);
        let link = Self(socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?);
        connect(link.0.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(link)
    }

    fn say(&self, bytes: &[u8], descriptors: &[RawFd]) -> nix::Result<()> {
        let rights = [ControlMessage::ScmRights(descriptors)];
        let control = if descriptors.is_empty() { &[] } else { &rights[..] };
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(bytes)], control, flags, None).map(drop)
    }
}

/// A TCP socket with bytes on their way to a peer that does not read them.
fn lingering() -> anyhow::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut sending = TcpStream::connect(listener.local_addr()?)?;
    let (peer, _) = listener.accept()?;
    sending.set_nonblocking(true)?;
    while sending.write(&[0; 64 << 10]).is_ok() {}
    setsockopt(&sending.as_fd(), sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 60 })?;
    Ok((sending, peer))
}
