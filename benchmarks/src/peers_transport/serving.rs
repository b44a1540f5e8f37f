//! The process that holds the samples, from both of its sides.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    process::Command,
    sync::{Arc, OnceLock, mpsc},
    thread,
    time::Duration,
};

use anyhow::{Context as _, anyhow, ensure};
use tierfeed_core::{id::NodeId, tier::Locality, units::Bytes};
use tierfeed_dataset::read::sample_sum::sum_of;
use tierfeed_harness::talking::Talking;
use tierfeed_numa_memory::{Pages, Region, Request};
use tierfeed_prefetcher::peers::{Answer, Asked, Event, Held, Network, Server, ServerSettings};

use crate::processes;

use super::{HELD, THREADS, access, plain};

/// The process that serves samples and plain copies.
pub(super) struct Serving {
    process: Talking,
    pub(super) plain: SocketAddr,
    pub(super) private: SocketAddr,
    pub(super) encrypted: SocketAddr,
}

impl Serving {
    /// Starts this program again, as the process that holds samples of this length.
    pub(super) fn start(sample: Bytes) -> anyhow::Result<Self> {
        let (process, addresses) = start(&["peers-serve", "--sample", &format!("{} B", sample.0)])?;
        let [plain, private, encrypted] = addresses[..] else {
            return Err(anyhow!("the serving process gave {} addresses", addresses.len()));
        };
        Ok(Self { process, plain, private, encrypted })
    }

    pub(super) fn cpu_time(&self) -> anyhow::Result<Duration> {
        processes::cpu_time(self.process.id())
    }
}

/// Starts this program with these arguments, as a process that says addresses on its first line.
pub(super) fn start(arguments: &[&str]) -> anyhow::Result<(Talking, Vec<SocketAddr>)> {
    let program = std::env::current_exe().context("the program of this process")?;
    let mut process = Talking::start(Command::new(program).args(arguments))?;
    let line = process.hear().context("a process of the bench")?;
    let addresses: Result<_, _> = line.split_whitespace().map(str::parse).collect();
    Ok((process, addresses?))
}

/// Holds samples of this length until the input ends.
///
/// # Errors
///
/// If memory or a port cannot be had.
pub(crate) fn serve(sample: Bytes) -> anyhow::Result<()> {
    let (locality, pages) = (Locality::Anywhere, Pages::Huge);
    let request = Request { len: HELD, locality, name: "bench-held", pages };
    let region = Arc::new(Region::allocate(&request)?);
    #[expect(clippy::cast_possible_truncation, reason = "a byte of the pattern")]
    let bytes: Vec<u8> = (0..HELD.0).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect();
    region.write(Bytes(0), &bytes)?;
    let sums = bytes.chunks_exact(usize::try_from(sample.0)?).map(sum_of);
    let sums: Arc<Vec<u64>> = Arc::new(sums.collect());
    let listener = || TcpListener::bind("127.0.0.1:0").context("a port");
    let plain = listener()?;
    let mut addresses = vec![plain.local_addr()?];
    let network = Network::start("bench-peers", THREADS)?;
    let mut servers = Vec::new();
    for is_encrypted in [false, true] {
        let server = Arc::new(OnceLock::new());
        let (events, inbox) = mpsc::sync_channel(1024);
        let started = Server::start(
            &network,
            access(is_encrypted, NodeId(1)),
            ServerSettings::default(),
            listener()?,
            move |event| drop(events.send(event)),
        )?;
        addresses.push(started.address());
        ensure!(server.set(started).is_ok(), "a server is started once");
        let owned = Arc::clone(&server);
        let (region, sums) = (Arc::clone(&region), Arc::clone(&sums));
        // It ends with the process.
        drop(thread::spawn(move || {
            for event in inbox {
                if let (Event::Asked(asked), Some(server)) = (event, owned.get()) {
                    server.answer(asked.id, answer(&asked, &region, sample, &sums));
                }
            }
        }));
        servers.push(server);
    }
    drop(thread::spawn(move || plain::serve(&plain, sample, bytes)));
    announce(&addresses)
}

fn answer(asked: &Asked, region: &Arc<Region>, sample: Bytes, sums: &[u64]) -> Answer {
    let held = |number: u32| {
        let xxh3 = *sums.get(usize::try_from(number).ok()?)?;
        Held::in_region(Arc::clone(region), Bytes(u64::from(number) * sample.0), sample, xxh3)
    };
    Answer::Samples(asked.samples.iter().map(|it| held(it.0)).collect())
}

/// Prints addresses, and waits for the end of the input.
pub(super) fn announce(addresses: &[SocketAddr]) -> anyhow::Result<()> {
    let line: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    let mut output = io::stdout();
    writeln!(output, "{}", line.join(" "))?;
    output.flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
