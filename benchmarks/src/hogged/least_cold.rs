//! The fewest bytes that epochs have to read from the cold store, with room that changes under way.
//!
//! The dataset is a fluid that is read evenly, in another order in each epoch. What is read stays while there
//! is room; where there is too little, that goes which was used last, because its next use is farthest away
//! (Belady). This needs no knowledge of the room to come, so a loader can do it.

/// Parts of the dataset that are kept or not, each in turn.
const PARTS: usize = 1_000;

/// Room from a time on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub(super) from_s: f64,
    pub(super) bytes: f64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Epoch {
    pub(super) begins_s: f64,
    pub(super) takes_s: f64,
}

/// The fewest cold bytes of each epoch; `rooms` in the order of their time.
///
/// Another order in each epoch means that what is kept of a part of one epoch is needed evenly over the next.
pub(super) fn least_cold(dataset: f64, rooms: &[Room], epochs: &[Epoch]) -> Vec<f64> {
    let part = dataset / PARTS as f64;
    // What is kept and still needed in this epoch, and what is kept of it for the next.
    let (mut needed, mut kept) = (0.0, 0.0);
    let mut cold_of = |epoch: &Epoch| {
        (needed, kept) = (needed + kept, 0.0);
        let mut hits = 0.0;
        for at in 0..PARTS {
            let time_s = epoch.begins_s + epoch.takes_s * at as f64 / PARTS as f64;
            let before = rooms.iter().take_while(|room| room.from_s <= time_s).last();
            let room = before.or(rooms.first()).map_or(0.0, |room| room.bytes);
            needed = f64::min(needed, room);
            kept = f64::min(kept, room - needed);
            let hit = needed / (PARTS - at) as f64;
            hits += hit;
            needed -= hit;
            kept += f64::min(part, room - needed - kept);
        }
        dataset - hits
    };
    epochs.iter().map(&mut cold_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCHS: [Epoch; 3] = [
        Epoch { begins_s: 0.0, takes_s: 1.0 },
        Epoch { begins_s: 1.0, takes_s: 1.0 },
        Epoch { begins_s: 2.0, takes_s: 1.0 },
    ];

    fn cold(rooms: &[(f64, f64)]) -> Vec<f64> {
        let rooms: Vec<_> =
            rooms.iter().map(|(from_s, bytes)| Room { from_s: *from_s, bytes: *bytes }).collect();
        least_cold(100.0, &rooms, &EPOCHS).into_iter().map(f64::round).collect()
    }

    #[test]
    fn what_fits_is_read_once() {
        assert_eq!(cold(&[(0.0, 40.0)]), [100.0, 60.0, 60.0]);
        assert_eq!(cold(&[(0.0, 0.0)]), [100.0, 100.0, 100.0]);
        assert_eq!(cold(&[(0.0, 200.0)]), [100.0, 0.0, 0.0]);
    }

    #[test]
    fn room_that_goes_takes_first_what_is_needed_last() {
        // Half of the 40 that were kept were needed by then, and 20 of the others still fit.
        assert_eq!(cold(&[(0.0, 40.0), (1.5, 20.0)]), [100.0, 60.0, 80.0]);
        assert_eq!(cold(&[(0.0, 40.0), (1.5, 0.0)]), [100.0, 80.0, 100.0]);
    }

    #[test]
    fn room_that_comes_serves_the_next_epoch() {
        assert_eq!(cold(&[(0.0, 0.0), (1.5, 40.0)]), [100.0, 100.0, 60.0]);
        assert_eq!(cold(&[(0.0, 0.0), (1.9, 40.0)]), [100.0, 100.0, 90.0]);
    }
}
