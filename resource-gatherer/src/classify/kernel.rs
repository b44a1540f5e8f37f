//! The memory tier that Linux makes of a node: the figure that users of `memory_tierN` compare with.
//!
//! An abstract distance is 576 for the reference DRAM, grows with latency, shrinks with bandwidth, and is
//! cut into chunks of 128. If two DRAM nodes differ by more than 10 % the kernel trusts none of the
//! figures, and takes its defaults instead.
//!
//! # Source
//!
//! Linux `mm/memory-tiers.c` (`mt_perf_to_adistance`, `mt_set_default_dram_perf`) and
//! `include/linux/memory-tiers.h`; checked against kernel 6.12, which makes `memory_tier45` of 250 ns and
//! 50 GB/s beside 100 ns and 200 GB/s.

/// The width of a tier in abstract distance.
pub(crate) const CHUNK: u64 = 128;

/// The abstract distance of ordinary DRAM: the middle of the fifth chunk.
pub(crate) const DRAM: u64 = 4 * CHUNK + CHUNK / 2;

/// The abstract distance of DAX memory without a rating.
pub(crate) const DAX: u64 = 5 * DRAM;

/// Input of the formula; all four values are above zero where they are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Performance {
    pub(crate) read_latency_ns: u64,
    pub(crate) write_latency_ns: u64,
    pub(crate) read_mib_per_s: u64,
    pub(crate) write_mib_per_s: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// It has CPUs, so it is a reference.
    Dram,
    /// A DAX device that became memory.
    Dax,
    /// Another node without CPUs.
    CpuLess,
}

pub(crate) fn abstract_distances(nodes: &[(Role, Option<Performance>)]) -> Vec<u64> {
    let reference = reference(nodes);
    let distance = |(role, performance): &(Role, Option<Performance>)| {
        let default = if *role == Role::Dax { DAX } else { DRAM };
        performance.zip(reference).and_then(|(it, of)| distance(it, of)).unwrap_or(default)
    };
    nodes.iter().map(distance).collect()
}

/// The `N` of `memory_tierN`.
pub(crate) fn tier(abstract_distance: u64) -> u64 {
    abstract_distance / CHUNK
}

/// The formula, in whole numbers from left to right as in the kernel.
fn distance(performance: Performance, reference: Performance) -> Option<u64> {
    let latency = |it: Performance| it.read_latency_ns.checked_add(it.write_latency_ns);
    let rate = |it: Performance| it.read_mib_per_s.checked_add(it.write_mib_per_s);
    DRAM.checked_mul(latency(performance)?)?
        .checked_div(latency(reference)?)?
        .checked_mul(rate(reference)?)?
        .checked_div(rate(performance)?)
}

/// The first rated DRAM node, if all the others are within 10 % of it.
fn reference(nodes: &[(Role, Option<Performance>)]) -> Option<Performance> {
    let mut dram = nodes.iter().filter(|(role, _)| *role == Role::Dram).filter_map(|(_, it)| *it);
    let first = dram.next()?;
    dram.all(|other| agrees(other, first)).then_some(first)
}

fn agrees(a: Performance, reference: Performance) -> bool {
    let values = |it: Performance| {
        [it.read_latency_ns, it.write_latency_ns, it.read_mib_per_s, it.write_mib_per_s]
    };
    let mut both = values(a).into_iter().zip(values(reference));
    both.all(|(value, reference)| value.abs_diff(reference).saturating_mul(10) <= reference)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rated(latency_ns: u64, mib_per_s: u64) -> Performance {
        Performance {
            read_latency_ns: latency_ns,
            write_latency_ns: latency_ns,
            read_mib_per_s: mib_per_s,
            write_mib_per_s: mib_per_s,
        }
    }

    fn tiers(nodes: &[(Role, Option<Performance>)]) -> Vec<u64> {
        abstract_distances(nodes).into_iter().map(tier).collect()
    }

    #[test]
    fn the_formula_gives_what_kernels_were_seen_to_make() {
        let dram = (Role::Dram, Some(rated(100, 204_800)));
        assert_eq!(tiers(&[dram, dram, (Role::CpuLess, Some(rated(250, 51_200)))]), [4, 4, 45]);
        let dram = (Role::Dram, Some(rated(100, 81_920)));
        assert_eq!(tiers(&[dram, (Role::CpuLess, Some(rated(300, 20_480)))]), [4, 54]);
    }

    #[test]
    fn nobody_rates_dax_memory_so_it_is_tier_22_and_all_else_tier_4() {
        let unrated = [(Role::Dram, None), (Role::Dax, None), (Role::CpuLess, None)];
        assert_eq!(tiers(&unrated), [4, 22, 4]);
    }

    #[test]
    fn dram_that_disagrees_by_more_than_a_tenth_makes_the_kernel_trust_nothing() {
        let with = |second| {
            let dram =
                [(Role::Dram, Some(rated(100, 1000))), (Role::Dram, Some(rated(second, 1000)))];
            tiers(&[dram[0], dram[1], (Role::Dax, Some(rated(300, 500)))])
        };
        assert_eq!(with(110), [4, 4, 27]);
        assert_eq!(with(111), [4, 4, 22]);
    }

    #[test]
    fn divisions_round_down_one_after_the_other_as_in_the_kernel() {
        let nodes = [(Role::Dram, Some(rated(107, 1000))), (Role::CpuLess, Some(rated(280, 171)))];
        let by_hand = 576 * 560 / 214 * 2000 / 342;
        assert_eq!(abstract_distances(&nodes)[1], by_hand);
        assert_ne!(by_hand, 576 * 560 * 2000 / 214 / 342);
    }

    #[test]
    fn a_value_of_zero_is_no_rating() {
        let nodes = [(Role::Dram, Some(rated(0, 1000))), (Role::CpuLess, Some(rated(280, 171)))];
        assert_eq!(tiers(&nodes), [4, 4]);
    }
}
