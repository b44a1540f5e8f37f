//! Damages objects.

use proptest::{prelude::*, sample::Index};
use tierfeed_dataset::format::{FormatError, Range};

use crate::assert_sound;

pub(crate) type Parse<'a> = &'a dyn Fn(&[u8]) -> Result<Vec<Range>, FormatError>;

pub(crate) const NO_LENGTH: [usize; 0] = [];
pub(crate) const NO_BIT: [(usize, u32); 0] = [];

/// Truncates `object` after every byte; returns the lengths that a parser accepts.
///
/// The ranges that it finds must be the first of the samples of the whole.
pub(crate) fn lengths_accepted(object: &[u8], parse: Parse<'_>) -> Vec<usize> {
    let whole = parse(object).unwrap();
    let accepted = (0..object.len()).filter(|len| match parse(&object[..*len]) {
        Ok(ranges) => {
            assert_sound(&ranges, *len);
            let places =
                |ranges: &[Range]| ranges.iter().map(|it| (it.offset, it.len)).collect::<Vec<_>>();
            assert!(places(&whole).starts_with(&places(&ranges)), "cut off at {len}");
            true
        }
        Err(_) => false,
    });
    accepted.collect()
}

/// Flips each bit of the bytes `at` alone; returns those that a parser accepts.
pub(crate) fn bits_accepted(
    object: &[u8],
    at: std::ops::Range<usize>,
    parse: Parse<'_>,
) -> Vec<(usize, u32)> {
    let mut object = object.to_vec();
    let mut accepted = Vec::new();
    for byte in at {
        for bit in 0..8 {
            object[byte] ^= 1 << bit;
            if let Ok(ranges) = parse(&object) {
                assert_sound(&ranges, object.len());
                accepted.push((byte, bit));
            }
            object[byte] ^= 1 << bit;
        }
    }
    accepted
}

#[derive(Debug, Clone)]
enum Change {
    Set(Index, u8),
    SetWord(Index, u64),
    Cut(Index),
    Remove(Index, u8),
    Insert(Index, Vec<u8>),
    Repeat(Index, Index),
}

fn any_change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    let word = prop_oneof![
        any::<u64>(),
        0..600_u64,
        (0..64_u32).prop_map(|bit| 1 << bit),
        (0..64_u32).prop_map(|bit| u64::MAX - (1 << bit)),
    ];
    let inserted = prop::collection::vec(prop_oneof![Just(0), any::<u8>()], 1..600);
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        (at(), word).prop_map(|(at, word)| Change::SetWord(at, word)),
        at().prop_map(Change::Cut),
        (at(), any::<u8>()).prop_map(|(at, len)| Change::Remove(at, len)),
        (at(), inserted).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        (at(), at()).prop_map(|(from, at)| Change::Repeat(from, at)),
    ]
}

pub(crate) fn any_damage(object: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any_change(), 1..4).prop_map(move |changes| {
        let mut object = object.clone();
        changes.into_iter().for_each(|change| apply(change, &mut object));
        object
    })
}

fn apply(change: Change, object: &mut Vec<u8>) {
    if object.is_empty() {
        return;
    }
    let len = object.len();
    match change {
        Change::Set(at, byte) => object[at.index(len)] = byte,
        Change::SetWord(at, word) => {
            let word = word.to_le_bytes();
            let at = at.index(len);
            let take = word.len().min(len - at);
            object[at..at + take].copy_from_slice(&word[..take]);
        }
        Change::Cut(at) => object.truncate(at.index(len)),
        Change::Remove(at, bytes) => {
            let at = at.index(len);
            object.drain(at..len.min(at + usize::from(bytes)));
        }
        Change::Insert(at, bytes) => {
            let at = at.index(len);
            object.splice(at..at, bytes);
        }
        Change::Repeat(from, at) => {
            // As in tars, where blocks of 512 bytes may be moved as a whole.
            let from = from.index(len) / 512 * 512;
            let block = object[from..len.min(from + 512)].to_vec();
            let at = at.index(len) / 512 * 512;
            object.splice(at..at, block);
        }
    }
}
