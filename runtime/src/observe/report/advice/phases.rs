//! Advice to a training that waits for a cold store which stands idle while the training does something else.
//!
//! In each cycle the training waited for a time in which the store read `missing` bytes, and in its idle phase
//! the store had time for `readable` bytes more. Room for the smaller of the two would have held what was missing
//! (`core/src/session/phases.rs`): in the tiers as look-ahead, or, where there are none, in staging. Else the
//! store must give what is missing in the busy phase.

use tierfeed_core::{
    session::LookAhead,
    units::{Bytes, BytesPerSecond, float, seconds},
};

use super::{
    Advice, MARGIN,
    figures::{Figures, per_second, whole},
};

/// The part of the waits that the idle time of the store must be able to take, else the store is too slow.
const USEFUL: f64 = 0.25;

/// More room than the mean cycle needs: cycles are not all equal.
const ROOM_MARGIN: f64 = 1.2;

/// `look_ahead: auto` does not use a store of this rate or more, because each sample is copied once more.
const AUTO_RATE_MAX: BytesPerSecond = BytesPerSecond(1_000_000_000);

/// The cost of idle phases, over the whole run.
#[derive(Debug, Clone, Copy)]
struct Phases {
    cycles: f64,
    /// Waits for the cold store that its idle time could have taken, in seconds.
    avoidable: f64,
    /// The room for that, in bytes.
    room: f64,
    /// The part of the benefit that is left if retained samples give up the room.
    net: f64,
}

impl Figures<'_> {
    /// Advice if idle phases of the training could have been used; `None` if they could not.
    pub(super) fn against_phases(&self, given: BytesPerSecond) -> Option<Vec<Advice>> {
        let phases = self.phases(given)?;
        let room = whole(phases.room);
        let first = if self.run.cached().0 == 0 {
            self.deeper_staging(phases)
        } else if self.is_off(given) {
            Some(self.look_ahead_at_all(phases, given))
        } else {
            let chunk = self.run.chunk.0.max(1);
            Some(more_room(phases, Bytes(room.div_ceil(chunk) * chunk)))
        };
        Some(first.into_iter().chain(self.faster_in_busy_phases(phases, given)).collect())
    }

    fn phases(&self, given: BytesPerSecond) -> Option<Phases> {
        let cycle = self.run.cycle?;
        let cycles = float(self.total.demand.0) / float(cycle.consumed.0.max(1));
        let waited = self.waited_for_cold();
        let busy = seconds(self.run.progress.cold_busy.time());
        let idle_phases = cycles * seconds(cycle.idle);
        let unused = (self.waiting.wall_s - busy).clamp(0.0, idle_phases);
        let avoidable = waited.min(unused);
        let epochs =
            float(self.run.progress.epochs.iter().filter(|it| it.batches > 0).count() as u64);
        let cycles_per_epoch = cycles / epochs.max(1.0);
        (cycles >= 1.0 && avoidable > waited * USEFUL).then_some(Phases {
            cycles,
            avoidable,
            room: avoidable * float(given.0) / cycles * ROOM_MARGIN,
            net: 1.0 - 1.0 / cycles_per_epoch.max(1.0),
        })
    }

    fn is_off(&self, given: BytesPerSecond) -> bool {
        match self.run.look_ahead {
            LookAhead::Off => true,
            LookAhead::Auto => given >= AUTO_RATE_MAX,
            LookAhead::Room(_) => false,
        }
    }

    /// Advises to use the tiers that there are.
    fn look_ahead_at_all(&self, phases: Phases, given: BytesPerSecond) -> Advice {
        let room = Bytes(whole(phases.room).min(self.run.cached().0));
        let part = float(room.0) / phases.room.max(1.0);
        let wish = if given >= AUTO_RATE_MAX { room.to_string() } else { "auto".to_owned() };
        let text = format!(
            "the cold store stood idle while the training did something else, and then gave {given} where \
             more was needed: `prefetch.look_ahead: {wish}` would read ahead in that time, into {room} of \
             the tiers"
        );
        Advice {
            more_bytes: Some(room.0),
            ..Advice::new("look-ahead", text).saving(phases.avoidable * part.min(1.0) * phases.net)
        }
    }

    /// Advises more batches ahead, where only staging can hold them.
    fn deeper_staging(&self, phases: Phases) -> Option<Advice> {
        let per_step = self.bytes_per_step().max(1);
        let more = whole(phases.room).div_ceil(per_step);
        let count = self.staged_with(more)?;
        let bytes = Bytes(more * per_step);
        let text = format!(
            "the cold store stood idle while the training did something else: `prefetch.batches: {count}` \
             instead of {}, which takes {bytes} of main memory, or a tier of that size would hold what it \
             could have read ahead",
            self.run.staged_batches
        );
        Some(Advice {
            to_count: Some(count),
            more_bytes: Some(bytes.0),
            ..Advice::new("batches-ahead", text).saving(phases.avoidable)
        })
    }

    fn faster_in_busy_phases(&self, phases: Phases, given: BytesPerSecond) -> Option<Advice> {
        let busy = seconds(self.run.cycle?.busy);
        let missing = self.waited_for_cold() * float(given.0) / phases.cycles;
        let needed = per_second(Bytes(whole(busy * float(given.0) + missing)), busy);
        let target = BytesPerSecond(whole(float(needed.0) * MARGIN));
        let text = format!(
            "the cold store gave {given}, the busy phases of the training take {needed} of it: {target} \
             would keep up"
        );
        (needed > given).then(|| Advice {
            to_bytes_per_s: Some(target.0),
            ..Advice::new("cold-bandwidth", text).saving(self.waited_for_cold())
        })
    }
}

fn more_room(phases: Phases, room: Bytes) -> Advice {
    let text = format!(
        "the cold store stood idle while the training did something else, because the tiers had no room \
         for what comes next: {room} more of memory (main memory or CXL) for look-ahead would hold it"
    );
    Advice {
        more_bytes: Some(room.0),
        ..Advice::new("look-ahead-room", text).saving(phases.avoidable)
    }
}
