//! The table behind the samples of a batch, which describes them: `tierfeed_core::batch` fixes its
//! rows. Where trainers get the stored bytes of a sample beside its row, a second row for it follows.
//!
//! The agent writes it before it leases the batch and never reads it again. The client reads it out
//! of memory that other processes of its rank can write too, so it copies the table first and then
//! validates every row: a sample must lie before the table, or in a shared tier that the client
//! maps, and on a boundary that tensors need.

use tierfeed_core::{
    batch::{BATCH_ALIGN, Batch, InPlace, SAMPLE_ALIGN, SKIPPED, Stored, TABLE_ROW_BYTES},
    id::{SampleId, TierId},
    units::Bytes,
};
use tierfeed_numa_memory::{Mapping, RangeError};

use super::{
    entry::{Ready, halves},
    shared_tiers::SharedTiers,
};

const ROW_BYTES: usize = 32;
const _: () = assert!(ROW_BYTES as u64 == TABLE_ROW_BYTES);

/// The upper half of the first word of a row: 0 for a sample in the batch, the tier counted from 1, or a mark
/// for a row of the stored bytes of the sample before it, in the batch.
const IN_BATCH: u32 = 0;
const FIRST_SHARED_TIER: u32 = 1;
const STORED: u32 = u32::MAX;

const UNLABELLED: i64 = -1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    pub sample: SampleId,
    pub label: Option<i64>,
    /// Start of the sample, from the start of the batch or of the shared tier; a multiple of 64.
    pub offset: Bytes,
    /// Length of the sample, or `None` if it could not be read and the job skips such samples.
    pub len: Option<Bytes>,
    /// `None` for a sample in the batch.
    pub shared_tier: Option<TierId>,
    /// Its stored bytes in the batch, if it is a row that was made of one of several fields.
    pub stored: Option<Stored>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    #[error("a batch of {len} at offset {} of an arena of {arena}", .offset.0)]
    Batch { offset: Bytes, len: Bytes, arena: Bytes },
    #[error("a table of {rows} rows at offset {} of a batch of {len}", .offset.0)]
    Table { offset: Bytes, rows: u32, len: Bytes },
    #[error("sample {} at offset {} does not lie before the table", .sample.0, .offset.0)]
    Sample { sample: SampleId, offset: Bytes },
    #[error("stored bytes of sample {} without its row", .sample.0)]
    Stored { sample: SampleId },
    #[error("sample {} at offset {} lies in no shared memory of tier {}", .sample.0, .offset.0, .tier)]
    SharedTier { sample: SampleId, offset: Bytes, tier: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteError {
    Outside(RangeError),
    NotShared(InPlace),
}

/// Writes the table of `batch`, which starts at `offset` of `arena`; `offset_of` returns the offset
/// in its shared tier of a sample that is read in place.
pub(super) fn write(
    arena: &Mapping,
    offset: Bytes,
    batch: &Batch,
    label: impl Fn(SampleId) -> Option<i64>,
    offset_of: impl Fn(InPlace) -> Option<Bytes>,
) -> Result<(), WriteError> {
    let mut table = Vec::with_capacity(batch.entries.len() * ROW_BYTES);
    let mut add = |sample: SampleId, place: u32, label: i64, offset: Bytes, len: u64| {
        table.extend_from_slice(&sample.0.to_le_bytes());
        table.extend_from_slice(&place.to_le_bytes());
        table.extend_from_slice(&label.to_le_bytes());
        table.extend_from_slice(&offset.0.to_le_bytes());
        table.extend_from_slice(&len.to_le_bytes());
    };
    for entry in &batch.entries {
        let label = label(entry.sample).unwrap_or(UNLABELLED);
        let len = entry.len.map_or(SKIPPED, |len| len.0);
        let (shared_tier, offset) = match entry.in_place {
            None => (IN_BATCH, entry.offset),
            Some(in_place) => {
                let offset = offset_of(in_place).ok_or(WriteError::NotShared(in_place))?;
                (u32::from(in_place.tier.0) + FIRST_SHARED_TIER, offset)
            }
        };
        add(entry.sample, shared_tier, label, offset, len);
        if let Some(Stored { offset, len }) = entry.stored {
            add(entry.sample, STORED, label, offset, len.0);
        }
    }
    let table_offset = Bytes(offset.0.saturating_add(batch.table_offset.0));
    arena.write(table_offset, &table).map_err(WriteError::Outside)
}

/// Reads and checks the table of a leased batch.
pub(super) fn read(
    arena: &Mapping,
    shared_tiers: &SharedTiers,
    ready: &Ready,
) -> Result<Vec<Row>, TableError> {
    let Ready { offset, len, table_offset, rows, .. } = *ready;
    let end = offset.0.checked_add(len.0);
    if end.is_none_or(|end| end > arena.len().0) || !offset.0.is_multiple_of(BATCH_ALIGN) {
        return Err(TableError::Batch { offset, len, arena: arena.len() });
    }
    let outside = TableError::Table { offset: table_offset, rows, len };
    let table_bytes = u64::from(rows) * TABLE_ROW_BYTES;
    let table_end = table_offset.0.checked_add(table_bytes);
    if table_end.is_none_or(|end| end > len.0) {
        return Err(outside);
    }
    let mut table = vec![0; usize::try_from(table_bytes).map_err(|_| outside)?];
    arena.read(Bytes(offset.0 + table_offset.0), &mut table).map_err(|_| outside)?;
    let (table, _) = table.as_chunks::<ROW_BYTES>();
    let mut rows: Vec<Row> = Vec::with_capacity(table.len());
    for row in table {
        match (read_row(row, table_offset, shared_tiers)?, rows.last_mut()) {
            (Read::Sample(row), _) => rows.push(row),
            (Read::Stored(sample, stored), Some(row))
                if row.sample == sample && row.stored.is_none() =>
            {
                row.stored = Some(stored);
            }
            (Read::Stored(sample, _), _) => return Err(TableError::Stored { sample }),
        }
    }
    Ok(rows)
}

enum Read {
    Sample(Row),
    Stored(SampleId, Stored),
}

fn read_row(
    row: &[u8; ROW_BYTES],
    samples_end: Bytes,
    shared_tiers: &SharedTiers,
) -> Result<Read, TableError> {
    let (words, _) = row.as_chunks::<8>();
    let [name, label, offset, len] =
        [0, 1, 2, 3].map(|word: usize| u64::from_le_bytes(words[word]));
    let (sample, shared_tier) = halves(name);
    let (sample, offset) = (SampleId(sample), Bytes(offset));
    let len = (len != SKIPPED).then_some(Bytes(len));
    let end = offset.0.checked_add(len.map_or(0, |len| len.0));
    let ends_before = |limit: Bytes| {
        end.is_some_and(|end| end <= limit.0) && offset.0.is_multiple_of(SAMPLE_ALIGN)
    };
    if shared_tier == STORED {
        let stored = len.filter(|_| ends_before(samples_end)).map(|len| Stored { offset, len });
        let stored = stored.ok_or(TableError::Sample { sample, offset })?;
        return Ok(Read::Stored(sample, stored));
    }
    let shared_tier = match shared_tier.checked_sub(FIRST_SHARED_TIER) {
        None if ends_before(samples_end) => None,
        None => return Err(TableError::Sample { sample, offset }),
        Some(tier) => {
            let id = u8::try_from(tier).ok().map(TierId);
            let view = id.and_then(|id| shared_tiers.get(id));
            if !view.is_some_and(|view| ends_before(view.len())) {
                return Err(TableError::SharedTier { sample, offset, tier });
            }
            id
        }
    };
    let label = label.cast_signed();
    let label = (label != UNLABELLED).then_some(label);
    Ok(Read::Sample(Row { sample, label, offset, len, shared_tier, stored: None }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tierfeed_core::batch::Input;
    use tierfeed_core::id::{BatchId, ChunkId, Epoch, LeaseId, Rank, Step};
    use tierfeed_core::tier::Locality;
    use tierfeed_numa_memory::{Pages, Region, Request, SharedPool, SharedPoolRequest};

    use super::*;
    use crate::message::SharedTierBytes;

    const ARENA: Bytes = Bytes(64 * 1024);
    const ID: BatchId = BatchId { epoch: Epoch(1), step: Step(2), rank: Rank(3) };

    fn arena() -> Region {
        let (locality, pages) = (Locality::Anywhere, Pages::Small);
        Region::allocate(&Request { len: ARENA, locality, name: "test-arena", pages }).unwrap()
    }

    fn ready(offset: Bytes, batch: &Batch) -> Ready {
        Ready {
            lease: LeaseId(1),
            batch: batch.id,
            offset,
            len: batch.len,
            table_offset: batch.table_offset,
            rows: u32::try_from(batch.table_rows()).unwrap(),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_table_reads_back_as_it_was_written(
            sizes in prop::collection::vec(0_u64..900, 0..20),
            skipped in prop::collection::vec(any::<bool>(), 20),
        ) {
            let arena = arena();
            let samples = sizes.iter().enumerate().map(|(index, len)| {
                (SampleId(u32::try_from(index).unwrap() * 7), Bytes(*len))
            });
            let mut batch = Batch::lay_out(ID, samples);
            for (entry, skip) in batch.entries.iter_mut().zip(skipped) {
                entry.len = entry.len.filter(|_| !skip);
            }
            let label = |sample: SampleId| (sample.0 != 7).then_some(i64::from(sample.0) * 10);
            write(&arena, Bytes(4096), &batch, label, |_| None).unwrap();
            let rows = read(&arena, &SharedTiers::default(), &ready(Bytes(4096), &batch)).unwrap();
            let expected: Vec<_> = batch.entries.iter().map(|entry| Row {
                sample: entry.sample,
                label: label(entry.sample),
                offset: entry.offset,
                len: entry.len,
                shared_tier: None,
                stored: None,
            }).collect();
            prop_assert_eq!(rows, expected);
        }

        #[test]
        fn no_lease_leads_outside_its_arena(
            words in any::<[u64; 3]>(),
            small in prop::array::uniform3(0_u64..100_000),
            is_small in any::<[bool; 3]>(),
            rows in prop_oneof![0_u32..40, any::<u32>()],
            fill in any::<u8>(),
        ) {
            let arena = arena();
            arena.fill(Bytes(0), ARENA, fill).unwrap();
            let [offset, len, table_offset] =
                std::array::from_fn(|i| Bytes(if is_small[i] { small[i] & !63 } else { words[i] }));
            let ready = Ready { lease: LeaseId(1), batch: ID, offset, len, table_offset, rows };
            for row in read(&arena, &SharedTiers::default(), &ready).into_iter().flatten() {
                let end = row.offset.0 + row.len.unwrap_or_default().0;
                prop_assert!(offset.0 + end <= ARENA.0);
            }
        }
    }

    #[test]
    fn a_sample_that_reaches_into_the_table_is_refused() {
        let arena = arena();
        let batch = Batch::lay_out(ID, [(SampleId(4), Bytes(100))].into_iter());
        for (word, value) in [(2, 64_u64), (2, 1), (2, u64::MAX), (3, 129)] {
            write(&arena, Bytes(0), &batch, |_| None, |_| None).unwrap();
            assert!(read(&arena, &SharedTiers::default(), &ready(Bytes(0), &batch)).is_ok());
            let place = Bytes(batch.table_offset.0 + word * 8);
            arena.write(place, &value.to_le_bytes()).unwrap();
            let refused = read(&arena, &SharedTiers::default(), &ready(Bytes(0), &batch));
            assert!(matches!(refused, Err(TableError::Sample { .. })), "word {word}: {refused:?}");
        }
    }

    fn beside_rows() -> Batch {
        let input = |(sample, len)| Input {
            sample: SampleId(sample),
            room: Bytes(len),
            stored: Some(Bytes(len)),
        };
        Batch::lay_out_rows(ID, Bytes(100), [(4, 70), (4, 0), (9, 300)].map(input).into_iter()).0
    }

    #[test]
    fn stored_bytes_beside_rows_are_read_with_the_row_before() {
        let (arena, mut batch) = (arena(), beside_rows());
        batch.entries[2].len = None;
        write(&arena, Bytes(0), &batch, |_| Some(7), |_| None).unwrap();
        let rows = read(&arena, &SharedTiers::default(), &ready(Bytes(0), &batch)).unwrap();
        let read: Vec<_> = rows.iter().map(|it| (it.sample.0, it.len, it.stored)).collect();
        let written: Vec<_> =
            batch.entries.iter().map(|it| (it.sample.0, it.len, it.stored)).collect();
        assert_eq!(read, written);
        assert!(read.iter().all(|(_, _, stored)| stored.is_some()));
    }

    #[test]
    fn stored_bytes_lie_before_the_table_behind_the_row_of_their_sample() {
        let (arena, batch) = (arena(), beside_rows());
        let refused = |row: u64, word: u64, value: u64| {
            write(&arena, Bytes(0), &batch, |_| None, |_| None).unwrap();
            let place = Bytes(batch.table_offset.0 + row * TABLE_ROW_BYTES + word * 8);
            arena.write(place, &value.to_le_bytes()).unwrap();
            read(&arena, &SharedTiers::default(), &ready(Bytes(0), &batch)).unwrap_err()
        };
        for (word, value) in [(2, u64::MAX), (2, 1), (3, SKIPPED), (3, batch.len.0)] {
            let error = refused(1, word, value);
            assert!(matches!(error, TableError::Sample { .. }), "{error}");
        }
        let stored = u64::from(STORED) << 32;
        for (row, name) in [(0, stored | 4), (1, stored | 5), (2, stored | 4)] {
            let error = refused(row, 0, name);
            assert!(matches!(error, TableError::Stored { .. }), "{error}");
        }
    }

    #[test]
    fn a_batch_longer_than_its_arena_is_refused() {
        let arena = arena();
        let batch = Batch::lay_out(ID, [(SampleId(4), Bytes(100))].into_iter());
        write(&arena, Bytes(0), &batch, |_| None, |_| None).unwrap();
        let ready = Ready { len: Bytes(ARENA.0 + 4096), ..ready(Bytes(0), &batch) };
        assert!(matches!(
            read(&arena, &SharedTiers::default(), &ready),
            Err(TableError::Batch { .. })
        ));
    }

    #[test]
    fn a_batch_that_starts_inside_a_page_is_refused() {
        let arena = arena();
        let batch = Batch::lay_out(ID, [(SampleId(4), Bytes(100))].into_iter());
        write(&arena, Bytes(64), &batch, |_| None, |_| None).unwrap();
        assert!(matches!(
            read(&arena, &SharedTiers::default(), &ready(Bytes(64), &batch)),
            Err(TableError::Batch { .. })
        ));
    }

    #[test]
    fn a_table_outside_the_arena_is_not_written() {
        let arena = arena();
        let batch = Batch::lay_out(ID, [(SampleId(4), Bytes(100))].into_iter());
        assert!(write(&arena, ARENA, &batch, |_| None, |_| None).is_err());
        assert!(write(&arena, Bytes(u64::MAX), &batch, |_| None, |_| None).is_err());
    }

    const TIER: TierId = TierId(2);

    fn shared_tiers() -> SharedTiers {
        let (piece, locality) = (Bytes(4096), Locality::Anywhere);
        let request =
            SharedPoolRequest { piece, pieces_max: 1, locality, name: "test-shared-tier" };
        let shared_tier = SharedPool::reserve(&request).unwrap();
        let descriptor = shared_tier.fd().try_clone_to_owned().unwrap();
        let shared_tiers = [SharedTierBytes { tier: TIER.0, bytes: 4096 }];
        SharedTiers::map(&shared_tiers, vec![descriptor]).unwrap().unwrap()
    }

    fn shown_at(offset: u64, len: u64) -> Batch {
        let mut batch = Batch::lay_out(ID, [(SampleId(4), Bytes(len))].into_iter());
        let chunk = ChunkId(0);
        batch.entries[0].in_place = Some(InPlace { tier: TIER, chunk, offset: Bytes(offset) });
        batch
    }

    #[test]
    fn a_sample_in_a_shared_tier_lies_inside_it_and_on_a_boundary() {
        let (arena, shared_tiers) = (arena(), shared_tiers());
        let look = |offset, len, shared_tiers: &SharedTiers| {
            let batch = shown_at(offset, len);
            write(&arena, Bytes(0), &batch, |_| None, |in_place| Some(in_place.offset)).unwrap();
            read(&arena, shared_tiers, &ready(Bytes(0), &batch))
        };
        let rows = look(4032, 64, &shared_tiers).unwrap();
        assert_eq!((rows[0].shared_tier, rows[0].offset), (Some(TIER), Bytes(4032)));
        for (offset, len) in [(4032, 65), (32, 64), (4096, 1), (u64::MAX - 63, 64), (0, 4097)] {
            let refused = look(offset, len, &shared_tiers);
            assert!(matches!(refused, Err(TableError::SharedTier { tier: 2, .. })), "{refused:?}");
        }
        let refused = look(0, 64, &SharedTiers::default());
        assert!(matches!(refused, Err(TableError::SharedTier { .. })), "{refused:?}");
    }

    #[test]
    fn no_number_of_a_shared_tier_leads_anywhere_else() {
        let (arena, shared_tiers) = (arena(), shared_tiers());
        let batch = Batch::lay_out(ID, [(SampleId(4), Bytes(64))].into_iter());
        for number in [1, 2, 4, 256, 259, u32::MAX - 1] {
            write(&arena, Bytes(0), &batch, |_| None, |_| None).unwrap();
            let place = Bytes(batch.table_offset.0 + 4);
            arena.write(place, &number.to_le_bytes()).unwrap();
            let refused = read(&arena, &shared_tiers, &ready(Bytes(0), &batch));
            assert!(matches!(refused, Err(TableError::SharedTier { .. })), "{number}: {refused:?}");
        }
    }

    #[test]
    fn what_no_client_can_find_is_not_written() {
        let batch = shown_at(0, 64);
        let in_place = batch.entries[0].in_place.unwrap();
        let unwritten = write(&arena(), Bytes(0), &batch, |_| None, |_| None);
        assert_eq!(unwritten, Err(WriteError::NotShared(in_place)));
    }
}
