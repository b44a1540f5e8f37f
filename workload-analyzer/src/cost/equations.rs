//! Equations 1 to 5 of DELI, and the requests of its prototype and of tierfeed in place of the last two.
//!
//! Symbols: `n` nodes, `e` epochs, `m` samples, `p` objects of a listing, `f` samples of a fetch,
//! `s_t` bytes of the dataset, `s_r` bytes of a node's disk besides, `m_c` samples in a node's cache, `t`
//! the time of the run; prices as in [`Prices`]. `10^-4` stands for prices per 10,000 requests and is in
//! [`super::Requested`].
//!
//! # Source
//!
//! DELI, section III-C.

use tierfeed_core::units::{Bytes, Nanoseconds};

use super::{Charge, Money, Prices, Scenario, Usage};

pub use super::Requests;

/// Equation 1: every node has all data on its disk, `n (c_d (s_t + s_r) + tau)`.
#[must_use]
pub fn disk(prices: &Prices, usage: &Usage, time: Nanoseconds) -> Charge {
    let held = Bytes(usage.dataset.0.saturating_add(prices.system_disk.0));
    Charge {
        scenario: Scenario::Disk,
        compute: compute(prices, usage.nodes, time),
        disk: disks(prices, usage.nodes, held, time),
        store: Money::default(),
        requests: Requests::default(),
        api: Money::default(),
    }
}

/// Equation 2: `tau = c_c (t_c + t_d)`, where `time` is `t_c + t_d`, for `n` nodes.
#[must_use]
pub fn compute(prices: &Prices, nodes: u32, time: Nanoseconds) -> Money {
    prices.vm.charge(time).times(u64::from(nodes))
}

/// Equation 3: the data lies once in a bucket and in part, `cache`, on each node,
/// `c_b s_t + n (c_d (s_r + s_t / m * m_c) + tau) + 10^-4 e alpha`.
///
/// `cache` is `s_t / m * m_c`, and `requests` is `e alpha` without its prices.
#[must_use]
pub fn bucket(
    prices: &Prices,
    usage: &Usage,
    scenario: Scenario,
    time: Nanoseconds,
    cache: Bytes,
    requests: Requests,
) -> Charge {
    let held = Bytes(prices.system_disk.0.saturating_add(cache.0));
    let stored = prices.store.monthly(usage.dataset);
    Charge {
        scenario,
        compute: compute(prices, usage.nodes, time),
        disk: disks(prices, usage.nodes, held, time),
        store: prices.storage_charged.charge(stored, time),
        requests,
        api: prices.class_a.charge(requests.listings) + prices.class_b.charge(requests.reads),
    }
}

/// Equation 4, times `e`: each node lists the bucket once an epoch, `n ceil(m / p)`, and every sample is
/// read, `m`.
#[must_use]
pub fn direct_requests(prices: &Prices, usage: &Usage) -> Requests {
    over_epochs(usage, u64::from(usage.nodes), prices, usage.samples)
}

/// Equation 5, times `e`: the bucket is listed for each fetch too, `n ceil(m / p) ceil(m / f)`.
///
/// The paper multiplies by all nodes and by all fetches of the dataset, though each node fetches only its
/// own part; see [`prototype_requests`].
#[must_use]
pub fn prefetch_requests(prices: &Prices, usage: &Usage, fetch: u64) -> Requests {
    let fetches = usage.samples.div_ceil(fetch.max(1));
    over_epochs(usage, u64::from(usage.nodes).saturating_mul(fetches), prices, usage.samples)
}

/// The requests of DELI's prototype: a node lists the bucket for the fetches of its own part, and a sample
/// that the trainer misses is read by the trainer and again by the prefetcher.
#[must_use]
pub fn prototype_requests(prices: &Prices, usage: &Usage, fetch: u64, misses: u64) -> Requests {
    let nodes = u64::from(usage.nodes.max(1));
    let fetches = usage.samples.div_ceil(nodes).div_ceil(fetch.max(1));
    let reads = usage.samples.saturating_add(misses);
    over_epochs(usage, nodes.saturating_mul(fetches), prices, reads)
}

/// The requests of tierfeed: the bucket is listed once, for the index, and read as planned.
#[must_use]
pub fn planned_requests(prices: &Prices, usage: &Usage, cold_reads: u64) -> Requests {
    Requests { listings: pages(prices, usage), reads: cold_reads }
}

fn over_epochs(usage: &Usage, lists: u64, prices: &Prices, reads: u64) -> Requests {
    let epochs = u64::from(usage.epochs);
    let listings = lists.saturating_mul(pages(prices, usage));
    Requests { listings: listings.saturating_mul(epochs), reads: reads.saturating_mul(epochs) }
}

/// `ceil(m / p)`: the pages of one listing of the bucket.
fn pages(prices: &Prices, usage: &Usage) -> u64 {
    usage.objects.div_ceil(u64::from(prices.list_page.max(1)))
}

fn disks(prices: &Prices, nodes: u32, held: Bytes, time: Nanoseconds) -> Money {
    let monthly = prices.disk.monthly(held).times(u64::from(nodes));
    prices.storage_charged.charge(monthly, time)
}
