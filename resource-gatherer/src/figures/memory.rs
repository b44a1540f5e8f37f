//! Figures of a pair: the CPUs of one NUMA node, the memory of another.

use serde::{Deserialize, Serialize};

use super::{Figures, estimate::Estimate};

/// Everything that was measured from the CPUs of `initiator` on the memory of `target`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Pair {
    pub initiator: u32,
    pub target: u32,
    /// Whether no other CPUs reach this memory better.
    pub is_best: bool,
    /// Length of each array for the bandwidth.
    pub buffer_bytes: u64,
    /// The size of all last-level caches of the initiator: in a guest as the latencies show, else the larger of that
    /// and the size that the kernel states.
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
    /// Latency while other threads make traffic; empty where it was not measured.
    pub loaded_latency: Vec<LoadedLatency>,
    pub remarks: Vec<String>,
}

impl Pair {
    /// The bandwidth of `traffic` by the number of threads that makes it highest.
    #[must_use]
    pub fn best(&self, traffic: Traffic) -> Option<&Bandwidth> {
        let same = self.bandwidth.iter().filter(|it| it.traffic == traffic);
        same.max_by(|a, b| a.bytes_per_s.median.total_cmp(&b.bytes_per_s.median))
    }

    /// The figures that a tier is made of: rates are those of the best number of threads, latency under load
    /// is that at half of the highest read traffic, unless a disturbance made it lower than the idle one.
    pub(crate) fn figures(&self) -> Figures {
        let best = |traffic| self.best(traffic).map(|it| it.bytes_per_s);
        let reads = self.loaded_latency.iter().find(|curve| curve.traffic == Traffic::Read);
        let loaded = reads.and_then(|curve| curve.latency_at(0.5));
        let idle = self.idle_latency_ns;
        let loaded = loaded.filter(|it| idle.is_none_or(|idle| it.median >= idle.median));
        Figures {
            read_bytes_per_s: best(Traffic::Read),
            write_bytes_per_s: best(Traffic::Write),
            // STREAM counts what is read and what is written; a copy is what arrives.
            copy_bytes_per_s: best(Traffic::Copy).map(|rate| rate.divided_by(2.0)),
            triad_bytes_per_s: best(Traffic::Triad),
            idle_latency_ns: idle,
            loaded_latency_ns: loaded.map(Estimate::rounded),
            random_read_iops: None,
        }
    }

    /// Whether too little of the buffers lies in huge pages, so that latency holds misses of the TLB.
    pub(crate) fn lacks_huge_pages(&self) -> bool {
        self.huge_page_share.is_some_and(|share| share < HUGE_PAGES_MIN)
    }

    /// Whether the figures may be used for sorting: not if they come from the caches or hold misses of the
    /// TLB.
    pub(crate) fn is_usable(&self) -> bool {
        !self.cache_bound && !self.lacks_huge_pages() && self.idle_latency_ns.is_some()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Traffic {
    Read,
    /// Ordinary stores: the line is read before it is written.
    Write,
    /// Stores past the caches.
    WriteNonTemporal,
    /// `to = from`.
    Copy,
    CopyNonTemporal,
    /// `to = s x from`.
    Scale,
    /// `to = first + second`.
    Add,
    /// `to = first + s x second`.
    Triad,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bandwidth {
    pub traffic: Traffic,
    /// Each on a core of its own.
    pub threads: u32,
    /// Bytes that the program moves, counted as STREAM does.
    pub bytes_per_s: Estimate,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadedLatency {
    pub traffic: Traffic,
    /// In ascending order of traffic; the first is without any.
    pub points: Vec<LoadedPoint>,
    /// Latency at half of the highest traffic; the figure of a tier, under reads.
    pub at_50_percent_ns: Option<f64>,
    /// The traffic at which latency is twice the idle one; `None` if it never is.
    pub knee_bytes_per_s: Option<f64>,
}

impl LoadedLatency {
    /// Latency at a share of the highest traffic, interpolated between the points beside it.
    pub(crate) fn latency_at(&self, share: f64) -> Option<Estimate> {
        let most = self.points.last()?;
        let wanted = share * most.bytes_per_s;
        let (a, b) = self.points.windows(2).map(|pair| (pair[0], pair[1])).find(|(a, b)| {
            a.bytes_per_s <= wanted && wanted <= b.bytes_per_s && a.bytes_per_s < b.bytes_per_s
        })?;
        let weight = (wanted - a.bytes_per_s) / (b.bytes_per_s - a.bytes_per_s);
        let between = a.latency_ns.towards(&b.latency_ns, weight);
        let contended = between.contended || most.latency_ns.contended;
        Some(Estimate { contended, ..between })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LoadedPoint {
    pub generators: u32,
    /// The pause of each between two pieces of work, in rounds of a spin loop.
    pub delay_rounds: u32,
    /// The traffic while the latency was taken.
    pub bytes_per_s: f64,
    pub latency_ns: Estimate,
}

/// The share of the buffers that must lie in huge pages.
const HUGE_PAGES_MIN: f64 = 0.9;

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(idle_ns: f64, loaded_ns: f64) -> Pair {
        let point = |bytes_per_s, latency_ns| LoadedPoint {
            generators: 1,
            delay_rounds: 0,
            bytes_per_s,
            latency_ns: Estimate::stated(latency_ns),
        };
        let curve = LoadedLatency {
            traffic: Traffic::Read,
            points: vec![point(0.0, idle_ns), point(50e9, loaded_ns), point(100e9, 500.0)],
            at_50_percent_ns: Some(loaded_ns),
            knee_bytes_per_s: None,
        };
        Pair {
            idle_latency_ns: Some(Estimate::stated(idle_ns)),
            loaded_latency: vec![curve],
            ..Pair::default()
        }
    }

    #[test]
    fn no_load_makes_memory_faster() {
        let loaded = |pair: Pair| pair.figures().loaded_latency_ns.map(|it| it.median);
        assert_eq!(loaded(pair(100.0, 135.0)), Some(135.0));
        assert_eq!(loaded(pair(140.0, 116.0)), None, "only a disturbance explains it");
    }

    #[test]
    fn figures_from_small_pages_or_caches_make_no_tier() {
        let of_huge_pages = |share| Pair { huge_page_share: Some(share), ..pair(100.0, 135.0) };
        assert!(pair(100.0, 135.0).is_usable() && of_huge_pages(0.9).is_usable());
        assert!(!of_huge_pages(0.89).is_usable());
        assert!(!Pair { cache_bound: true, ..pair(100.0, 135.0) }.is_usable());
    }
}
