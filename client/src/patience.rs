//! How long a feed waits for an answer of its agent, and what it does when none has come.

use tierfeed_core::units::Nanoseconds;

const SECOND: u64 = 1_000_000_000;

/// An agent answers every request, with a batch or a refusal, as soon as the cold store lets it. One that is silent
/// for so long hangs, unless it says that it waits for its store.
const SILENCE_MAX: Nanoseconds = Nanoseconds(60 * SECOND);

/// While the trainer itself holds as many batches as the agent stages. The agent refuses a request as soon as it
/// knows; if it does not, the wait would be for the trainer itself.
const HOLDING_ALL: Nanoseconds = Nanoseconds(SECOND);

/// For a batch out of turn while later ones are staged, before those give up their room for it. It doubles each
/// time, up to the limit: where the store is slow rather than memory full, they are staged again only a few times.
const OUT_OF_TURN: Nanoseconds = Nanoseconds(SECOND);
const OUT_OF_TURN_MAX: Nanoseconds = Nanoseconds(16 * SECOND);

#[derive(Debug, Clone, Copy)]
pub struct Patience {
    out_of_turn: Nanoseconds,
}

/// What a trainer has of its agent while it waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Holding {
    /// As many batches as the agent stages.
    pub all: bool,
    /// Answers for other batches, which it has not taken yet.
    pub later: bool,
}

/// What follows from a silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterSilence {
    Wait,
    /// The answers for other batches go back, so that there is room for this one.
    GiveBackLater,
    /// The trainer reads the batch itself; the agent lives.
    Read,
    /// The agent is asked why it does not hand over the samples of the batch. If it says nothing it is given up.
    Ask,
}

impl Default for Patience {
    fn default() -> Self {
        Self { out_of_turn: OUT_OF_TURN }
    }
}

impl Patience {
    pub fn limit(&self, holding: Holding) -> Nanoseconds {
        match holding {
            Holding { all: true, .. } => HOLDING_ALL,
            Holding { later: true, .. } => self.out_of_turn,
            _ => SILENCE_MAX,
        }
    }

    /// Tells what follows from a silence of such length.
    pub fn after(&mut self, silent: Nanoseconds, holding: Holding) -> AfterSilence {
        if silent < self.limit(holding) {
            return AfterSilence::Wait;
        }
        if holding.later {
            let doubled = Nanoseconds(self.out_of_turn.0.saturating_mul(2));
            self.out_of_turn = doubled.min(OUT_OF_TURN_MAX);
            return AfterSilence::GiveBackLater;
        }
        if holding.all { AfterSilence::Read } else { AfterSilence::Ask }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Holding = Holding { all: false, later: false };
    const ALL: Holding = Holding { all: true, later: false };
    const LATER: Holding = Holding { all: false, later: true };

    fn seconds(count: u64) -> Nanoseconds {
        Nanoseconds(count * SECOND)
    }

    #[test]
    fn an_agent_is_asked_after_its_silence_and_a_trainer_that_holds_all_reads_before() {
        let mut patience = Patience::default();
        for (silent, holding, expected) in [
            (59, NOTHING, AfterSilence::Wait),
            (60, NOTHING, AfterSilence::Ask),
            (0, ALL, AfterSilence::Wait),
            (1, ALL, AfterSilence::Read),
            (60, ALL, AfterSilence::Read),
            (1, Holding { all: true, later: true }, AfterSilence::GiveBackLater),
        ] {
            assert_eq!(
                patience.after(seconds(silent), holding),
                expected,
                "{silent} s, {holding:?}"
            );
        }
    }

    #[test]
    fn later_batches_give_up_their_room_after_a_time_that_doubles() {
        let mut patience = Patience::default();
        for limit in [1, 2, 4, 8, 16, 16] {
            assert_eq!(patience.limit(LATER), seconds(limit));
            assert_eq!(patience.after(Nanoseconds(limit * SECOND - 1), LATER), AfterSilence::Wait);
            assert_eq!(patience.after(seconds(limit), LATER), AfterSilence::GiveBackLater);
        }
        assert_eq!(patience.limit(NOTHING), SILENCE_MAX);
    }
}
