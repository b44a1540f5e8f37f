//! The messages between nodes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tierfeed_prefetcher::peers::message::{Message, SAMPLES_MAX};

fuzz_target!(|input: &[u8]| {
    let Ok(message) = Message::parse(input) else { return };
    if let Message::Ask { samples, .. } = &message {
        assert!((1..=SAMPLES_MAX).contains(&samples.len()), "{} samples", samples.len());
    }
    let written = message.write(Vec::new());
    assert_eq!(Message::parse(&written).ok(), Some(message), "what is read is read again");
});
