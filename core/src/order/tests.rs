//! Orders equal those of the frameworks: vectors from the real libraries, in `core/tests/vectors/`.

use std::{string::ToString, vec, vec::Vec};

use serde_json::Value;

use super::*;
use crate::id::{BatchId, SampleId};

mod block;
mod dealing;
mod further;
mod resuming;
mod streaming;
mod tensorflow;
mod torch;

#[cfg(feature = "large_vectors")]
mod large;

fn spec(samples: u32, shuffle: Shuffle) -> Spec {
    Spec {
        samples,
        shuffle,
        seed: 0,
        epochs: 1_000,
        drop_last: false,
        batch_size: 4,
        world: World { nodes: 1, ranks_per_node: 1 },
        start: Position::START,
        further: FurtherDatasets::NONE,
    }
}

fn read_by(spec: &Spec, epoch: Epoch, rank: Rank) -> Vec<u32> {
    let order = spec.epoch(epoch).unwrap();
    let steps = (0..spec.steps_in(epoch)).map(Step);
    steps.flat_map(|step| order.batch(rank, step).collect::<Vec<_>>()).map(|it| it.0).collect()
}

fn sequence(spec: &Spec, epoch: u32) -> Vec<u32> {
    read_by(spec, Epoch(epoch), Rank(0))
}

fn crc32(samples: impl IntoIterator<Item = u64>) -> u32 {
    let mut table = [0_u32; 256];
    for (byte, entry) in (0_u32..).zip(&mut table) {
        *entry = (0..8).fold(byte, |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()));
    }
    let bytes = samples.into_iter().flat_map(u64::to_le_bytes);
    !bytes.fold(u32::MAX, |crc, byte| (crc >> 8) ^ table[usize::from(crc.to_le_bytes()[0] ^ byte)])
}

fn crc_of(samples: &[u32]) -> u32 {
    crc32(samples.iter().map(|sample| u64::from(*sample)))
}

fn document(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn cases(text: &str) -> Vec<Value> {
    document(text)["cases"].as_array().unwrap().clone()
}

fn number(case: &Value, key: &str) -> u32 {
    u32::try_from(case[key].as_u64().unwrap()).unwrap()
}

fn numbers(values: &Value) -> Vec<u32> {
    let values = values.as_array().unwrap().iter();
    values.map(|it| u32::try_from(it.as_u64().unwrap()).unwrap()).collect()
}

/// A seed as Python passes it; it may be negative.
fn seed(case: &Value) -> u64 {
    let seed = &case["seed"];
    seed.as_u64().unwrap_or_else(|| seed.as_i64().unwrap().cast_unsigned())
}

#[test]
fn an_order_of_nothing_is_refused() {
    let nothing = spec(0, Shuffle::Sequential);
    assert_eq!(nothing.validate(), Err(SpecError::Zero { field: "dataset" }));
    let world = World { nodes: 2, ranks_per_node: 2 };
    let truncated = Spec { drop_last: true, world, ..spec(3, Shuffle::Sequential) };
    assert_eq!(truncated.validate(), Err(SpecError::NothingLeft { samples: 3, ranks: 4 }));
    let block = Shuffle::Block(super::block::Block { shard: 3, window: 0 });
    assert_eq!(spec(9, block).validate(), Err(SpecError::Zero { field: "order.window" }));
    assert!(spec(9, Shuffle::Published).epoch(Epoch(0)).is_none());
}

#[test]
fn the_dataset_order_is_ascending() {
    assert_eq!(sequence(&spec(9, Shuffle::Sequential), 3), (0..9).collect::<Vec<_>>());
}
