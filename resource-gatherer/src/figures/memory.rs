//! Figures of a pair: the CPUs of one NUMA node, the memory of another.

use serde::{Deserialize, Serialize};

use super::estimate::Estimate;

/// Everything that was measured from the CPUs of `initiator` on the memory of `target`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Pair {
    /// The node whose CPUs run the kernels.
    pub initiator: u32,
    /// The node whose memory they run on.
    pub target: u32,
    /// Whether no other CPUs reach this memory better.
    pub is_best: bool,
    /// The length of each array of the bandwidth.
    pub buffer_bytes: u64,
    /// What the last-level caches of the initiator hold together, as the latencies show in a guest, else
    /// as the latencies show or the kernel states, whichever is more.
    pub cache_bytes: u64,
    /// Whether the caches held so much of the buffers that the figures sort nothing.
    pub cache_bound: bool,
    /// The share of the buffers that lies in huge pages; `None` where the kernel does not tell.
    pub huge_page_share: Option<f64>,
    /// A dependent load, TLB-local: the figure that tiers are made of.
    pub idle_latency_ns: Option<Estimate>,
    /// A dependent load anywhere in the buffer on 4 KiB pages: what the worst access costs.
    pub random_latency_ns: Option<Estimate>,
    /// Every kind of traffic at every number of threads.
    pub bandwidth: Vec<Bandwidth>,
    /// Latency while other threads make traffic; one curve for each kind of it.
    pub loaded_latency: Vec<LoadedLatency>,
    /// What a reader of the figures should know.
    pub remarks: Vec<String>,
}

impl Pair {
    /// The bandwidth of `traffic` by the number of threads that makes it highest.
    #[must_use]
    pub fn best(&self, traffic: Traffic) -> Option<&Bandwidth> {
        let same = self.bandwidth.iter().filter(|it| it.traffic == traffic);
        same.max_by(|a, b| a.bytes_per_s.median.total_cmp(&b.bytes_per_s.median))
    }
}

/// What a kernel does to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Traffic {
    /// Loads only.
    Read,
    /// Ordinary stores: the line is read before it is written.
    Write,
    /// Stores past the caches.
    WriteNonTemporal,
    /// `to = from`.
    Copy,
    /// `to = from`, stored past the caches.
    CopyNonTemporal,
    /// `to = s x from`.
    Scale,
    /// `to = first + second`.
    Add,
    /// `to = first + s x second`.
    Triad,
    /// Three lines read for each line written.
    #[serde(rename = "mix-3-1")]
    Mix3To1,
    /// Two lines read for each line written.
    #[serde(rename = "mix-2-1")]
    Mix2To1,
    /// One line read for each line written.
    #[serde(rename = "mix-1-1")]
    Mix1To1,
}

impl Traffic {
    /// The name in reports and plots.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::WriteNonTemporal => "write-non-temporal",
            Self::Copy => "copy",
            Self::CopyNonTemporal => "copy-non-temporal",
            Self::Scale => "scale",
            Self::Add => "add",
            Self::Triad => "triad",
            Self::Mix3To1 => "mix-3-1",
            Self::Mix2To1 => "mix-2-1",
            Self::Mix1To1 => "mix-1-1",
        }
    }
}

/// One kind of traffic by one number of threads.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// Which.
    pub traffic: Traffic,
    /// By how many threads, each on a core of its own.
    pub threads: u32,
    /// Bytes that the program moves, counted as STREAM does.
    pub bytes_per_s: Estimate,
    /// Bytes on the bus: an ordinary store is counted as a read and a write.
    pub bus_bytes_per_s: f64,
}

/// How latency grows with traffic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadedLatency {
    /// What the other threads do.
    pub traffic: Traffic,
    /// In ascending order of traffic; the first is without any.
    pub points: Vec<LoadedPoint>,
    /// Latency at half of the highest traffic; the figure of a tier, under reads.
    pub at_50_percent_ns: Option<f64>,
    /// Latency at 80 % of the highest traffic.
    pub at_80_percent_ns: Option<f64>,
    /// Latency at 90 % of the highest traffic.
    pub at_90_percent_ns: Option<f64>,
    /// The traffic at which latency is twice the idle one; `None` if it never is.
    pub knee_bytes_per_s: Option<f64>,
}

/// One point of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LoadedPoint {
    /// How many threads make traffic.
    pub generators: u32,
    /// How long each pauses between two pieces of work, in rounds of a spin loop.
    pub delay_rounds: u32,
    /// The traffic while the latency was taken.
    pub bytes_per_s: f64,
    /// A dependent load meanwhile.
    pub latency_ns: Estimate,
    /// 95 % of the samples are not slower.
    pub latency_p95_ns: f64,
}

/// The share of the buffers that must lie in huge pages.
pub(crate) const HUGE_PAGES_MIN: f64 = 0.9;
