//! Encodes why a batch was refused, as words of a ring entry and as a sentence for users.

use std::fmt;

use tierfeed_core::{
    id::SampleId,
    session::{Fault, Refusal},
    units::Bytes,
};

const UNREADABLE: u32 = 1;
const TOO_LARGE: u32 = 2;
const TOO_MANY_SKIPPED: u32 = 9;

/// Refusals without a value, by their code on the wire.
const PLAIN: [(u32, Refusal); 6] = [
    (3, Refusal::NotInOrder),
    (4, Refusal::NotPublished),
    (5, Refusal::AlreadyTaken),
    (6, Refusal::NoRoom),
    (7, Refusal::TooManyJumps),
    (8, Refusal::NoWorker),
];

const FAULTS: [(u32, Fault); 9] = [
    (1, Fault::Vanished),
    (2, Fault::Changed),
    (3, Fault::Truncated),
    (4, Fault::Io),
    (5, Fault::Corrupt),
    (6, Fault::NoSpace),
    (7, Fault::Denied),
    (8, Fault::Untransformable),
    (9, Fault::NoWorker),
];

/// A refusal in a ring entry: a code and two words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Encoded {
    pub(super) code: u32,
    pub(super) words: [u64; 2],
}

pub(super) fn encode(refusal: Refusal) -> Encoded {
    match refusal {
        Refusal::Unreadable(sample, fault) => {
            let words = [u64::from(sample.0), u64::from(code_of(&FAULTS, plain(fault)))];
            Encoded { code: UNREADABLE, words }
        }
        Refusal::TooManySkipped { sample, fault, skipped, most } => {
            let words = [pair(sample.0, code_of(&FAULTS, plain(fault))), pair(skipped, most)];
            Encoded { code: TOO_MANY_SKIPPED, words }
        }
        Refusal::TooLarge { needed, arena } => {
            Encoded { code: TOO_LARGE, words: [needed.0, arena.0] }
        }
        Refusal::NotInOrder
        | Refusal::NotPublished
        | Refusal::AlreadyTaken
        | Refusal::NoRoom
        | Refusal::TooManyJumps
        | Refusal::NoWorker => Encoded { code: code_of(&PLAIN, refusal), words: [0; 2] },
    }
}

fn pair(first: u32, second: u32) -> u64 {
    u64::from(first) << 32 | u64::from(second)
}

fn parts(pair: u64) -> (u32, u32) {
    let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(u32::MAX);
    (half(pair >> 32), half(pair))
}

/// Drops the number of the failed chunk, which a client cannot use.
fn plain(fault: Fault) -> Fault {
    if let Fault::Poisoned(..) = fault { Fault::Io } else { fault }
}

/// Decodes a refusal; `None` if this version does not know the code.
pub(super) fn decode(encoded: Encoded) -> Option<Refusal> {
    let Encoded { code, words } = encoded;
    match code {
        UNREADABLE => {
            let sample = SampleId(u32::try_from(words[0]).ok()?);
            let fault = value_of(&FAULTS, u32::try_from(words[1]).ok()?)?;
            Some(Refusal::Unreadable(sample, fault))
        }
        TOO_MANY_SKIPPED => {
            let ((sample, fault), (skipped, most)) = (parts(words[0]), parts(words[1]));
            let (sample, fault) = (SampleId(sample), value_of(&FAULTS, fault)?);
            Some(Refusal::TooManySkipped { sample, fault, skipped, most })
        }
        TOO_LARGE => Some(Refusal::TooLarge { needed: Bytes(words[0]), arena: Bytes(words[1]) }),
        _ => value_of(&PLAIN, code),
    }
}

fn code_of<T: Copy + PartialEq>(table: &[(u32, T)], value: T) -> u32 {
    let row = table.iter().find(|(_, known)| *known == value);
    row.expect("a test shows that every value without fields has a row").0
}

fn value_of<T: Copy>(table: &[(u32, T)], code: u32) -> Option<T> {
    table.iter().find(|(known, _)| *known == code).map(|(_, value)| *value)
}

/// Prints a refusal as a sentence without its end.
#[derive(Debug, Clone, Copy)]
pub struct Explained(pub Refusal);

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Refusal::NotInOrder => f.write_str("the order has no such batch for this rank"),
            Refusal::NotPublished => f.write_str(
                "the order of this epoch was not published; publish it before the first request",
            ),
            Refusal::Unreadable(sample, fault) => {
                write!(f, "sample {} could not be read: {}", sample.0, fault_sentence(fault))
            }
            Refusal::TooManySkipped { sample, fault, skipped, most } => write!(
                f,
                "{skipped} samples of this rank's epoch cannot be used, and `on_error: skip` leaves out \
                 {most} at most; the last one is sample {}: {}",
                sample.0,
                fault_sentence(fault)
            ),
            Refusal::TooLarge { needed, arena } => write!(
                f,
                "the batch needs {needed} of staging memory, this rank has {arena}; \
                 use smaller batches, or give main-memory a larger size"
            ),
            Refusal::AlreadyTaken => f.write_str("another connection of this rank has the batch"),
            Refusal::NoRoom => {
                f.write_str("every staged batch is held; release batches before asking for more")
            }
            Refusal::TooManyJumps => f.write_str(
                "this rank asked too often for epochs far from the one before; ask for one after the other",
            ),
            Refusal::NoWorker => f.write_str("no transform worker of the agent makes rows of it"),
        }
    }
}

fn fault_sentence(fault: Fault) -> &'static str {
    match fault {
        Fault::Vanished => "its object is not there any more",
        Fault::Changed => "its object has another size or time than when it was indexed",
        Fault::Truncated => "its object ended too early",
        Fault::Denied => "permission to read its object is denied",
        Fault::Io | Fault::Poisoned(..) => "its store cannot be read",
        Fault::Corrupt => "its bytes are damaged",
        Fault::Untransformable => "no row could be made of its bytes",
        Fault::NoSpace => "there was no memory left for it",
        Fault::NoWorker => "no transform worker made a row of it",
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(in super::super) fn any_refusal() -> impl Strategy<Value = Refusal> {
        let unreadable = (any::<u32>(), prop::sample::select(FAULTS.to_vec()))
            .prop_map(|(sample, (_, fault))| Refusal::Unreadable(SampleId(sample), fault));
        let too_large = any::<(u64, u64)>().prop_map(|(needed, arena)| Refusal::TooLarge {
            needed: Bytes(needed),
            arena: Bytes(arena),
        });
        let too_many = (any::<(u32, u32, u32)>(), prop::sample::select(FAULTS.to_vec())).prop_map(
            |((sample, skipped, most), (_, fault))| {
                let sample = SampleId(sample);
                Refusal::TooManySkipped { sample, fault, skipped, most }
            },
        );
        let plain = prop::sample::select(PLAIN.to_vec()).prop_map(|(_, refusal)| refusal);
        prop_oneof![unreadable, too_large, too_many, plain]
    }

    proptest! {
        #[test]
        fn a_refusal_reads_back_as_it_was_written(refusal in any_refusal()) {
            prop_assert_eq!(decode(encode(refusal)), Some(refusal));
        }

        #[test]
        fn no_words_make_decoding_panic(code in 0_u32..10, words in any::<[u64; 2]>()) {
            let _ = decode(Encoded { code, words });
        }
    }

    #[test]
    fn every_value_without_fields_has_a_code() {
        use Refusal::{AlreadyTaken, NoRoom, NotInOrder, NotPublished, TooManyJumps};

        let plain =
            [NotInOrder, NotPublished, AlreadyTaken, NoRoom, TooManyJumps, Refusal::NoWorker];
        for refusal in plain {
            assert_eq!(decode(encode(refusal)), Some(refusal));
        }
        for fault in [
            Fault::Vanished,
            Fault::Changed,
            Fault::Truncated,
            Fault::Denied,
            Fault::Io,
            Fault::Corrupt,
            Fault::NoSpace,
            Fault::Untransformable,
            Fault::NoWorker,
        ] {
            let refusal = Refusal::Unreadable(SampleId(1), fault);
            assert_eq!(decode(encode(refusal)), Some(refusal));
        }
    }

    #[test]
    fn an_unreadable_sample_is_named() {
        let text = Explained(Refusal::Unreadable(SampleId(17), Fault::Truncated)).to_string();
        assert_eq!(text, "sample 17 could not be read: its object ended too early");
    }
}
