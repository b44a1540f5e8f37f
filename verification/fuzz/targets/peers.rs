//! The heads of messages between nodes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tierfeed_prefetcher::peers::wire::{
    ANSWERED_BYTES, ASKED_BYTES, Answered, HEADER_BYTES, Header, Kind, SAMPLES_MAX, asked,
    write_asked,
};

fuzz_target!(|input: &[u8]| {
    let Some((start, entries)) = input.split_first_chunk::<HEADER_BYTES>() else { return };
    let Ok(header) = Header::parse(start) else { return };
    let mut head = Vec::new();
    header.write(&mut head);
    assert_eq!(head, start, "what is read is written as it was");
    let entry_bytes = match header.kind {
        Kind::Ask => ASKED_BYTES,
        Kind::Answer => ANSWERED_BYTES,
        Kind::OtherGeneration => 0,
    };
    assert!(header.entries_bytes() <= SAMPLES_MAX * entry_bytes, "{header:?}");
    let entries = &entries[..entries.len().min(header.entries_bytes())];
    let mut written = Vec::new();
    match header.kind {
        Kind::Ask => asked(entries).into_iter().for_each(|it| write_asked(it, &mut written)),
        Kind::Answer => {
            let Ok(answered) = Answered::parse_all(entries) else { return };
            answered.iter().for_each(|entry| entry.write(&mut written));
        }
        Kind::OtherGeneration => {}
    }
    assert!(entries.starts_with(&written), "entries are written as they were");
    assert!(entries.len() - written.len() < entry_bytes.max(1), "no whole entry is left out");
});
