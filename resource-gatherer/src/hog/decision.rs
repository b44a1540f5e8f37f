//! Decides what a hog does next: takes, gives back or rests. Reads nothing and holds nothing.
//!
//! 1. What others can still take never falls below the floor of the goal because of a hog.
//! 2. When others take more and the floor is not left, the hog gives back, all it has if need be.
//! 3. While others wait for memory the hog takes nothing, and gives back an eighth at a time.
//! 4. With a steady machine it comes to rest at its goal, or as near as the floor allows.
//!
//! Between giving back and taking lies a band in which it rests: what the kernel calls available
//! moves by some MiB all the time.

use std::fmt;

use tierfeed_core::units::Bytes;
use tierfeed_numa_memory::ballast::QUANTUM;

use super::goal::Goal;

/// What can be seen of the place that memory is taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// What others can still take there: the tightest of host, node and control group.
    pub available: Bytes,
    /// All memory of the place.
    pub total: Bytes,
    /// Whether anyone waits for memory.
    pub strain: Strain,
}

/// Whether tasks of this host wait for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strain {
    /// They do not, or the kernel does not say.
    None,
    /// They do or did a moment ago, perhaps only because the hog took memory.
    Recent,
    /// They do although the hog took nothing.
    Others,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Take so much more.
    Take(Bytes),
    /// Give so much back.
    GiveBack(Bytes, Reason),
    /// Look again later.
    Rest,
}

/// Why memory is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Others took memory, and the floor must stay.
    OthersGrew,
    /// Others wait for memory.
    Pressure,
    /// The goal is lower than what is held.
    Goal,
    /// The hog ends.
    End,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OthersGrew => "others took memory",
            Self::Pressure => "others wait for memory",
            Self::Goal => "less is to be held now",
            Self::End => "the hog ends",
        })
    }
}

/// What is taken between two looks: a tenth of a second on memory that the host must bring first.
pub const STEP: Bytes = Bytes::mib(128);

/// Half of the band in which a hog rests.
pub const MARGIN: Bytes = Bytes::mib(4);

/// How much above the floor still counts as having taken all but the floor.
const NEAR: Bytes = Bytes::mib(16);

/// The share of all memory, in per cent, that a hog told to take an amount leaves to others.
const TAKE_FLOOR_PERCENT: u64 = 5;

/// The share that a hog told to leave an amount leaves in any case.
const LEAVE_FLOOR_PERCENT: u64 = 1;

/// The least floor: the kernel itself needs some.
const FLOOR_MIN: Bytes = Bytes::mib(32);

/// The least that is given back under pressure.
const RELIEF_MIN: Bytes = Bytes::mib(64);

/// What `goal` leaves to others in any case on a place with `total`.
#[must_use]
pub fn floor(goal: Goal, total: Bytes) -> Bytes {
    let share = |percent: u64| Bytes(total.0 / 100 * percent).max(FLOOR_MIN);
    match goal {
        Goal::Take(_) => share(TAKE_FLOOR_PERCENT),
        Goal::Leave(left) => left.max(share(LEAVE_FLOOR_PERCENT)),
    }
}

/// Whether what is held is what `goal` asks for, or nothing more can be had within it.
#[must_use]
pub fn is_reached(look: &Look, held: Bytes, goal: Goal) -> bool {
    match goal {
        Goal::Take(wanted) => held >= wanted,
        Goal::Leave(_) => look.available.0 <= floor(goal, look.total).0.saturating_add(NEAR.0),
    }
}

/// What a hog that holds `held` does next.
#[must_use]
pub fn next_action(look: &Look, held: Bytes, goal: Goal) -> Action {
    let floor = floor(goal, look.total);
    if look.available < floor && held.0 > 0 {
        let lacking = floor.0.saturating_add(MARGIN.0) - look.available.0;
        return Action::GiveBack(whole_quanta(lacking).min(held), Reason::OthersGrew);
    }
    if look.strain == Strain::Others && held.0 > 0 {
        let relief = whole_quanta(held.0 / 8).max(RELIEF_MIN);
        return Action::GiveBack(relief.min(held), Reason::Pressure);
    }
    let wanted = match goal {
        Goal::Take(wanted) => whole_quanta(wanted.0),
        Goal::Leave(_) => Bytes(u64::MAX),
    };
    if held > wanted {
        return Action::GiveBack(Bytes(held.0 - wanted.0), Reason::Goal);
    }
    let surplus = look.available.0.saturating_sub(floor.0);
    if look.strain != Strain::None || surplus < 2 * MARGIN.0 {
        return Action::Rest;
    }
    let takeable = (surplus - MARGIN.0) / QUANTUM.0 * QUANTUM.0;
    match Bytes(takeable.min(STEP.0).min(wanted.0 - held.0)) {
        Bytes(0) => Action::Rest,
        bytes => Action::Take(bytes),
    }
}

fn whole_quanta(bytes: u64) -> Bytes {
    Bytes(bytes.div_ceil(QUANTUM.0).saturating_mul(QUANTUM.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn goals() -> impl Strategy<Value = Goal> {
        let size = prop_oneof![0..64 * GIB, Just(0), Just(u64::MAX)].prop_map(Bytes);
        (any::<bool>(), size).prop_map(
            |(takes, size)| {
                if takes { Goal::Take(size) } else { Goal::Leave(size) }
            },
        )
    }

    fn looks() -> impl Strategy<Value = Look> {
        let strain = prop_oneof![Just(Strain::None), Just(Strain::Recent), Just(Strain::Others)];
        (GIB / 8..64 * GIB, 0.0..1.0_f64, strain).prop_map(|(total, free, strain)| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                reason = "any share will do"
            )]
            let available = Bytes((total as f64 * free) as u64);
            Look { available, total: Bytes(total), strain }
        })
    }

    fn held() -> impl Strategy<Value = Bytes> {
        (0..32 * GIB / QUANTUM.0).prop_map(|quanta| Bytes(quanta * QUANTUM.0))
    }

    /// A machine whose others use what they use; a hog takes one look after the other.
    struct Machine {
        total: u64,
        others: u64,
        held: u64,
    }

    impl Machine {
        fn look(&self) -> Look {
            let available = self.total.saturating_sub(self.others + self.held);
            Look { available: Bytes(available), total: Bytes(self.total), strain: Strain::None }
        }

        fn step(&mut self, goal: Goal) -> Action {
            let action = next_action(&self.look(), Bytes(self.held), goal);
            match action {
                Action::Take(bytes) => self.held += bytes.0,
                Action::GiveBack(bytes, _) => self.held -= bytes.0,
                Action::Rest => (),
            }
            action
        }
    }

    proptest! {
        #[test]
        fn taking_never_reaches_below_the_floor(look in looks(), held in held(), goal in goals()) {
            if let Action::Take(bytes) = next_action(&look, held, goal) {
                prop_assert!(look.available.0 - bytes.0 >= floor(goal, look.total).0);
                prop_assert!(bytes.0 > 0 && bytes <= STEP && bytes.0.is_multiple_of(QUANTUM.0));
                prop_assert_eq!(look.strain, Strain::None);
                if let Goal::Take(wanted) = goal {
                    prop_assert!(held.0 + bytes.0 < wanted.0.saturating_add(QUANTUM.0));
                }
            }
        }

        #[test]
        fn what_is_given_back_is_held_and_needed(look in looks(), held in held(), goal in goals()) {
            if let Action::GiveBack(bytes, reason) = next_action(&look, held, goal) {
                prop_assert!(bytes.0 > 0 && bytes <= held && bytes.0.is_multiple_of(QUANTUM.0));
                let floor = floor(goal, look.total).0;
                match reason {
                    Reason::OthersGrew => {
                        let most = (floor - look.available.0).saturating_add(MARGIN.0 + QUANTUM.0);
                        prop_assert!(look.available.0 < floor && bytes.0 <= most);
                    }
                    Reason::Pressure => prop_assert_eq!(look.strain, Strain::Others),
                    Reason::Goal => prop_assert!(matches!(goal, Goal::Take(wanted)
                        if held.0 - bytes.0 >= wanted.0)),
                    Reason::End => prop_assert!(false, "the end is not decided here"),
                }
            }
        }

        #[test]
        fn the_floor_is_left_again_at_once_or_nothing_is_held(
            look in looks(), held in held(), goal in goals()
        ) {
            let floor = floor(goal, look.total);
            if look.available < floor {
                let left = match next_action(&look, held, goal) {
                    Action::GiveBack(bytes, _) => {
                        look.available.0 + bytes.0 >= floor.0 || bytes == held
                    }
                    Action::Rest => held == Bytes(0),
                    Action::Take(_) => false,
                };
                prop_assert!(left);
            }
        }

        #[test]
        fn under_pressure_a_part_is_given_back(look in looks(), held in held(), goal in goals()) {
            let look = Look { strain: Strain::Others, ..look };
            match next_action(&look, held, goal) {
                Action::GiveBack(bytes, _) => prop_assert!(bytes.0 > 0),
                other => prop_assert_eq!((other, held), (Action::Rest, Bytes(0))),
            }
        }

        #[test]
        fn a_steady_machine_comes_to_rest_at_the_goal(
            total in GIB / 4..64 * GIB, share in 0..100_u64, held in held(), goal in goals()
        ) {
            let others = total / 100 * share;
            let mut machine = Machine { total, others, held: held.0.min(total - others) };
            let looks = total / STEP.0 + 8;
            for _ in 0..looks {
                machine.step(goal);
            }
            prop_assert_eq!(machine.step(goal), Action::Rest);
            let look = machine.look();
            let room = total - others;
            let floor = floor(goal, Bytes(total)).0;
            if let Goal::Take(wanted) = goal && wanted.0.saturating_add(floor + NEAR.0) <= room {
                prop_assert!(machine.held.abs_diff(wanted.0) < QUANTUM.0);
            } else if room >= floor {
                prop_assert!((floor..=floor + NEAR.0).contains(&look.available.0)
                    || matches!(goal, Goal::Take(wanted) if machine.held >= wanted.0));
            } else {
                prop_assert_eq!(machine.held, 0);
            }
        }
    }

    #[test]
    fn every_reason_has_words_for_people_and_a_name_for_programs() {
        let shown = [Reason::OthersGrew, Reason::Pressure, Reason::Goal, Reason::End]
            .map(|it| (it.to_string(), serde_json::to_value(it).unwrap()));
        let expected = [
            ("others took memory", "others-grew"),
            ("others wait for memory", "pressure"),
            ("less is to be held now", "goal"),
            ("the hog ends", "end"),
        ];
        assert_eq!(shown, expected.map(|(words, name)| (words.to_owned(), name.into())));
    }

    #[test]
    fn the_last_of_a_surplus_is_taken_in_small_pieces() {
        let mut machine = Machine { total: 24 * GIB, others: GIB, held: 0 };
        let goal = Goal::Leave(Bytes(GIB));
        let mut taken = Vec::new();
        while let Action::Take(bytes) = machine.step(goal) {
            taken.push(bytes);
        }
        assert_eq!(taken.first(), Some(&STEP));
        assert!(machine.look().available.0.abs_diff(GIB) <= 8 << 20, "{:?}", machine.look());
        assert!(is_reached(&machine.look(), Bytes(machine.held), goal));
    }

    #[test]
    fn an_amount_that_others_need_is_not_reached() {
        let machine = Machine { total: 24 * GIB, others: 20 * GIB, held: 0 };
        let goal = Goal::Take(Bytes(4 * GIB));
        assert!(!is_reached(&machine.look(), Bytes(2 * GIB), goal));
        assert!(is_reached(&machine.look(), Bytes(4 * GIB), goal));
    }

    #[test]
    fn small_changes_of_others_disturb_nobody() {
        let goal = Goal::Leave(Bytes(GIB));
        for above in [0, 1 << 20, 7 << 20] {
            let machine = Machine { total: 24 * GIB, others: 0, held: 23 * GIB - above };
            assert_eq!(next_action(&machine.look(), Bytes(machine.held), goal), Action::Rest);
        }
    }
}
