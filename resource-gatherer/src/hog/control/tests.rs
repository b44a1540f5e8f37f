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

fn observations() -> impl Strategy<Value = Observation> {
    let stall = prop_oneof![Just(Stall::None), Just(Stall::Recent), Just(Stall::OfOthers)];
    (GIB / 8..64 * GIB, 0.0..1.0_f64, stall).prop_map(|(total, free, stall)| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "any share will do"
        )]
        let available = Bytes((total as f64 * free) as u64);
        Observation { available, total: Bytes(total), stall }
    })
}

fn held() -> impl Strategy<Value = Bytes> {
    (0..32 * GIB / QUANTUM.0).prop_map(|quanta| Bytes(quanta * QUANTUM.0))
}

/// A machine on which the use by others is constant, and the hog takes one step after the other.
struct Machine {
    total: u64,
    others: u64,
    held: u64,
}

impl Machine {
    fn observed(&self) -> Observation {
        let available = self.total.saturating_sub(self.others + self.held);
        Observation { available: Bytes(available), total: Bytes(self.total), stall: Stall::None }
    }

    fn step(&mut self, goal: Goal) -> Action {
        let action = next_action(&self.observed(), Bytes(self.held), goal);
        match action {
            Action::Take(bytes) => self.held += bytes.0,
            Action::GiveBack(bytes, _) => self.held -= bytes.0,
            Action::Rest | Action::End(_) => (),
        }
        action
    }
}

proptest! {
    #[test]
    fn taking_never_reaches_below_the_floor(seen in observations(), held in held(), goal in goals()) {
        if let Action::Take(bytes) = next_action(&seen, held, goal) {
            prop_assert!(seen.available.0 - bytes.0 >= floor(goal, seen.total).0);
            prop_assert!(bytes.0 > 0 && bytes <= STEP && bytes.0.is_multiple_of(QUANTUM.0));
            prop_assert_eq!(seen.stall, Stall::None);
            if let Goal::Take(wanted) = goal {
                prop_assert!(held.0 + bytes.0 < wanted.0.saturating_add(QUANTUM.0));
            }
        }
    }

    #[test]
    fn what_is_given_back_is_held_and_needed(seen in observations(), held in held(), goal in goals()) {
        if let Action::GiveBack(bytes, reason) = next_action(&seen, held, goal) {
            prop_assert!(bytes.0 > 0 && bytes <= held && bytes.0.is_multiple_of(QUANTUM.0));
            let floor = floor(goal, seen.total).0;
            match reason {
                Reason::OthersGrew => {
                    let most = (floor - seen.available.0).saturating_add(MARGIN.0 + QUANTUM.0);
                    prop_assert!(seen.available.0 < floor && bytes.0 <= most);
                }
                Reason::Pressure => prop_assert_eq!(seen.stall, Stall::OfOthers),
                Reason::End => prop_assert!(false, "the end is not decided here"),
            }
        }
    }

    #[test]
    fn the_floor_is_left_again_at_once_or_nothing_is_held(
        seen in observations(), held in held(), goal in goals()
    ) {
        let floor = floor(goal, seen.total);
        if seen.available < floor {
            let left = match next_action(&seen, held, goal) {
                Action::GiveBack(bytes, _) => {
                    seen.available.0 + bytes.0 >= floor.0 || bytes == held
                }
                Action::Rest => held == Bytes(0),
                Action::Take(_) | Action::End(_) => false,
            };
            prop_assert!(left);
        }
    }

    #[test]
    fn under_pressure_a_part_is_given_back(seen in observations(), held in held(), goal in goals()) {
        let seen = Observation { stall: Stall::OfOthers, ..seen };
        match next_action(&seen, held, goal) {
            Action::GiveBack(bytes, _) => prop_assert!(bytes.0 > 0),
            other => prop_assert_eq!((other, held), (Action::Rest, Bytes(0))),
        }
    }

    #[test]
    fn a_steady_machine_comes_to_rest_at_the_goal(
        total in GIB / 4..64 * GIB, share in 0..100_u64, held in held(), goal in goals()
    ) {
        let others = total / 100 * share;
        let most = match goal {
            Goal::Take(wanted) => whole_quanta(wanted.0).0,
            Goal::Leave(_) => u64::MAX,
        };
        let mut machine = Machine { total, others, held: held.0.min(total - others).min(most) };
        let looks = total / STEP.0 + 8;
        for _ in 0..looks {
            machine.step(goal);
        }
        prop_assert_eq!(machine.step(goal), Action::Rest);
        let seen = machine.observed();
        let room = total - others;
        let floor = floor(goal, Bytes(total)).0;
        if let Goal::Take(wanted) = goal && wanted.0.saturating_add(floor + NEAR.0) <= room {
            prop_assert!(machine.held.abs_diff(wanted.0) < QUANTUM.0);
        } else if room >= floor {
            prop_assert!((floor..=floor + NEAR.0).contains(&seen.available.0)
                || matches!(goal, Goal::Take(wanted) if machine.held >= wanted.0));
        } else {
            prop_assert_eq!(machine.held, 0);
        }
    }
}

#[test]
fn every_reason_has_words_for_people_and_a_name_for_programs() {
    let shown = [Reason::OthersGrew, Reason::Pressure, Reason::End]
        .map(|it| (it.to_string(), serde_json::to_value(it).unwrap()));
    let expected = [
        ("others took memory", "others-grew"),
        ("others wait for memory", "pressure"),
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
    assert!(machine.observed().available.0.abs_diff(GIB) <= 8 << 20, "{:?}", machine.observed());
    assert!(is_reached(&machine.observed(), Bytes(machine.held), goal));
}

#[test]
fn an_amount_that_others_need_is_not_reached() {
    let machine = Machine { total: 24 * GIB, others: 20 * GIB, held: 0 };
    let goal = Goal::Take(Bytes(4 * GIB));
    assert!(!is_reached(&machine.observed(), Bytes(2 * GIB), goal));
    assert!(is_reached(&machine.observed(), Bytes(4 * GIB), goal));
}

#[test]
fn small_changes_of_others_disturb_nobody() {
    let goal = Goal::Leave(Bytes(GIB));
    for above in [0, 1 << 20, 7 << 20] {
        let machine = Machine { total: 24 * GIB, others: 0, held: 23 * GIB - above };
        assert_eq!(next_action(&machine.observed(), Bytes(machine.held), goal), Action::Rest);
    }
}

const SECOND: u64 = 1_000_000_000;

/// A machine of 8 GiB under a scripted clock of ten looks a second.
struct Play {
    controller: Controller,
    others: u64,
    held: u64,
    now: u64,
}

impl Play {
    fn new(goal: Goal, limit_s: Option<u64>) -> Self {
        let limit = limit_s.map(|limit| Nanoseconds(limit * SECOND));
        let controller = Controller::new(goal, limit, Nanoseconds(60 * SECOND));
        Self { controller, others: GIB, held: 0, now: 0 }
    }

    fn observed(&self) -> Observation {
        let available = Bytes(8 * GIB - self.others - self.held);
        Observation { available, total: Bytes(8 * GIB), stall: Stall::None }
    }

    fn step(&mut self) -> Action {
        let now = Nanoseconds(self.now);
        let action = self.controller.next(now, &self.observed(), Bytes(self.held));
        match action {
            Action::Take(bytes) => self.held += bytes.0,
            Action::GiveBack(bytes, _) => self.held -= bytes.0,
            Action::Rest | Action::End(_) => (),
        }
        self.now += SECOND / 10;
        action
    }

    /// Plays until `seconds` after the goal was reached, or until the end.
    fn until(&mut self, seconds: u64) -> Action {
        loop {
            let action = self.step();
            let started = self.controller.started.map(|started| started.0 + seconds * SECOND);
            if matches!(action, Action::End(_)) || started.is_some_and(|end| self.now >= end) {
                return action;
            }
        }
    }
}

#[test]
fn the_clock_starts_when_the_amount_is_held() {
    let mut play = Play::new(Goal::Take(Bytes(4 * GIB)), Some(10));
    while !play.controller.has_started() {
        play.step();
    }
    let held_at = 4 * GIB / STEP.0 * SECOND / 10;
    assert_eq!(play.now, held_at + SECOND / 10);
    play.now = held_at + 10 * SECOND - 1;
    assert_eq!(play.step(), Action::Rest);
    play.now = held_at + 10 * SECOND;
    assert_eq!(play.step(), Action::End(Ending::Time));
}

#[test]
fn what_others_need_is_given_back_and_taken_again() {
    let mut play = Play::new(Goal::Leave(Bytes(GIB)), None);
    play.until(1);
    assert!(play.held > 5 * GIB);
    play.others += 3 * GIB;
    // What they took exceeds what was left: they took it from the hog's reserve of free memory.
    play.held -= 2 * GIB + GIB / 2;
    play.until(10);
    assert!(play.observed().available.0.abs_diff(GIB) <= 8 << 20);
    play.others -= 3 * GIB;
    play.until(30);
    assert!(play.observed().available.0.abs_diff(GIB) <= 8 << 20);
    assert!(play.held > 5 * GIB);
}

#[test]
fn an_amount_that_is_not_there_ends_the_wait() {
    let mut play = Play::new(Goal::Take(Bytes(7 * GIB)), None);
    assert_eq!(play.until(0), Action::End(Ending::Unreached));
    assert_eq!(play.now, 60 * SECOND + SECOND / 10);
    assert!(play.observed().available >= floor(Goal::Take(Bytes(0)), Bytes(8 * GIB)));
}

#[test]
fn a_refusal_of_the_kernel_pauses_the_taking() {
    let mut play = Play::new(Goal::Take(Bytes(4 * GIB)), None);
    assert!(matches!(play.step(), Action::Take(_)));
    play.controller.note_refusal(Nanoseconds(0), "no".to_owned());
    for _ in 1..10 {
        assert_eq!(play.step(), Action::Rest);
    }
    assert!(matches!(play.step(), Action::Take(_)));
}
