//! Samples that are not copied: the trainer reads them in the memory of a shared tier.

use std::{
    collections::BTreeMap,
    sync::{Arc, RwLock},
};

use tierfeed_core::{
    batch::{Batch, InPlace},
    id::{ChunkId, LeaseId, SampleId, TierId},
    retention::in_place::SHARED_TIERS_MAX,
    tier::Locality,
    units::Bytes,
};
use tierfeed_numa_memory::{SharedPool, SharedPoolRequest, Span};

use super::test_agent::{PATIENCE, TestAgent, batch, batch_id};
use crate::{LeaseError, LeasedBatch, Reply, SharedTier};

const TIER: TierId = TierId(1);

/// A tier with one chunk, which holds `bytes` from its second cache line on.
fn shared_tier(bytes: &[u8]) -> (SharedTier, Span) {
    let (piece, locality) = (Bytes::mib(1), Locality::Anywhere);
    let request = SharedPoolRequest { piece, pieces_max: 4, locality, name: "test-memory" };
    let memory = Arc::new(SharedPool::reserve(&request).unwrap());
    let chunk = memory.take().unwrap();
    chunk.write(Bytes(64), bytes).unwrap();
    let starts = Arc::new(RwLock::new(BTreeMap::from([(ChunkId(0), Bytes(0))])));
    (SharedTier::new(TIER, memory, starts), chunk)
}

/// Two samples, of which the second is read in place in the first chunk of a tier.
fn half_in_place(tier: TierId, chunk: u32) -> Batch {
    let mut batch = batch(3, &[100, 11]);
    let in_place = InPlace { tier, chunk: ChunkId(chunk), offset: Bytes(64) };
    batch.entries[1].in_place = Some(in_place);
    batch
}

fn read(leased: &LeasedBatch, row: usize) -> Vec<u8> {
    let row = &leased.rows[row];
    let mut bytes = vec![0; usize::try_from(row.len.unwrap().0).unwrap()];
    leased.read(row, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_sample_is_read_in_place_from_its_tier_and_the_rest_from_the_batch() {
    let test_agent = TestAgent::new();
    let (tier, chunk) = shared_tier(b"lies there.");
    assert_eq!(test_agent.server.share_tiers(vec![tier]), Ok(()));
    let (client, connection) = test_agent.attach();
    assert_eq!(client.shared_tiers().len(), 1);
    client.request(batch_id(3)).unwrap();
    test_agent.requested();
    test_agent.arena.write(Bytes(4096), b"was copied.").unwrap();
    let batch = half_in_place(TIER, 0);
    let label = |sample: SampleId| Some(i64::from(sample.0));
    test_agent.server.lease(connection, LeaseId(9), Bytes(4096), &batch, label).unwrap();
    let Reply::Batch(leased) = client.next(PATIENCE).unwrap() else { panic!("refused") };
    let rows: Vec<_> =
        leased.rows.iter().map(|row| (row.sample.0, row.label, row.shared_tier)).collect();
    assert_eq!(rows, [(30, Some(30), None), (31, Some(31), Some(TIER))]);
    assert_eq!(read(&leased, 1), b"lies there.");
    assert_eq!(&read(&leased, 0)[..11], b"was copied.");
    chunk.write(Bytes(64), b"same bytes.").unwrap();
    assert_eq!(read(&leased, 1), b"same bytes.", "no copy was made");
    let mut lost = leased.rows[1];
    lost.shared_tier = Some(TierId(7));
    assert!(leased.read(&lost, &mut [0]).is_err());
    lost.shared_tier = Some(TIER);
    lost.offset = Bytes(u64::MAX);
    assert!(leased.read(&lost, &mut [0]).is_err());
}

#[test]
fn a_batch_that_names_what_its_trainer_cannot_read_is_not_handed_over() {
    let test_agent = TestAgent::new();
    let (tier, _chunk) = shared_tier(b"lies there.");
    assert_eq!(test_agent.server.share_tiers(vec![tier]), Ok(()));
    let (client, connection) = test_agent.attach();
    client.request(batch_id(3)).unwrap();
    test_agent.requested();
    for batch in [half_in_place(TierId(0), 0), half_in_place(TIER, 1)] {
        let in_place = batch.entries[1].in_place.unwrap();
        let refused = test_agent.server.lease(connection, LeaseId(9), Bytes(0), &batch, |_| None);
        assert_eq!(refused, Err(LeaseError::NotShared { in_place }));
    }
    let batch = half_in_place(TIER, 0);
    test_agent.server.lease(connection, LeaseId(9), Bytes(0), &batch, |_| None).unwrap();
    assert!(matches!(client.next(PATIENCE), Ok(Reply::Batch(_))));
}

#[test]
fn who_comes_before_a_tier_is_shared_is_told_of_none() {
    let test_agent = TestAgent::new();
    let (client, _) = test_agent.attach();
    assert!(client.shared_tiers().is_empty());
    let (tier, _chunk) = shared_tier(b"");
    let many = vec![tier; SHARED_TIERS_MAX + 2];
    assert_eq!(test_agent.server.share_tiers(many), Err(vec![TIER; 2]));
}
