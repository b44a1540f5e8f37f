//! `tierfeed-bench peers --transport`: samples from the memory of one process into that of another, by the
//! transport between nodes and by a plain TCP copy, turn by turn.
//!
//! Our side is all that a read from a peer takes: requests of a batch, its owner's answer, connections, sums on
//! arrival, and, where the network is not private, encryption. The other side is `write` of each sample in one
//! process and `read` of it in the other, over one connection and over four; the faster one counts.
//!
//! An added delay comes from a relay between the processes, which holds every piece back. It ends the
//! connections of both sides, so it delays requests and answers, but the windows of TCP do not see it.

mod plain;
mod relay;
mod serving;

use std::{
    net::SocketAddr,
    num::NonZeroUsize,
    sync::{Arc, mpsc},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use clap::{Args, builder::RangedU64ValueParser};
use nix::sys::resource::UsageWho;
use serde::Serialize;
use tierfeed_core::{
    id::{NodeId, SampleId},
    tier::Locality,
    units::{Bytes, Nanoseconds},
};
use tierfeed_harness::{
    bench::Bench,
    clock::now,
    failure::Failure,
    judgement::{Judged, Judgement},
    output::step,
    statistics::{Quartiles, percentile},
};
use tierfeed_numa_memory::{Pages, Region, Request};
use tierfeed_prefetcher::{
    fetcher::Target,
    peers::{Access, Client, ClientSettings, Network, Outcome as ReadOutcome, Read},
};

use crate::cpu_time::cpu_time;

use self::serving::Serving;
pub(crate) use self::{relay::relay, serving::serve};

/// The promised share of the rate of a plain copy, without encryption and delay.
pub(crate) const PROMISE: f64 = 0.9;

const HELD: Bytes = Bytes::mib(128);

/// Bytes of a batch, which is one request.
const BATCH: u64 = 8 << 20;

const DEPTH: usize = 4;

const THREADS: NonZeroUsize = NonZeroUsize::new(2).expect("2 is not 0");

/// A secret that both processes of the bench know.
const SECRET: [u8; 32] = [7; 32];

#[derive(Debug, Clone, Args)]
pub(crate) struct Transport {
    /// Lengths of samples.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "100 KiB,1 MiB")]
    pub(crate) samples: Vec<Bytes>,
    /// Round trips that a relay adds.
    #[arg(
        long,
        value_name = "TIMES",
        value_delimiter = ',',
        default_value = "0 s,50 us,1 ms,10 ms"
    )]
    pub(crate) delays: Vec<Nanoseconds>,
    /// What each turn reads.
    #[arg(long, value_name = "SIZE", default_value = "1 GiB")]
    pub(crate) turn: Bytes,
    /// Turns of each side, at least 3.
    #[arg(long, value_name = "NUMBER", default_value_t = 5,
          value_parser = RangedU64ValueParser::<usize>::new().range(3..=1000))]
    pub(crate) rounds: usize,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Outcome {
    pub(crate) turn_bytes: u64,
    pub(crate) rounds: usize,
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) sample_bytes: u64,
    /// The round trip that a relay adds.
    pub(crate) delay_ns: u64,
    pub(crate) encrypted: bool,
    pub(crate) plain_bytes_per_s: f64,
    pub(crate) tierfeed_bytes_per_s: f64,
    /// CPU time of both processes.
    pub(crate) plain_cpu_s_per_gb: f64,
    pub(crate) tierfeed_cpu_s_per_gb: f64,
    /// Of the turns: above 1 ours is faster.
    #[serde(flatten)]
    pub(crate) ratio: Quartiles,
    /// `kept`, `missed` or `inconclusive`; `measured` where nothing is promised.
    pub(crate) verdict: &'static str,
}

#[derive(Debug, Clone, Copy)]
struct Turn {
    bytes_per_s: f64,
    cpu_s_per_gb: f64,
}

impl Judged for Outcome {
    fn judged(&self) -> Judgement {
        self.rows.iter().fold(Judgement::default(), |judged, row| {
            let what = format!("samples of {}: {:.2} x", Bytes(row.sample_bytes), row.ratio.median);
            judged.verdict(what, row.verdict)
        })
    }
}

impl Bench for Transport {
    type Outcome = Outcome;

    fn run(self) -> Result<Outcome, Failure> {
        let mut rows = Vec::new();
        for &sample in &self.samples {
            ensure_fits(sample)?;
            let serving = Serving::start(sample)?;
            for &delay in &self.delays {
                step(&format!("samples of {sample}, {delay} added"));
                rows.extend(compare(&self, &serving, sample, delay)?);
            }
        }
        Ok(Outcome { turn_bytes: self.turn.0, rounds: self.rounds, rows })
    }
}

fn ensure_fits(sample: Bytes) -> anyhow::Result<()> {
    ensure!(
        (1..=BATCH).contains(&sample.0),
        "samples of {sample}; they have at least one byte and at most {}",
        Bytes(BATCH)
    );
    Ok(())
}

/// The row without and that with encryption, whose turns alternate.
fn compare(
    settings: &Transport,
    serving: &Serving,
    sample: Bytes,
    delay: Nanoseconds,
) -> anyhow::Result<Vec<Row>> {
    let mut relays = Vec::new();
    let mut behind = |address: SocketAddr| {
        if delay.0 == 0 {
            return Ok(address);
        }
        let relay = relay::Relay::start(address, delay)?;
        let address = relay.address;
        relays.push(relay);
        anyhow::Ok(address)
    };
    let plain_address = behind(serving.plain)?;
    let private = Reader::new(sample, behind(serving.private)?, false)?;
    let encrypted = Reader::new(sample, behind(serving.encrypted)?, true)?;
    let (mut plain, mut ours) = (Vec::new(), [Vec::new(), Vec::new()]);
    // The first turn of each side is left out: connections are opened and memory is touched.
    for round in 0..=settings.rounds {
        let mut fastest: Option<Turn> = None;
        for connections in [1, 4] {
            let turn = timed(serving, settings.turn, || {
                plain::read(plain_address, connections, sample, settings.turn)
            })?;
            fastest = fastest.filter(|it| it.bytes_per_s >= turn.bytes_per_s).or(Some(turn));
        }
        let turns = [&private, &encrypted]
            .map(|reader| timed(serving, settings.turn, || reader.read(settings.turn)));
        if round > 0 {
            plain.extend(fastest);
            for (ours, turn) in ours.iter_mut().zip(turns) {
                ours.push(turn?);
            }
        }
    }
    let rows = [false, true].into_iter().zip(ours);
    rows.map(|(encrypted, ours)| row(sample, delay, encrypted, &plain, &ours)).collect()
}

fn row(
    sample: Bytes,
    delay: Nanoseconds,
    encrypted: bool,
    plain: &[Turn],
    ours: &[Turn],
) -> anyhow::Result<Row> {
    let rates = |turns: &[Turn]| turns.iter().map(|it| it.bytes_per_s).collect::<Vec<_>>();
    let costs = |turns: &[Turn]| turns.iter().map(|it| it.cpu_s_per_gb).collect::<Vec<_>>();
    let median = |values: &[f64]| percentile(values, 50).context("no round was run");
    let ratio = Quartiles::of_ratios(&rates(ours), &rates(plain))?;
    let is_promised = !encrypted && delay.0 == 0;
    Ok(Row {
        sample_bytes: sample.0,
        delay_ns: delay.0,
        encrypted,
        plain_bytes_per_s: median(&rates(plain))?,
        tierfeed_bytes_per_s: median(&rates(ours))?,
        plain_cpu_s_per_gb: median(&costs(plain))?,
        tierfeed_cpu_s_per_gb: median(&costs(ours))?,
        ratio,
        verdict: if is_promised { ratio.verdict(PROMISE) } else { "measured" },
    })
}

/// Rate and CPU time of one turn. The time of a relay does not count.
fn timed(
    serving: &Serving,
    bytes: Bytes,
    turn: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Turn> {
    let cpu = || anyhow::Ok(cpu_time(UsageWho::RUSAGE_SELF)? + serving.cpu_time()?);
    let (start, before) = (now(), cpu()?);
    turn()?;
    let (lasted, used) = (start.elapsed(), cpu()?.saturating_sub(before));
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no more")]
    let bytes = bytes.0 as f64;
    Ok(Turn {
        bytes_per_s: bytes / lasted.as_secs_f64(),
        cpu_s_per_gb: used.as_secs_f64() / (bytes / 1e9),
    })
}

struct Reader {
    client: Client,
    sample: Bytes,
    staging: Arc<Region>,
}

impl Reader {
    fn new(sample: Bytes, address: SocketAddr, is_encrypted: bool) -> anyhow::Result<Self> {
        let network = Arc::new(Network::start("bench-peers", THREADS)?);
        let access = access(is_encrypted, NodeId(0));
        let client = Client::start(network, access, ClientSettings::default());
        client.set_peer(NodeId(1), address, 0);
        let len = Bytes(BATCH * DEPTH as u64);
        let (locality, pages) = (Locality::Anywhere, Pages::Huge);
        let staging = Region::allocate(&Request { len, locality, name: "bench-staging", pages })?;
        Ok(Self { client, sample, staging: Arc::new(staging) })
    }

    fn read(&self, bytes: Bytes) -> anyhow::Result<()> {
        let in_batch = BATCH / self.sample.0;
        let held = u32::try_from(HELD.0 / self.sample.0)?;
        let (ended, ends) = mpsc::sync_channel(DEPTH * usize::try_from(in_batch)?);
        let (mut wanted, mut next) = (bytes.0.div_ceil(self.sample.0), 0);
        let mut left = [0; DEPTH];
        let mut start = |slot: usize, left: &mut u64| {
            *left = wanted.min(in_batch);
            wanted -= *left;
            for at in 0..*left {
                let offset = Bytes(slot as u64 * BATCH + at * self.sample.0);
                let to = Target::new(Arc::clone(&self.staging), offset, self.sample);
                let ended = ended.clone();
                let done = move |outcome| {
                    // The turn ends at the first failed read, and the receiver with it.
                    let _ = ended.send((slot, outcome));
                };
                let read = Read::new(SampleId(next), to, Duration::from_secs(60), done);
                next = (next + 1) % held;
                self.client.read(NodeId(1), 0, read);
            }
            self.client.flush();
        };
        (0..DEPTH).for_each(|slot| start(slot, &mut left[slot]));
        while left.iter().any(|left| *left > 0) {
            match ends.recv()? {
                (slot, ReadOutcome::Held { .. }) => {
                    left[slot] -= 1;
                    if left[slot] == 0 {
                        start(slot, &mut left[slot]);
                    }
                }
                (_, other) => bail!("a read ended with {other:?}"),
            }
        }
        Ok(())
    }
}

fn access(is_encrypted: bool, node: NodeId) -> Access {
    let of = if is_encrypted { Access::encrypted } else { Access::private };
    of(&SECRET, node, 0)
}
