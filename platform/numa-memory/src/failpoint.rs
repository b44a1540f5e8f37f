//! Panics on request, so that tests see the effect of a thread's end on its process.
//!
//! Only builds with debug assertions can be armed ([`arm`]). In a release [`pass`] does nothing.

/// Marks a point that a serving thread or task passes each time it is woken.
///
/// # Panics
///
/// If a test armed this point.
#[inline]
pub fn pass(place: &str) {
    #[cfg(debug_assertions)]
    armed::pass(place);
    #[cfg(not(debug_assertions))]
    let _ = place;
}

#[cfg(debug_assertions)]
pub use armed::arm;

#[cfg(debug_assertions)]
mod armed {
    use std::sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    };

    static ARMED: OnceLock<Armed> = OnceLock::new();

    struct Armed {
        place: String,
        passes_left: AtomicU64,
    }

    /// Makes `place` panic after `passes`, in this process; only the first call has an effect.
    pub fn arm(place: String, passes: u64) {
        ARMED.get_or_init(|| Armed { place, passes_left: AtomicU64::new(passes) });
    }

    pub(super) fn pass(place: &str) {
        let Some(armed) = ARMED.get().filter(|armed| armed.place == place) else { return };
        let take = |left: u64| left.checked_sub(1);
        let left = armed.passes_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        assert!(left.is_ok(), "drill: {place} was told to panic");
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn an_armed_place_panics_after_its_passes_and_others_never() {
        pass("here");
        arm("here".to_owned(), 2);
        for _ in 0..2 {
            pass("here");
            pass("elsewhere");
        }
        for _ in 0..2 {
            assert!(catch_unwind(|| pass("here")).is_err());
        }
        pass("elsewhere");
    }
}
