//! The rates of one and of two threads that write to CXL memory, by the probe report of this host: the
//! schedule decides by them how many copy.

use tierfeed_core::{
    fleet::{Origin, schedule::WriteRates},
    id::NumaNode,
    tier::{Kind, Locality},
    units::{BytesPerSecond, whole},
};
use tierfeed_prefetcher::tier::Backing;
use tierfeed_resource_gatherer::report::{Report, Tier};

use super::TierClaim;

/// The rates of a CXL tier in `report`, if both were measured without contention.
pub(super) fn rates(claim: &TierClaim, report: &Report) -> Option<WriteRates> {
    match (claim.origin, claim.claim.kind, &claim.backing) {
        (Origin::Real, Kind::CxlMemory, Backing::Memory(Locality::Numa(numa))) => {
            of_node(report, *numa)
        }
        _ => None,
    }
}

fn of_node(report: &Report, node: NumaNode) -> Option<WriteRates> {
    let is_it = |tier: &&Tier| {
        let is_real = tier.kind == Kind::CxlMemory && !tier.emulated;
        is_real && tier.numa_nodes.contains(&node.0)
    };
    let tier = report.tiers.iter().find(is_it)?;
    Some(WriteRates { one: rate(report, tier, 1)?, two: rate(report, tier, 2)? })
}

/// The best rate of copies from main memory to a tier with this many threads.
fn rate(report: &Report, to: &Tier, threads: u32) -> Option<BytesPerSecond> {
    let is_main = |name: &str| {
        report.tiers.iter().any(|tier| tier.name == name && tier.kind == Kind::MainMemory)
    };
    let copies = report
        .transfers
        .iter()
        .filter(|copy| copy.to == to.name && copy.threads == threads && is_main(&copy.from));
    let sound = copies.map(|copy| copy.bytes_per_s).filter(|it| it.samples > 0 && !it.contended);
    let best = sound.map(|estimate| estimate.median).max_by(f64::total_cmp)?;
    Some(BytesPerSecond(whole(best)))
}

#[cfg(test)]
pub(super) mod tests {
    use tierfeed_core::fleet::first_schedule::copy_threads;
    use tierfeed_resource_gatherer::{probe::estimate::Estimate, report::Transfer};

    use super::*;

    fn tier(name: &str, kind: Kind, node: u32, emulated: bool) -> Tier {
        let kind = match kind {
            Kind::MainMemory => "main-memory",
            _ => "cxl-memory",
        };
        let text = serde_json::json!({
            "name": name, "kind": kind, "numa_node": node, "numa_nodes": [node], "path": null,
            "capacity_bytes": null, "free_bytes": null, "read_bytes_per_s": null,
            "write_bytes_per_s": null, "copy_bytes_per_s": null, "triad_bytes_per_s": null,
            "idle_latency_ns": null, "loaded_latency_ns": null, "random_read_iops": null,
            "emulated": emulated, "memory": null, "source": "measured", "access": null,
            "quality": { "converged": true, "contended": false }, "estimates": {}, "remarks": [],
        });
        serde_json::from_value(text).unwrap()
    }

    fn transfer(from: &str, to: &str, threads: u32, gb_per_s: f64) -> Transfer {
        let bytes_per_s = Estimate { samples: 9, ..Estimate::stated(gb_per_s * 1e9) };
        Transfer {
            from: from.to_owned(),
            to: to.to_owned(),
            is_best: false,
            threads,
            non_temporal: true,
            chunk_bytes: 512 << 20,
            bytes_per_s,
        }
    }

    fn report(transfers: Vec<Transfer>) -> Report {
        let empty = serde_json::json!({
            "format": 2, "host": "a", "tiers": [], "numa": { "nodes": [], "latency_ns": [],
            "read_bytes_per_s": [] }, "pairs": [], "storage": [], "object_stores": [],
            "transfers": [], "views": [], "comparisons": [], "skipped": [],
            "inventory": serde_json::to_value(
                tierfeed_resource_gatherer::Inventory::default()).unwrap(),
        });
        let mut report: Report = serde_json::from_value(empty).unwrap();
        report.tiers = vec![
            tier("main-memory", Kind::MainMemory, 0, false),
            tier("cxl-memory", Kind::CxlMemory, 2, false),
            tier("cxl-memory-2", Kind::CxlMemory, 3, true),
        ];
        report.transfers = transfers;
        report
    }

    /// One and two threads have the same rate, on node 2 of the host "host".
    pub(in crate::layout) fn even() -> Report {
        let copy = |threads| transfer("main-memory", "cxl-memory", threads, 17.0);
        let mut report = report(vec![copy(1), copy(2)]);
        "host".clone_into(&mut report.host);
        report
    }

    fn threads(one: f64, two: f64) -> Option<u32> {
        let copies = vec![
            transfer("main-memory", "cxl-memory", 1, one),
            transfer("main-memory", "cxl-memory", 1, one / 2.0),
            transfer("main-memory", "cxl-memory", 2, two),
            transfer("cxl-memory", "main-memory", 2, 90.0),
        ];
        let measured = of_node(&report(copies), NumaNode(2));
        measured.map(|measured| copy_threads(measured).get())
    }

    #[test]
    fn a_device_that_takes_no_more_from_two_gets_one_writer() {
        assert_eq!(threads(17.0, 17.1), Some(1));
        assert_eq!(threads(17.0, 12.0), Some(1), "nor one that takes less");
        assert_eq!(threads(17.0, 18.6), Some(1), "nor for a tenth more");
        assert_eq!(threads(10.0, 19.0), Some(2));
    }

    #[test]
    fn what_was_not_measured_here_decides_nothing() {
        let one = transfer("main-memory", "cxl-memory", 1, 17.0);
        let two = transfer("main-memory", "cxl-memory", 2, 17.0);
        let disturbed = Transfer {
            bytes_per_s: Estimate { contended: true, ..two.bytes_per_s },
            ..two.clone()
        };
        for copies in [vec![], vec![one.clone()], vec![one.clone(), disturbed]] {
            assert_eq!(of_node(&report(copies), NumaNode(2)), None);
        }
        let report = report(vec![one, two]);
        assert!(of_node(&report, NumaNode(2)).is_some());
        assert_eq!(of_node(&report, NumaNode(3)), None, "an emulated tier");
        assert_eq!(of_node(&report, NumaNode(4)), None, "a node that was not there");
    }
}
