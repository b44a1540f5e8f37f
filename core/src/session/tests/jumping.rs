//! A rank that asks for epochs far from each other.

use super::*;

fn is_refused(world: &mut Play, epoch: u32) -> bool {
    let (connection, rank) = (world.trainers[1].connection, world.trainers[1].rank);
    let batch = BatchId { epoch: Epoch(epoch), step: Step(0), rank };
    world.trainers[1].asked.insert(batch);
    world.tell(Event::Requested { connection, batch });
    world.drain();
    while let Some((lease, _)) = world.trainers[1].leases.pop_front() {
        let wait = Wait::ending(world.now, Nanoseconds(0));
        world.tell(Event::Delivered { connection, lease, wait });
        world.tell(Event::Released { connection, lease });
    }
    world.trainers[1].refused.pop() == Some((batch, Refusal::TooManyJumps))
}

#[test]
fn a_rank_that_jumps_from_epoch_to_epoch_is_limited_and_others_are_served() {
    let samples = 1_000_000;
    let mut settings = settings(policy::Kind::None, samples, 2, OnError::Fail);
    settings.order.epochs = 1000;
    settings.sizes = (0..samples).map(|_| Bytes(1)).collect();
    let mut world = Play::new(&settings);
    world.drain();
    let far = |jump: u32| 10 + jump * 37 % 900;
    let allowed = (0..100).take_while(|jump| !is_refused(&mut world, far(*jump))).count();
    assert_eq!(allowed, 26, "each counts as 0.4 s; the first that finds 10 s used is refused");
    assert!((200..300).all(|jump| is_refused(&mut world, far(jump))));
    assert_eq!(world.session.progress().refusals.too_many_jumps, 101);
    // What the session works on is given to it as before, and the other rank notices nothing.
    assert!(!is_refused(&mut world, far(25)));
    for _ in 0..20 {
        assert!(world.ask(0));
        world.drain();
        assert!(world.take(0));
    }
    world.now.0 += 400_000_000;
    assert!(!is_refused(&mut world, far(500)), "its share grows with time");
}
