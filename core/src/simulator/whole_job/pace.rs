//! How long the steps of all nodes take: each link moves its bytes batch after batch, and a step begins when
//! every node has its batch.
//!
//! A node begins to read a batch when the step ended that used its staging memory before, `depth` steps earlier.
//! A link moves what the batches of one step need after what those before needed, at its rate, and no faster than
//! its threads get answers. Threads that transform are a link, too, which works at a sample for as long as it costs on
//! average. What another node sends takes time on its link and in its tier as well. A cold store that was idle may be
//! ahead of its rate by its burst, but not of the answers of its threads, and nodes read before the first step for as
//! long as their agents have a head start. No link knows of the order within a step, so a step is as long as its
//! busiest link, which is exact where all ranks wait for each other.

use alloc::{collections::VecDeque, vec, vec::Vec};
use core::num::NonZeroU32;

use super::setting::Setting;
use crate::{
    id::{NodeId, TierId},
    tier::Speed,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// As one node reads it.
    Cold,
    /// The network of a node, towards it.
    Receiving,
    /// The network of a node, away from it.
    Sending,
    Transforms,
    Tier(TierId),
    /// The cold store as all nodes together read it.
    Store,
}

/// The link that the training waited for longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slowest {
    /// `None` if all nodes waited for the cold store that they share.
    pub node: Option<NodeId>,
    pub link: Link,
    /// The stall in steps that began when this link was done.
    pub stall: Nanoseconds,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// The time that the training stood still.
    pub stall: Nanoseconds,
    /// Pauses included.
    pub computed: Nanoseconds,
    pub duration: Nanoseconds,
}

#[derive(Debug, Clone, Copy, Default)]
struct Load {
    bytes: u64,
    reads: u64,
    /// Nanoseconds of all its threads together.
    work: u64,
}

#[derive(Debug, Clone, Copy)]
struct Rate {
    speed: Speed,
    threads: Option<NonZeroU32>,
    /// In nanoseconds, as `cold_burst` of the links.
    burst: u64,
}

impl Rate {
    fn transfer(&self, load: Load) -> u64 {
        self.speed.bandwidth.time_for(Bytes(load.bytes)).0
    }

    fn answers(&self, load: Load) -> u64 {
        let Some(threads) = self.threads else { return 0 };
        let answers = load.reads.saturating_mul(self.speed.latency.0).saturating_add(load.work);
        answers / u64::from(threads.get())
    }
}

const COLD: usize = 0;
const TRANSFORMS: usize = 3;

/// Links beside the tiers: cold, receiving, sending, and the threads that transform.
const OTHERS: usize = 4;

#[derive(Debug)]
pub(super) struct Pace {
    /// The links of one node: those beside the tiers, then the tiers.
    rates: Vec<Rate>,
    store: BytesPerSecond,
    /// Of every link of every node, node by node.
    loads: Vec<Load>,
    /// The time at which each link has moved its loads.
    free_at: Vec<u64>,
    /// The time at which the threads of each link have the answers to its loads.
    answered_at: Vec<u64>,
    store_free_at: u64,
    /// The stall for which each link was the last; the shared store comes after all nodes.
    stalls: Vec<u64>,
    /// The ends of the latest steps, as many as are staged ahead.
    ends: VecDeque<u64>,
    depth: usize,
    now: u64,
    times: Times,
}

impl Pace {
    pub(super) fn new(setting: &Setting) -> Self {
        let links = &setting.links;
        let rate = |speed| Rate { speed, threads: None, burst: 0 };
        let burst = links.cold_burst.0;
        let cold = Rate { speed: links.cold, threads: links.cold_threads, burst };
        let tiers = setting.tiers.iter().map(|tier| rate(tier.speed));
        let at_once = Speed { latency: Nanoseconds(0), bandwidth: BytesPerSecond(0) };
        let threads = setting.transforming.as_ref().map(|it| it.threads);
        let transforms = Rate { speed: at_once, threads, burst: 0 };
        let others = [cold, rate(links.network), rate(links.network), transforms];
        let rates: Vec<_> = others.into_iter().chain(tiers).collect();
        let all = rates.len() * setting.order.world.nodes as usize;
        Self {
            store: links.store,
            loads: vec![Load::default(); all],
            free_at: vec![0; all],
            answered_at: vec![0; all],
            store_free_at: 0,
            stalls: vec![0; all + 1],
            ends: VecDeque::new(),
            depth: setting.depth.get() as usize,
            now: setting.head_start.0,
            times: Times::default(),
            rates,
        }
    }

    /// For the step that is being read.
    pub(super) fn load(&mut self, node: usize, link: Link, len: Bytes) {
        let load = self.load_of(node, link);
        load.bytes += len.0;
        load.reads += 1;
    }

    /// For the step that is being read.
    pub(super) fn transform(&mut self, node: usize, time: Nanoseconds) {
        let load = self.load_of(node, Link::Transforms);
        load.work = load.work.saturating_add(time.0);
        load.reads += 1;
    }

    fn load_of(&mut self, node: usize, link: Link) -> &mut Load {
        let index = match link {
            Link::Cold | Link::Store => COLD,
            Link::Receiving => 1,
            Link::Sending => 2,
            Link::Transforms => TRANSFORMS,
            Link::Tier(tier) => OTHERS + usize::from(tier.0),
        };
        &mut self.loads[node * self.rates.len() + index]
    }

    /// Ends a step. It begins when all nodes have its batches, and computes for `compute`. The nodes that
    /// `reads_late` selects read nothing ahead.
    pub(super) fn end_step(&mut self, compute: Nanoseconds, reads_late: impl Fn(usize) -> bool) {
        let links = self.rates.len();
        // Staging memory is free from the start.
        let is_full = self.ends.len() == self.depth;
        let ahead = if is_full { self.ends.pop_front().unwrap_or(0) } else { 0 };
        let (mut ready, mut last, mut cold) = (self.now, None, 0_u64);
        for (at, load) in self.loads.iter_mut().enumerate() {
            let load = core::mem::take(load);
            if load.reads == 0 {
                continue;
            }
            let (node, link) = (at / links, at % links);
            let rate = &self.rates[link];
            cold += if link == COLD { load.bytes } else { 0 };
            let is_late = [COLD, TRANSFORMS].contains(&link) && reads_late(node);
            let begin = if is_late { self.now } else { ahead };
            let (transfer, answers) = (rate.transfer(load), rate.answers(load));
            let free_at = begin.max(self.free_at[at]).saturating_add(transfer.max(answers));
            self.free_at[at] = free_at;
            let answered_at = begin.max(self.answered_at[at]).saturating_add(answers);
            self.answered_at[at] = answered_at;
            let moved = free_at.saturating_sub(rate.burst).max(answered_at);
            let arrival = moved.saturating_add(rate.speed.latency.0);
            if arrival > ready {
                (ready, last) = (arrival, Some(at));
            }
        }
        self.store_free_at =
            ahead.max(self.store_free_at).saturating_add(self.store.time_for(Bytes(cold)).0);
        if self.store_free_at > ready {
            (ready, last) = (self.store_free_at, Some(self.loads.len()));
        }
        let stall = ready - self.now;
        last.into_iter().for_each(|at| self.stalls[at] += stall);
        self.times.stall.0 += stall;
        self.times.computed.0 += compute.0;
        let end = ready.saturating_add(compute.0);
        self.times.duration.0 += end - self.now;
        self.now = end;
        self.ends.push_back(end);
    }

    /// The times since the last call, and the slowest link.
    pub(super) fn end_epoch(&mut self) -> (Times, Option<Slowest>) {
        let most = (0..self.stalls.len()).rev().max_by_key(|at| self.stalls[*at]);
        let slowest = most.filter(|at| self.stalls[*at] > 0).map(|at| self.slowest(at));
        self.stalls.fill(0);
        (core::mem::take(&mut self.times), slowest)
    }

    fn slowest(&self, at: usize) -> Slowest {
        let stall = Nanoseconds(self.stalls[at]);
        if at == self.loads.len() {
            return Slowest { node: None, link: Link::Store, stall };
        }
        let link = match at % self.rates.len() {
            COLD => Link::Cold,
            1 => Link::Receiving,
            2 => Link::Sending,
            TRANSFORMS => Link::Transforms,
            tier => Link::Tier(TierId(u8::try_from(tier - OTHERS).unwrap_or(u8::MAX))),
        };
        let node = u32::try_from(at / self.rates.len()).ok().map(NodeId);
        Slowest { node, link, stall }
    }
}
