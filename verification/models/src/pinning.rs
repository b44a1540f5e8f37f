//! A region that gives memory back and restores it, and an io_uring that pins its pages and reads
//! into them.
//!
//! The region has two pages. The second is given back and restored, and each time another frame of
//! memory is behind it. The ring reads into the first page at any time, and into the second only
//! when it was told that the page has memory: like the session. It pins what the holes allow,
//! whenever its registration is not of the present version.

use crate::{
    holes::Holes,
    words::{Arc, AtomicU64, Ordering, thread},
};

/// Marks a page without a frame.
const NOTHING: u64 = 0;

struct Region {
    holes: Holes,
    /// By page.
    frames: [AtomicU64; 2],
    /// Number of times that the second page was restored.
    restored: AtomicU64,
}

/// The pinned frames of the ring by page, and their version.
type Pinned = Option<([u64; 2], u64)>;

/// Gives the second page back and restores it `rounds` times, while a ring reads `reads` times.
///
/// # Panics
///
/// If the ring pins a hole, or reads into a frame that is not behind the page.
pub fn run(rounds: u64, reads: u64) {
    let frames = [AtomicU64::new(1), AtomicU64::new(2)];
    let region = Arc::new(Region { holes: Holes::none(), frames, restored: AtomicU64::new(0) });
    let changes = {
        let region = Arc::clone(&region);
        thread::spawn(move || {
            for round in 1..=rounds {
                region.holes.change(|ranges| {
                    region.frames[1].store(NOTHING, Ordering::Relaxed);
                    ranges.add(&(1..2));
                });
                region.holes.change(|ranges| {
                    region.frames[1].store(2 + round, Ordering::Relaxed);
                    ranges.remove(&(1..2));
                });
                region.restored.store(round, Ordering::Release);
            }
        })
    };
    let mut pinned = None;
    for _ in 0..reads {
        read(&region, 0, &mut pinned);
        if region.restored.load(Ordering::Acquire) == rounds {
            read(&region, 1, &mut pinned);
        }
    }
    changes.join().expect("the region does not panic");
}

/// Reads into a page that is not given back: into a pinned frame if there is one, else through the
/// page.
fn read(region: &Region, page: usize, pinned: &mut Pinned) {
    let version = region.holes.version();
    let is_known = |frames: &[u64; 2], of: u64| of == version && frames[page] != NOTHING;
    if !pinned.as_ref().is_some_and(|(frames, of)| is_known(frames, *of)) {
        *pinned = pin(region, page);
    }
    let Some((frames, _)) = pinned else { return };
    let behind = region.frames[page].load(Ordering::Relaxed);
    assert_eq!(frames[page], behind, "the frame behind page {page}");
}

fn pin(region: &Region, page: usize) -> Pinned {
    let page = page as u64;
    region.holes.pin(&(page..page + 1), &(0..2), |run, version| {
        let mut frames = [NOTHING; 2];
        for page in run {
            let page = usize::try_from(page).expect("two pages");
            frames[page] = region.frames[page].load(Ordering::Relaxed);
            assert_ne!(frames[page], NOTHING, "a hole is not pinned");
        }
        (frames, version)
    })
}
