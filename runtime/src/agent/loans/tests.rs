use proptest::prelude::*;
use tierfeed_core::tier::Kind;

use super::*;

const CHUNK: Bytes = Bytes::mib(1);
const LATER: Nanoseconds = Nanoseconds(ROOM_WITHIN.0 + 1);

fn loans(chunks: u64) -> Loans<&'static str> {
    let budget = Bytes(chunks * CHUNK.0);
    Loans::new(Ledger::of([(Kind::CxlMemory, budget)], CHUNK), CHUNK)
}

fn request(loans: &mut Loans<&'static str>, connection: u64, mib: u64) -> Vec<Action> {
    loans.request(ConnectionId(connection), RequestId(connection), Bytes::mib(mib))
}

/// All steps of the current request, with an empty cache.
fn grant(loans: &mut Loans<&'static str>) -> GrantId {
    loans.agreed(Nanoseconds(0));
    loans.poll_room(0, 9, Nanoseconds(0));
    loans.allocated("memory").0.expect("it was asked for").1
}

#[test]
fn a_wish_is_asked_made_room_for_allocated_and_granted() {
    let mut loans = loans(5);
    assert_eq!(request(&mut loans, 1, 2), [Action::AskManager(2)]);
    assert_eq!(loans.agreed(Nanoseconds(0)), [Action::Lend(2)]);
    assert!(loans.needs_room());
    assert_eq!(loans.poll_room(4, 5, Nanoseconds(0)), [], "the cache still holds 4 of 5");
    assert_eq!(loans.poll_room(3, 5, Nanoseconds(1)), [Action::Allocate(2)]);
    let (granted, actions) = loans.allocated("memory");
    let (LoanRequest { connection, .. }, name) = granted.unwrap();
    assert_eq!((connection, actions), (ConnectionId(1), vec![]));
    assert_eq!((loans.memory(name), loans.granted()), (Some(&"memory"), Bytes::mib(2)));
    assert_eq!(loans.freed(name), [Action::TellReturned(2), Action::Lend(0)]);
    assert_eq!(loans.freed(name), [], "nothing comes back twice");
}

#[test]
fn wishes_wait_for_one_another() {
    let mut loans = loans(5);
    assert_eq!(request(&mut loans, 1, 2), [Action::AskManager(2)]);
    assert_eq!(request(&mut loans, 2, 3), []);
    loans.agreed(Nanoseconds(0));
    loans.poll_room(0, 5, Nanoseconds(0));
    let (_, actions) = loans.allocated("memory");
    assert_eq!(actions, [Action::AskManager(3)]);
}

#[test]
fn more_than_is_there_is_denied_with_what_is() {
    let mut loans = loans(5);
    request(&mut loans, 1, 3);
    grant(&mut loans);
    let actions = request(&mut loans, 2, 4);
    let [Action::Deny(_, reason)] = actions.as_slice() else { panic!("{actions:?}") };
    assert!(reason.contains("4 MiB of cxl-memory asked for, 2 MiB are free"), "{reason}");
}

#[test]
fn a_cache_that_gives_nothing_up_ends_the_wish_and_nothing_stays_lent() {
    let mut loans = loans(5);
    request(&mut loans, 1, 5);
    loans.agreed(Nanoseconds(0));
    let actions = loans.poll_room(5, 5, LATER);
    let [Action::Lend(0), Action::TellReturned(5), Action::Deny(..)] = actions.as_slice() else {
        panic!("{actions:?}")
    };
    assert_eq!(request(&mut loans, 2, 5), [Action::AskManager(5)]);
}

#[test]
fn a_manager_that_refuses_ends_the_wish() {
    let mut loans = loans(5);
    request(&mut loans, 1, 5);
    let actions = loans.refused("no");
    let [Action::Lend(0), Action::Deny(_, reason)] = actions.as_slice() else {
        panic!("{actions:?}")
    };
    assert_eq!(reason, "no");
}

#[test]
fn what_the_dead_held_comes_back() {
    let mut loans = loans(5);
    request(&mut loans, 1, 1);
    grant(&mut loans);
    request(&mut loans, 2, 2);
    grant(&mut loans);
    request(&mut loans, 1, 1);
    grant(&mut loans);
    loans.gone(ConnectionId(1));
    assert_eq!(loans.granted(), Bytes::mib(2));
    assert_eq!(request(&mut loans, 3, 3), [Action::AskManager(3)]);
}

#[test]
fn a_flood_of_wishes_is_denied() {
    let mut loans = loans(5);
    let denied: usize = (0..QUEUE_MAX as u64 + 10)
        .flat_map(|connection| request(&mut loans, connection, 1))
        .filter(|action| matches!(action, Action::Deny(..)))
        .count();
    assert_eq!(denied, 9, "one is at hand, {QUEUE_MAX} wait");
}

proptest! {
    #[test]
    fn no_more_is_lent_than_there_is_and_all_of_it_comes_back(
        steps in prop::collection::vec((0_u8..7, 0_u64..4, 0_u64..7), 1..100),
    ) {
        let mut loans = loans(5);
        let mut now = Nanoseconds(0);
        let mut cached = 5;
        for (step, connection, mib) in steps {
            let actions = match step {
                0 | 1 => request(&mut loans, connection, mib.max(1)),
                2 => loans.agreed(now),
                3 => loans.poll_room(cached, 5, now),
                4 => {
                    let at_hand = matches!(loans.current, Some((_, Stage::Allocating)));
                    if at_hand { loans.allocated("memory").1 } else { Vec::new() }
                }
                5 => loans.gone(ConnectionId(connection)),
                _ => {
                    now.0 += ROOM_WITHIN.0 / 2;
                    Vec::new()
                }
            };
            for action in actions {
                if let Action::Lend(lent) = action {
                    cached = cached.min(5 - lent);
                }
            }
            prop_assert!(loans.granted() <= Bytes::mib(5));
            prop_assert!(loans.granted().0 <= u64::from(loans.ledger.lent()) * CHUNK.0);
        }
        for connection in 0..4 {
            loans.gone(ConnectionId(connection));
        }
        loans.refused("the end");
        prop_assert_eq!(loans.ledger.lent(), 0);
    }
}
