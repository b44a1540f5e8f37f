//! A slot that is reassigned from one watched mapping to another while a signal handler looks it
//! up.

use crate::{
    slot::Slot,
    words::{Arc, AtomicU32, AtomicUsize, thread},
};

/// The addresses of the mappings, and one between them.
const BEFORE: std::ops::Range<usize> = 10..20;
const AFTER: std::ops::Range<usize> = 30..40;
const BETWEEN: usize = 25;

/// Looks up an address outside of both mappings meanwhile.
///
/// # Panics
///
/// If it is found in a mapping, or the slot does not belong to the second one in the end.
pub fn run() {
    let [start, end, page_bytes] = [BEFORE.start, BEFORE.end, 1].map(AtomicUsize::new);
    let slot = Arc::new(Slot { start, end, page_bytes, errors: AtomicU32::new(0) });
    let owners = {
        let slot = Arc::clone(&slot);
        thread::spawn(move || {
            slot.leave();
            assert!(slot.is_free());
            slot.take(AFTER.start, AFTER.end, 1);
        })
    };
    assert!(!slot.covers(BETWEEN), "an address outside of both mappings is covered");
    owners.join().expect("the owners do not panic");
    assert!(slot.covers(AFTER.start) && !slot.covers(BEFORE.start));
}
