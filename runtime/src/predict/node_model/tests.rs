//! The caches of a node after changes of its tiers.

use std::path::Path;

use tierfeed_core::units::BytesPerSecond;
use tierfeed_workload_analyzer::demand::Sizes;

use super::*;

const CHUNK: Bytes = Bytes::mib(1);

/// 1,000 samples of 100 kB on each of `nodes`, fifty steps of 10 ms.
pub(in crate::predict) fn job(nodes: u32, more: &str) -> Job {
    let text = format!(
        "name: job\n\
         dataset: {{ source: file:///data, format: image-folder }}\n\
         order: {{ shuffle: torch-distributed, epochs: 3 }}\n\
         batch_size: 10\n\
         step_time: 10 ms\n\
         world: {{ nodes: {nodes}, ranks_per_node: 2 }}\n\
         chunk: 1 MiB\n{more}"
    );
    Job::parse(&text, Path::new("/jobs/job.yaml")).unwrap()
}

pub(in crate::predict) fn demand(job: &Job) -> Demand {
    let samples = 1_000 * job.world.nodes as usize;
    let sizes = Sizes::of(16, || std::iter::repeat_n(Bytes(100_000), samples));
    Demand::of(job, &sizes).unwrap()
}

/// Main memory, CXL memory and scratch with so many chunks.
pub(in crate::predict) fn site(job: &Job, chunks: [u64; 3]) -> NodeModel {
    let tier = |(kind, chunks): (Kind, u64)| Tier {
        kind,
        cache: Bytes(chunks * CHUNK.0),
        speed: Speed { bandwidth: BytesPerSecond(20_000_000_000), ..UNLIMITED },
        reads_per_s: None,
        is_direct: false,
    };
    let kinds = [Kind::MainMemory, Kind::CxlMemory, Kind::Scratch];
    let staging = schedule::staging(job, &demand(job));
    NodeModel {
        arena: staging.within(Bytes(1 << 40)).arena,
        tiers: kinds.into_iter().zip(chunks).map(tier).collect(),
        chunk: CHUNK,
        cold: UNLIMITED,
        depth: staging.batches,
        staging,
        windows: schedule::usual_windows(),
        first_room: Bytes(0),
        transforming: None,
        stored: Bytes(0),
    }
}

fn changed(changes: &[&str]) -> Result<NodeModel, String> {
    let changes: Vec<Change> = changes.iter().map(|change| change.parse().unwrap()).collect();
    let site = site(&job(1, ""), [4, 8, 2]);
    site.with(&changes, None).map_err(|error| error.to_string())
}

fn tiers(site: &NodeModel) -> Vec<(Kind, u64)> {
    site.tiers.iter().map(|tier| (tier.kind, tier.cache.0 / CHUNK.0)).collect()
}

#[test]
fn a_change_leaves_the_other_tiers_as_they_are() {
    let (main, scratch) = ((Kind::MainMemory, 4), (Kind::Scratch, 2));
    let site = changed(&["cxl=16.5MiB"]).unwrap();
    assert_eq!(tiers(&site), [main, (Kind::CxlMemory, 16), scratch], "whole chunks");
    assert_eq!(tiers(&changed(&["cxl=none"]).unwrap()), [main, scratch]);
    let site = changed(&["storage=3MiB", "scratch=none"]).unwrap();
    assert_eq!(tiers(&site), [main, (Kind::CxlMemory, 8), (Kind::Storage, 3)]);
}

#[test]
fn a_tier_that_comes_stands_before_a_slower_one_of_a_faster_kind() {
    let mut site = changed(&["scratch=none"]).unwrap();
    site.tiers[1].speed.bandwidth = BytesPerSecond(50_000_000);
    let site = site.with(&["scratch=3MiB".parse().unwrap()], None).unwrap();
    let expected = [(Kind::MainMemory, 4), (Kind::Scratch, 3), (Kind::CxlMemory, 8)];
    assert_eq!(tiers(&site), expected);
}

#[test]
fn a_kind_whose_tiers_stand_apart_is_named_once() {
    let mut site = changed(&[]).unwrap();
    let slow = site.tiers[1];
    site.tiers.push(slow);
    assert_eq!(site.kinds(), [Kind::MainMemory, Kind::CxlMemory, Kind::Scratch]);
}

#[test]
fn a_tier_that_comes_stands_where_its_speed_does() {
    let site = changed(&["cxl=none"]).unwrap();
    let site = site.with(&["cxl=5MiB".parse().unwrap()], None).unwrap();
    let expected = [(Kind::MainMemory, 4), (Kind::CxlMemory, 5), (Kind::Scratch, 2)];
    assert_eq!(tiers(&site), expected);
}

#[test]
fn staging_takes_its_part_of_main_memory_first() {
    let whole = changed(&["main=64MiB"]).unwrap();
    let staged = whole.staged();
    assert_eq!(staged, site(&job(1, ""), [0, 0, 0]).staged());
    assert_eq!(whole.tiers[0].cache.0, (((64 << 20) - staged.0) >> 20) << 20);
    let tight = changed(&["main=3MiB"]).unwrap();
    assert_eq!((tight.tiers[0].cache, tight.arena), (Bytes(0), Bytes(3 << 19)));
}

#[test]
fn what_cannot_be_is_refused_with_what_could() {
    let least = site(&job(1, ""), [0, 0, 0]).staging.batch.0 * 2;
    let said = changed(&["main=1MiB"]).unwrap_err();
    assert!(said.contains("main-memory=1 MiB"), "{said}");
    assert!(said.ends_with(&format!("at least {}", Bytes(least))), "{said}");
    assert!(changed(&["main=none"]).unwrap_err().contains("main-memory=none"));
    let exact = format!("main={least}B");
    assert!(changed(&[exact.as_str()]).is_ok(), "what the message names is enough");
    let said = changed(&["cxl=1000kB"]).unwrap_err();
    assert!(said.contains("holds no chunk of 1 MiB"), "{said}");
    let said = changed(&["cxl=1GiB", "scratch=none", "cxl=2GiB"]).unwrap_err();
    assert!(said.contains("cxl-memory is changed twice"), "{said}");
}

#[test]
fn two_tiers_of_a_kind_share_what_it_gets() {
    let mut site = site(&job(1, ""), [0, 8, 0]);
    site.tiers.insert(2, Tier { cache: Bytes(0), ..site.tiers[1] });
    let grown = site.with_cache(Kind::CxlMemory, Bytes(7 << 20));
    assert_eq!(tiers(&grown)[1..3], [(Kind::CxlMemory, 4), (Kind::CxlMemory, 3)]);
    assert_eq!(grown.cache(Kind::CxlMemory), Some(Bytes(7 << 20)));
}
