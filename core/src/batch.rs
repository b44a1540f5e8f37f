//! The layout of a batch in staging memory: samples on 64-byte boundaries, then a table that
//! locates them.
//!
//! The agent writes this layout and the trainer's client reads it; both take it from here. A sample
//! that is read in place still has room in the layout: if it has to be fetched after all, it goes
//! there.
//!
//! With a transform the samples of the table are rows of one length: the rows lie at the start of the batch, at
//! a constant stride, and behind them each sample has an input slot, into which its bytes arrive. Trainers know
//! nothing of input slots, unless samples have fields beside the one that became the row: then the table has a
//! second row for each sample, which says where its stored bytes lie.

use alloc::vec::Vec;

use crate::{
    id::{BatchId, ChunkId, SampleId, TierId},
    units::Bytes,
};

/// Every tensor starts on a multiple of this: TensorFlow aborts on smaller alignments.
pub const SAMPLE_ALIGN: u64 = 64;

/// Every batch starts on a multiple of this.
pub const BATCH_ALIGN: u64 = 4096;

/// The longest sample that an index or a job may have, 1 TiB: so the length of a batch with the
/// largest possible number of samples fits into 64 bits.
pub const SAMPLE_BYTES_MAX: Bytes = Bytes(1 << 40);

/// One row of the table: sample, label, offset and length, eight bytes each, little-endian.
pub const TABLE_ROW_BYTES: u64 = 32;

/// The length that the table gives for a sample that could not be read and that the job skips.
pub const SKIPPED: u64 = u64::MAX;

/// The 99th percentile of a sum of so many random lengths: `mean`, that of the sum, plus 2.326 standard
/// deviations.
#[must_use]
pub fn p99_of_sum(mean: Bytes, variance: u128, count: u64) -> Bytes {
    let deviation = variance.saturating_mul(count.into()).isqrt();
    let tail = deviation.saturating_mul(2_326) / 1_000;
    let sum = u128::from(mean.0).saturating_add(tail);
    Bytes(u64::try_from(sum).unwrap_or(u64::MAX))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entry {
    pub sample: SampleId,
    /// From the start of the batch.
    pub offset: Bytes,
    /// `None` if the sample could not be read and the job skips such samples.
    pub len: Option<Bytes>,
    /// The place where the trainer reads the sample; `None` if it was copied into the batch.
    pub in_place: Option<InPlace>,
    /// The stored bytes of a sample that became a row; `None` if trainers do not get them.
    pub stored: Option<Stored>,
}

/// The stored bytes of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stored {
    /// From the start of the batch.
    pub offset: Bytes,
    pub len: Bytes,
}

/// A sample that becomes a row of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Input {
    pub sample: SampleId,
    pub room: Bytes,
    /// `None` if trainers do not get the stored bytes.
    pub stored: Option<Bytes>,
}

/// The place of a cached sample that a batch reads in place: in one piece, in a tier that trainers map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InPlace {
    pub tier: TierId,
    pub chunk: ChunkId,
    /// Offset from the start of the chunk, a multiple of [`SAMPLE_ALIGN`].
    pub offset: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Batch {
    pub id: BatchId,
    /// In reading order.
    pub entries: Vec<Entry>,
    /// From the start of the batch.
    pub table_offset: Bytes,
    /// Samples, padding and table together; a multiple of [`BATCH_ALIGN`].
    pub len: Bytes,
}

impl Batch {
    /// A length that exceeds 64 bits becomes the largest possible one, which no memory has: such a batch is
    /// refused like any batch that is too long.
    #[must_use]
    pub fn lay_out(id: BatchId, samples: impl Iterator<Item = (SampleId, Bytes)>) -> Self {
        let mut end = 0_u64;
        let mut entries = Vec::new();
        for (sample, len) in samples {
            entries.push(Entry::copied(sample, Bytes(end), len));
            end = aligned(end.saturating_add(len.0), SAMPLE_ALIGN);
        }
        Self::with_table(id, entries, end)
    }

    /// Lays out rows of `row` bytes, one for each of `inputs`, and behind them an input slot for each.
    /// Returns the starts of the input slots, in the order of the entries.
    #[must_use]
    pub fn lay_out_rows(
        id: BatchId,
        row: Bytes,
        inputs: impl Iterator<Item = Input>,
    ) -> (Self, Vec<Bytes>) {
        let mut entries = Vec::new();
        let mut slots = Vec::new();
        let stride = row_stride(row);
        let mut end = 0_u64;
        let inputs: Vec<_> = inputs.collect();
        for input in &inputs {
            entries.push(Entry::copied(input.sample, Bytes(end), row));
            end = end.saturating_add(stride.0).min(LEN_MAX);
        }
        for (entry, input) in entries.iter_mut().zip(inputs) {
            let offset = Bytes(end);
            entry.stored = input.stored.map(|len| Stored { offset, len });
            slots.push(offset);
            end = aligned(end.saturating_add(input.room.0), SAMPLE_ALIGN);
        }
        (Self::with_table(id, entries, end), slots)
    }

    fn with_table(id: BatchId, entries: Vec<Entry>, end: u64) -> Self {
        let table_bytes = rows_of(&entries).saturating_mul(TABLE_ROW_BYTES);
        let len = aligned(end.saturating_add(table_bytes).max(1), BATCH_ALIGN);
        Self { id, entries, table_offset: Bytes(end), len: Bytes(len) }
    }

    /// One for each sample, and one for the stored bytes of each sample that has them.
    #[must_use]
    pub fn table_rows(&self) -> u64 {
        rows_of(&self.entries)
    }

    #[must_use]
    pub fn payload(&self) -> Bytes {
        let lens = self.entries.iter().filter_map(|entry| entry.len);
        Bytes(lens.fold(0, |sum, len| sum.saturating_add(len.0)))
    }
}

impl Entry {
    const fn copied(sample: SampleId, offset: Bytes, len: Bytes) -> Self {
        Self { sample, offset, len: Some(len), in_place: None, stored: None }
    }
}

fn rows_of(entries: &[Entry]) -> u64 {
    entries.iter().map(|entry| 1 + u64::from(entry.stored.is_some())).sum()
}

#[must_use]
pub fn row_stride(row: Bytes) -> Bytes {
    Bytes(aligned(row.0, SAMPLE_ALIGN))
}

/// The largest length of a batch.
const LEN_MAX: u64 = u64::MAX - u64::MAX % BATCH_ALIGN;

/// The next multiple of `align`, a divisor of [`BATCH_ALIGN`]; at most [`LEN_MAX`].
fn aligned(bytes: u64, align: u64) -> u64 {
    bytes.checked_next_multiple_of(align).map_or(LEN_MAX, |next| next.min(LEN_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Epoch, Rank, Step};

    const ID: BatchId = BatchId { epoch: Epoch(0), step: Step(0), rank: Rank(0) };

    fn input(sample: u32, room: u64, stored: Option<u64>) -> Input {
        Input { sample: SampleId(sample), room: Bytes(room), stored: stored.map(Bytes) }
    }

    /// Regression: in a release build the offsets wrapped, and a sample lay in another batch.
    #[test]
    fn a_batch_that_64_bits_cannot_count_is_longer_than_any_memory() {
        let huge = [u64::MAX, u64::MAX - 63, u64::MAX / 2 + 1];
        for lens in [[huge[0], 1, 1], [1, huge[1], 64], [huge[2], huge[2], huge[2]]] {
            let batch = Batch::lay_out(ID, lens.map(|len| (SampleId(0), Bytes(len))).into_iter());
            let offsets: Vec<u64> = batch.entries.iter().map(|entry| entry.offset.0).collect();
            assert!(offsets.is_sorted(), "{offsets:?}");
            assert!(batch.len.0 > u64::MAX / 2, "{}", batch.len.0);
            assert!(batch.len >= batch.table_offset && batch.payload().0 > u64::MAX / 2);
        }
    }

    #[test]
    fn rows_lie_at_a_constant_stride_from_the_start_and_inputs_behind_them() {
        let inputs = [(4, 70), (2, 0), (9, 64)];
        let inputs = inputs.map(|(sample, room)| input(sample, room, None));
        let (batch, slots) = Batch::lay_out_rows(ID, Bytes(100), inputs.into_iter());
        let rows: Vec<_> = batch.entries.iter().map(|it| (it.sample.0, it.offset.0)).collect();
        assert_eq!(rows, [(4, 0), (2, 128), (9, 256)]);
        assert!(batch.entries.iter().all(|entry| entry.len == Some(Bytes(100))));
        assert_eq!(slots, [384, 512, 512].map(Bytes));
        assert_eq!((batch.table_offset, batch.len), (Bytes(576), Bytes(4096)));
        assert_eq!(batch.payload(), Bytes(300));
        assert_eq!(batch.table_rows(), 3);
    }

    #[test]
    fn stored_bytes_beside_rows_lie_in_input_slots_and_have_rows_in_the_table() {
        let inputs = [input(4, 200, Some(70)), input(2, 64, Some(64)), input(9, 0, Some(0))];
        let (batch, slots) = Batch::lay_out_rows(ID, Bytes(4000), inputs.into_iter());
        let stored: Vec<_> = batch.entries.iter().filter_map(|it| it.stored).collect();
        assert_eq!(stored.iter().map(|it| it.offset).collect::<Vec<_>>(), slots);
        assert_eq!(stored.iter().map(|it| it.len.0).collect::<Vec<_>>(), [70, 64, 0]);
        assert_eq!(batch.table_rows(), 6);
        let table_end = batch.table_offset.0 + 6 * TABLE_ROW_BYTES;
        assert!(table_end <= batch.len.0 && table_end > batch.len.0 - BATCH_ALIGN);
    }

    #[test]
    fn rows_that_64_bits_cannot_count_are_longer_than_any_memory() {
        for (row, room) in [(u64::MAX, 1), (1, u64::MAX), (u64::MAX / 2, u64::MAX / 2)] {
            let inputs = [input(0, room, Some(room)); 3].into_iter();
            let (batch, slots) = Batch::lay_out_rows(ID, Bytes(row), inputs);
            let rows = batch.entries.iter().map(|entry| entry.offset);
            let offsets: Vec<Bytes> = rows.chain(slots).chain([batch.table_offset]).collect();
            assert!(offsets.is_sorted(), "{offsets:?}");
            assert!(batch.len.0 > u64::MAX / 2 && batch.len >= batch.table_offset);
        }
    }

    #[test]
    fn the_largest_batch_of_the_longest_samples_is_counted() {
        let samples = 1 << 20;
        let all = (0..samples).map(|sample| (SampleId(sample), SAMPLE_BYTES_MAX));
        let batch = Batch::lay_out(ID, all);
        assert_eq!(batch.table_offset.0, SAMPLE_BYTES_MAX.0 * u64::from(samples));
        assert_eq!(batch.len.0, batch.table_offset.0 + u64::from(samples) * TABLE_ROW_BYTES);
    }
}
