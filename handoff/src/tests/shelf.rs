//! Samples that are not copied: the trainer reads them where its node keeps them.

use std::{
    collections::BTreeMap,
    sync::{Arc, RwLock},
};

use tierfeed_core::{
    batch::{Batch, InPlace},
    id::{ChunkId, LeaseId, SampleId, TierId},
    tier::Locality,
    units::Bytes,
};
use tierfeed_numa_memory::{Shelf, ShelfRequest, Span};

use super::stage::{PATIENCE, Stage, batch, batch_id};
use crate::{LeaseError, LeasedBatch, Reply, SHELVES_MAX, Shelved};

const TIER: TierId = TierId(1);

/// A tier with one chunk, which holds `bytes` from its second cache line on.
fn shelved(bytes: &[u8]) -> (Shelved, Span) {
    let (piece, locality) = (Bytes::mib(1), Locality::Anywhere);
    let request = ShelfRequest { piece, pieces_max: 4, locality, name: "test-shelf" };
    let shelf = Arc::new(Shelf::reserve(&request).unwrap());
    let chunk = shelf.take().unwrap();
    chunk.write(Bytes(64), bytes).unwrap();
    let starts = Arc::new(RwLock::new(BTreeMap::from([(ChunkId(0), Bytes(0))])));
    (Shelved::new(TIER, shelf, starts), chunk)
}

/// Two samples, of which the second is shown in the first chunk of a tier.
fn half_shown(tier: TierId, chunk: u32) -> Batch {
    let mut batch = batch(3, &[100, 11]);
    let shown = InPlace { tier, chunk: ChunkId(chunk), offset: Bytes(64) };
    batch.entries[1].in_place = Some(shown);
    batch
}

fn read(leased: &LeasedBatch, row: usize) -> Vec<u8> {
    let row = &leased.rows[row];
    let mut bytes = vec![0; usize::try_from(row.len.unwrap().0).unwrap()];
    leased.read(row, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_shown_sample_is_read_from_its_tier_and_the_rest_from_the_batch() {
    let stage = Stage::new();
    let (tier, chunk) = shelved(b"lies there.");
    assert_eq!(stage.server.show(vec![tier]), Ok(()));
    let (client, holder) = stage.attach();
    assert_eq!(client.shelves().len(), 1);
    client.request(batch_id(3)).unwrap();
    stage.requested();
    stage.arena.write(Bytes(4096), b"was copied.").unwrap();
    let batch = half_shown(TIER, 0);
    let label = |sample: SampleId| Some(i64::from(sample.0));
    stage.server.lease(holder, LeaseId(9), Bytes(4096), &batch, label).unwrap();
    let Reply::Batch(leased) = client.next(PATIENCE).unwrap() else { panic!("refused") };
    let rows: Vec<_> = leased.rows.iter().map(|row| (row.sample.0, row.label, row.shelf)).collect();
    assert_eq!(rows, [(30, Some(30), None), (31, Some(31), Some(TIER))]);
    assert_eq!(read(&leased, 1), b"lies there.");
    assert_eq!(&read(&leased, 0)[..11], b"was copied.");
    chunk.write(Bytes(64), b"same bytes.").unwrap();
    assert_eq!(read(&leased, 1), b"same bytes.", "no copy was made");
    let mut lost = leased.rows[1];
    lost.shelf = Some(TierId(7));
    assert!(leased.read(&lost, &mut [0]).is_err());
    lost.shelf = Some(TIER);
    lost.offset = Bytes(u64::MAX);
    assert!(leased.read(&lost, &mut [0]).is_err());
}

#[test]
fn a_batch_that_names_what_its_trainer_cannot_read_is_not_handed_over() {
    let stage = Stage::new();
    let (tier, _chunk) = shelved(b"lies there.");
    assert_eq!(stage.server.show(vec![tier]), Ok(()));
    let (client, holder) = stage.attach();
    client.request(batch_id(3)).unwrap();
    stage.requested();
    for batch in [half_shown(TierId(0), 0), half_shown(TIER, 1)] {
        let shown = batch.entries[1].in_place.unwrap();
        let refused = stage.server.lease(holder, LeaseId(9), Bytes(0), &batch, |_| None);
        assert_eq!(refused, Err(LeaseError::NotShown { shown }));
    }
    let batch = half_shown(TIER, 0);
    stage.server.lease(holder, LeaseId(9), Bytes(0), &batch, |_| None).unwrap();
    assert!(matches!(client.next(PATIENCE), Ok(Reply::Batch(_))));
}

#[test]
fn who_comes_before_a_tier_is_shown_is_told_of_none() {
    let stage = Stage::new();
    let (client, _) = stage.attach();
    assert!(client.shelves().is_empty());
    let (tier, _chunk) = shelved(b"");
    let many = vec![tier; SHELVES_MAX + 2];
    assert_eq!(stage.server.show(many), Err(vec![TIER; 2]));
}
