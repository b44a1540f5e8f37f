//! A client and a server in one process, and peers that misbehave.

mod faulty;
mod fixture;
mod strangers;

use std::{
    net::TcpListener,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use proptest::prelude::*;
use tierfeed_core::{
    id::{NodeId, SampleId},
    units::Bytes,
};

use super::*;
use fixture::{
    Node, OURS, PROTECTIONS, Protection, SECRET, Staging, THEIRS, network, sample_bytes,
};

const LATER: Duration = Duration::from_secs(20);

#[test]
fn samples_of_every_length_arrive_where_they_were_wanted_with_their_sums() {
    let lens = [0, 1, 63, 64, 4095, 100 << 10, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20];
    for protection in PROTECTIONS {
        arrive(&lens, protection);
    }
}

fn arrive(lens: &[u64], protection: Protection) {
    let node = Node::protected(lens, protection);
    let client = node.client();
    let staging = Staging::of(lens);
    let outcomes = staging.read_all(&client, 7, LATER);
    for (sample, &len) in (0..).zip(lens) {
        let expected = sample_bytes(sample, len);
        let xxh3 = tierfeed_dataset::read::sample_sum::sum_of(&expected);
        assert_eq!(outcomes[sample as usize], Outcome::Held { xxh3 }, "{len} bytes");
        assert_eq!(staging.bytes(sample), expected, "{len} bytes");
    }
    assert_eq!(client.counts().received_bytes, lens.iter().sum::<u64>());
    assert_eq!(client.counts().requests, 1, "one request carries a batch");
    node.wait_for(|node| node.sent.load(Ordering::Acquire) == 1);
    assert_eq!(node.server().counts().sent_bytes, lens.iter().sum::<u64>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn each_read_is_answered_for_what_the_peer_holds(
        samples in prop::collection::vec((0..200_000_u64, any::<bool>()), 1..80),
        flush_every in 1..40_usize,
        protection in prop::sample::select(&PROTECTIONS),
    ) {
        let lens: Vec<u64> = samples.iter().map(|(len, _)| *len).collect();
        let node = Node::protected(&lens, protection);
        for (sample, (_, is_held)) in (0..).zip(&samples) {
            if !is_held {
                node.forget(SampleId(sample));
            }
        }
        let client = node.client();
        let staging = Staging::of(&lens);
        let outcomes = staging.read_in_batches(&client, 7, LATER, flush_every);
        for (sample, (len, is_held)) in (0..).zip(samples) {
            match outcomes[sample as usize] {
                Outcome::Held { .. } => prop_assert!(is_held),
                Outcome::Absent => prop_assert!(!is_held),
                Outcome::Failed(failure) => prop_assert!(false, "{failure}"),
            }
            let expected = if is_held { sample_bytes(sample, len) } else { vec![0; usize::try_from(len).unwrap()] };
            prop_assert_eq!(staging.bytes(sample), expected);
        }
    }
}

#[test]
fn a_peer_of_another_generation_serves_nothing() {
    let node = Node::holding(&[1000]);
    let client = node.client();
    let outcomes = Staging::of(&[1000]).read_all(&client, 8, LATER);
    assert_eq!(outcomes, [Outcome::Failed(Failure::OtherGeneration)]);
}

#[test]
fn a_read_ends_at_its_deadline_and_its_target_is_written_no_more() {
    PROTECTIONS.into_iter().for_each(ends_at_its_deadline);
}

fn ends_at_its_deadline(protection: Protection) {
    let lens = [4096, 4096];
    let node = Node::silent(&lens, protection);
    let client = node.client();
    let staging = Staging::of(&lens);
    let outcomes = staging.read_all(&client, 7, Duration::from_millis(50));
    assert_eq!(outcomes, [Outcome::Failed(Failure::Timeout); 2]);
    node.answer_kept();
    node.wait_for(|node| node.sent.load(Ordering::Acquire) == 1);
    // A later read passes over the same pair of nodes, so what was sent late has come by then.
    let outcomes = Staging::of(&lens).read_all(&client, 7, LATER);
    assert!(outcomes.iter().all(|it| matches!(it, Outcome::Held { .. })), "{outcomes:?}");
    assert_eq!(staging.bytes(0), vec![0; 4096]);
    assert_eq!(staging.bytes(1), vec![0; 4096]);
}

#[test]
fn late_bytes_are_dropped_on_a_connection_that_others_still_need() {
    PROTECTIONS.into_iter().for_each(late_bytes_are_dropped);
}

fn late_bytes_are_dropped(protection: Protection) {
    let lens = [300_000, 200_000];
    let node = Node::silent(&lens, protection);
    let settings = ClientSettings { connections_max: 1, ..ClientSettings::default() };
    let client = Client::start(network(), protection(&SECRET, OURS, 1), settings);
    client.set_peer(THEIRS, node.server().address(), 1);
    let (late, in_time) = (Staging::of(&lens), Staging::of(&lens));
    let ended = late.start(&client, 7, Duration::from_millis(500));
    let waiting = in_time.start(&client, 7, LATER);
    assert_eq!(ended.outcomes(), [Outcome::Failed(Failure::Timeout); 2]);
    node.wait_for(|node| node.asked.load(Ordering::Acquire) == 2);
    node.answer_kept();
    assert!(waiting.outcomes().iter().all(|it| matches!(it, Outcome::Held { .. })));
    for (sample, len) in (0..).zip(lens) {
        assert_eq!(in_time.bytes(sample), sample_bytes(sample, len));
        assert!(late.bytes(sample).iter().all(|byte| *byte == 0), "written after its end");
    }
    assert_eq!(client.counts().connected, 1, "it was the same connection");
    // The late ones came too; bytes are counted after the reads that they end.
    node.wait_for(|_| client.counts().received_bytes == 2 * lens.iter().sum::<u64>());
}

#[test]
fn a_server_without_room_says_so_and_is_asked_again() {
    for protection in PROTECTIONS {
        let node = Node::with_room_for(1, protection);
        let read = |client: &Client| Staging::of(&[1000]).read_all(client, 7, LATER)[0];
        let first = node.client();
        assert!(matches!(read(&first), Outcome::Held { .. }));
        let second = node.client();
        assert_eq!(read(&second), Outcome::Failed(Failure::Refused));
        assert_eq!(second.counts().connected, 0);
        node.wait_for(|node| node.server().counts().refused == 1);
        drop(first);
        node.wait_for(|_| matches!(read(&second), Outcome::Held { .. }));
        assert_eq!(node.server().counts().accepted, 2);
    }
}

#[test]
fn another_process_of_a_peer_is_a_stranger() {
    let node = Node::restarted(&[1000], 1);
    let client = node.client();
    client.set_peer(THEIRS, node.server().address(), 2);
    let read = || Staging::of(&[1000]).read_all(&client, 7, LATER)[0];
    assert_eq!(read(), Outcome::Failed(Failure::Stranger));
    assert_eq!(node.asked.load(Ordering::Acquire), 0);
    client.set_peer(THEIRS, node.server().address(), 1);
    assert!(matches!(read(), Outcome::Held { .. }));
}

#[test]
fn reads_of_a_peer_that_is_gone_fail_and_it_is_found_when_it_comes_back() {
    let node = Node::holding(&[1000]);
    let client = node.client();
    let read = || Staging::of(&[1000]).read_all(&client, 7, LATER)[0];
    assert!(matches!(read(), Outcome::Held { .. }));
    drop(node);
    let lost = read();
    assert!(matches!(lost, Outcome::Failed(Failure::Closed | Failure::Refused)), "{lost:?}");
    assert_eq!(read(), Outcome::Failed(Failure::Refused));
    let node = Node::restarted(&[1000], 2);
    client.set_peer(THEIRS, node.server().address(), 2);
    assert!(matches!(read(), Outcome::Held { .. }), "at its new address at once");
}

#[test]
fn an_unknown_peer_has_no_samples() {
    let client =
        Client::start(network(), Access::private(&SECRET, OURS, 1), ClientSettings::default());
    let outcomes = Staging::of(&[1000]).read_all(&client, 7, LATER);
    assert_eq!(outcomes, [Outcome::Failed(Failure::Unknown)]);
}

#[test]
fn a_peer_that_accepts_and_says_nothing_costs_the_time_to_connect() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let settings =
        ClientSettings { connect_within: Duration::from_millis(50), ..ClientSettings::default() };
    let client = Client::start(network(), Access::private(&SECRET, OURS, 1), settings);
    client.set_peer(THEIRS, listener.local_addr().unwrap(), 1);
    let outcomes = Staging::of(&[1000]).read_all(&client, 7, LATER);
    assert_eq!(outcomes, [Outcome::Failed(Failure::Refused)]);
}

#[test]
fn what_waits_when_the_client_ends_is_answered() {
    let node = Node::silent(&[1000], Access::private);
    let client = node.client();
    let staging = Staging::of(&[1000]);
    let reads = staging.start(&client, 7, LATER);
    node.wait_for(|node| node.asked.load(Ordering::Acquire) == 1);
    drop(client);
    assert_eq!(reads.outcomes(), [Outcome::Failed(Failure::Stopped)]);
}

#[test]
fn a_tampered_sample_is_a_broken_sum() {
    let node = Node::holding(&[1000, 2000]);
    node.tamper(SampleId(0));
    let client = node.client();
    let outcomes = Staging::of(&[1000, 2000]).read_all(&client, 7, LATER);
    assert_eq!(outcomes[0], Outcome::Failed(Failure::BrokenSum));
    assert!(matches!(outcomes[1], Outcome::Held { .. }), "{outcomes:?}");
}

#[test]
fn a_sample_of_another_length_is_refused_and_the_others_arrive() {
    let node = Node::holding(&[1000, 200_000, 3000]);
    let client = node.client();
    for wrong in [199_999, 200_001] {
        let staging = Staging::of(&[1000, wrong, 3000]);
        let outcomes = staging.read_all(&client, 7, LATER);
        assert!(matches!(outcomes[0], Outcome::Held { .. }), "{outcomes:?}");
        assert_eq!(outcomes[1], Outcome::Failed(Failure::WrongLength));
        assert!(matches!(outcomes[2], Outcome::Held { .. }), "{outcomes:?}");
        assert_eq!(staging.bytes(2), sample_bytes(2, 3000));
    }
}

#[test]
fn another_secret_or_another_node_is_a_stranger() {
    PROTECTIONS.into_iter().for_each(strangers_are_refused);
}

fn strangers_are_refused(protection: Protection) {
    let node = Node::protected(&[1000], protection);
    let with = |secret: [u8; 32], peer: NodeId| {
        let access = protection(&secret, OURS, 1);
        let client = Client::start(network(), access, ClientSettings::default());
        client.set_peer(peer, node.server().address(), 1);
        Staging::of(&[1000]).read_all_of(&client, peer, 7, LATER)[0]
    };
    assert_eq!(with([9; 32], THEIRS), Outcome::Failed(Failure::Stranger));
    assert_eq!(with(SECRET, NodeId(9)), Outcome::Failed(Failure::Stranger));
    node.wait_for(|node| node.server().counts().refused == 2);
    assert_eq!(node.asked.load(Ordering::Acquire), 0);
    assert!(matches!(with(SECRET, THEIRS), Outcome::Held { .. }));
}

#[test]
fn a_plain_end_and_an_encrypted_one_do_not_talk() {
    for (theirs, ours) in [(PROTECTIONS[0], PROTECTIONS[1]), (PROTECTIONS[1], PROTECTIONS[0])] {
        let node = Node::protected(&[1000], theirs);
        let settings = ClientSettings {
            connect_within: Duration::from_millis(200),
            ..ClientSettings::default()
        };
        let client = Client::start(network(), ours(&SECRET, OURS, 1), settings);
        client.set_peer(THEIRS, node.server().address(), 1);
        let outcome = Staging::of(&[1000]).read_all(&client, 7, LATER)[0];
        let is_refused = matches!(outcome, Outcome::Failed(Failure::Refused | Failure::Stranger));
        assert!(is_refused, "{outcome:?}");
        assert_eq!(node.asked.load(Ordering::Acquire), 0);
    }
}

#[test]
fn requests_are_spread_over_connections_and_none_is_lost() {
    PROTECTIONS.into_iter().for_each(spread);
}

fn spread(protection: Protection) {
    let lens = vec![300_000; 200];
    let node = Node::protected(&lens, protection);
    let client = Arc::new(node.client());
    let staging = Staging::of(&lens);
    let outcomes = staging.read_in_batches(&client, 7, LATER, 10);
    assert!(outcomes.iter().all(|it| matches!(it, Outcome::Held { .. })));
    let link = client.links()[0];
    assert!((2..=4).contains(&link.connections), "{link:?}");
    // The last read ends a moment before its request.
    node.wait_for(|_| client.links()[0].in_flight == Bytes(0));
    assert_eq!(client.counts().requests, 20);
}
