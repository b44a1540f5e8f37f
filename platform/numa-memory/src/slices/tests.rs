//! Slices over memory that only exists as a list of calls.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use super::*;

const LEN: Bytes = Bytes(3 * SLICE.0 + 4096);

fn slices() -> Slices {
    Slices::unclaimed(LEN, Locality::Anywhere)
}

fn refusal() -> AllocateError {
    AllocateError::NoRoom { wanted: SLICE, available: Bytes(0), locality: Locality::Anywhere }
}

/// What is populated for a range, as offsets and lengths.
fn populated(slices: &Slices, offset: u64, len: u64) -> Vec<(u64, u64)> {
    let mut calls = Vec::new();
    let outcome: Result<(), AllocateError> =
        slices.ensure(Bytes(offset), Bytes(len), |offset, len| {
            calls.push((offset.0, len.0));
            Ok(())
        });
    outcome.unwrap();
    calls
}

#[test]
fn an_access_populates_the_slices_that_it_touches_and_each_of_them_once() {
    let slices = slices();
    let one = SLICE.0;
    assert_eq!(populated(&slices, one - 1, 2), [(0, one), (one, one)]);
    assert_eq!(populated(&slices, 0, 2 * one), []);
    assert_eq!(slices.missing(), Bytes(2 * one));
    assert_eq!(populated(&slices, 3 * one, 1), [(3 * one, 4096)], "the last one is shorter");
    assert_eq!(populated(&slices, 0, 0), []);
    assert_eq!(populated(&slices, u64::MAX, 7), [], "the copy reports this range");
    assert_eq!(populated(&slices, 0, u64::MAX), [(2 * one, one)]);
    assert_eq!(slices.missing(), Bytes(0));
}

#[test]
fn the_background_populates_one_slice_after_the_other() {
    let slices = slices();
    populated(&slices, SLICE.0, 1);
    let mut starts = Vec::new();
    while slices.missing().0 > 0 {
        let next: Result<Bytes, AllocateError> = slices.ensure_next(|offset, _| {
            starts.push(offset.0 / SLICE.0);
            Ok(())
        });
        assert_eq!(next.unwrap(), slices.missing());
    }
    assert_eq!(starts, [0, 2, 3]);
}

#[test]
fn a_slice_that_failed_is_tried_again() {
    let slices = slices();
    let failed: Result<(), AllocateError> = slices
        .ensure(Bytes(0), LEN, |offset, _| if offset < SLICE { Ok(()) } else { Err(refusal()) });
    assert!(matches!(failed, Err(AllocateError::NoRoom { .. })), "{failed:?}");
    assert_eq!(slices.missing().0, LEN.0.div_ceil(SLICE.0) * SLICE.0 - SLICE.0);
    assert_eq!(populated(&slices, SLICE.0, 1), [(SLICE.0, SLICE.0)]);
}

#[test]
fn threads_that_need_the_same_slice_populate_it_once() {
    let (slices, calls, start) = (slices(), AtomicU64::new(0), Barrier::new(8));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                start.wait();
                let count = |_, _| {
                    thread::yield_now();
                    calls.fetch_add(1, Ordering::Relaxed);
                    Ok::<(), AllocateError>(())
                };
                slices.ensure(Bytes(0), LEN, count).unwrap();
            });
        }
    });
    assert_eq!(calls.load(Ordering::Relaxed), 4);
}

#[test]
fn room_is_claimed_until_it_is_taken() {
    let claimed = || capacity::claimed(Locality::Anywhere);
    let before = claimed();
    let slices = Slices::reserve(LEN, Locality::Anywhere).unwrap();
    assert_eq!(claimed(), Bytes(before.0 + LEN.0));
    populated(&slices, 0, 1);
    assert_eq!(claimed(), Bytes(before.0 + LEN.0 - SLICE.0));
    populated(&slices, LEN.0 - 1, 1);
    assert_eq!(claimed(), Bytes(before.0 + 2 * SLICE.0));
    drop(slices);
    assert_eq!(claimed(), before);
}

#[test]
fn a_chunk_that_does_not_fit_is_refused_at_first() {
    let error = Slices::reserve(Bytes(1 << 50), Locality::Anywhere).unwrap_err();
    assert!(matches!(error, AllocateError::NoRoom { .. }), "{error}");
    assert!(matches!(Slices::reserve(Bytes(0), Locality::Anywhere), Err(AllocateError::Empty)));
}
