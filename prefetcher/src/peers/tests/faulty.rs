//! Peers that have the secret, and break the protocol or end in the middle of it.

use std::{net::TcpListener, time::Duration};

use tierfeed_core::id::SampleId;

use super::fixture::{OURS, SECRET, Staging, THEIRS, network, sample_bytes};
use crate::peers::{
    Access, Client, ClientSettings, Failure, Outcome, Read,
    handshake::{self, Proved},
    message::{Answered, Message, MessageError, MessageReader},
};

const LATER: Duration = Duration::from_secs(20);
const LEN: u64 = 50_000;

#[derive(Clone, Copy)]
enum Fault {
    Garbage,
    UnknownRequest,
    OtherSample,
    MoreEntries,
    LongerSample,
    /// The same beside a sample that is absent, once the client has ended the read of the first.
    LongerSampleOfEndedRead,
    /// So many bytes of the sample, then the end.
    Closes(usize),
    /// So many bytes of the sample, then nothing.
    Stops(usize),
    /// The right bytes with another sum.
    WrongSum,
}

/// Notified when a read has ended that [`Fault::LongerSampleOfEndedRead`] waits for.
static READ_ENDED: tokio::sync::Notify = tokio::sync::Notify::const_new();

fn client_of(fault: Fault) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let network = network();
    let spawner = network.spawner();
    network.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        while let Ok((stream, _)) = listener.accept().await {
            spawner.spawn(async move {
                let access = Access::private(&SECRET, THEIRS, 1);
                let proved = handshake::prove(stream, &access).await.unwrap();
                answer(proved.accept().await.unwrap(), fault).await;
            });
        }
    });
    let silent_after = match fault {
        Fault::LongerSampleOfEndedRead => LATER,
        _ => Duration::from_millis(100),
    };
    let settings = ClientSettings { silent_after, ..ClientSettings::default() };
    let client = Client::start(network, Access::private(&SECRET, OURS, 1), settings);
    client.set_peer(THEIRS, address, 1);
    client
}

async fn answer(mut proved: Proved, fault: Fault) {
    let mut reader = MessageReader::default();
    loop {
        let mut id = loop {
            match reader.receive(&mut proved.channel, &mut proved.received) {
                Ok(Message::Ask { id, .. }) => break id,
                Err(MessageError::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    proved.channel.readable().await.unwrap();
                }
                _ => return,
            }
        };
        let xxh3 = tierfeed_dataset::read::sample_sum::sum_of(&sample_bytes(0, LEN));
        let mut entry = Answered { sample: SampleId(0), held: Some((LEN, xxh3)) };
        let mut second = None;
        match fault {
            Fault::Garbage => return drop(proved.channel.send_all(&[0x5a; 200]).await),
            Fault::UnknownRequest => id += 1,
            Fault::OtherSample => entry.sample = SampleId(9),
            Fault::MoreEntries => second = Some(entry),
            Fault::LongerSampleOfEndedRead => {
                READ_ENDED.notified().await;
                entry.held = Some((u64::MAX, xxh3));
                second = Some(Answered { sample: SampleId(1), held: None });
            }
            Fault::LongerSample => entry.held = Some((u64::MAX, xxh3)),
            Fault::WrongSum => entry.held = Some((LEN, xxh3 ^ 1)),
            Fault::Closes(_) | Fault::Stops(_) => {}
        }
        let entries = [entry].into_iter().chain(second).collect();
        let mut message = Message::Answer { id, entries }.tagged(&mut proved.sent);
        let bytes = sample_bytes(0, LEN);
        let sent = match fault {
            Fault::Closes(sent) | Fault::Stops(sent) => sent,
            _ => bytes.len(),
        };
        message.extend(&bytes[..sent]);
        if proved.channel.send_all(&message).await.is_err() {
            return;
        }
        match fault {
            Fault::Closes(_) => return,
            Fault::Stops(_) => std::future::pending().await,
            _ => {}
        }
    }
}

fn outcome_of(fault: Fault) -> Outcome {
    Staging::of(&[LEN]).read_all(&client_of(fault), 7, LATER)[0]
}

#[test]
fn what_breaks_the_protocol_is_a_failed_read() {
    for fault in [Fault::Garbage, Fault::UnknownRequest, Fault::OtherSample, Fault::MoreEntries] {
        assert_eq!(outcome_of(fault), Outcome::Failed(Failure::Protocol));
    }
    assert_eq!(outcome_of(Fault::LongerSample), Outcome::Failed(Failure::WrongLength));
    assert_eq!(outcome_of(Fault::WrongSum), Outcome::Failed(Failure::BrokenSum));
}

#[test]
fn bytes_without_end_are_not_received_for_a_read_that_has_ended() {
    let client = client_of(Fault::LongerSampleOfEndedRead);
    let staging = Staging::of(&[LEN; 2]);
    let (ended, outcomes) = std::sync::mpsc::channel();
    let also_ended = ended.clone();
    let first = Read::new(SampleId(0), staging.target(0), Duration::from_millis(50), move |it| {
        ended.send(it).unwrap();
        READ_ENDED.notify_one();
    });
    let second = Read::new(SampleId(1), staging.target(1), LATER, move |it| {
        also_ended.send(it).unwrap();
    });
    client.read(THEIRS, 7, first);
    client.read(THEIRS, 7, second);
    client.flush();
    let next = || outcomes.recv_timeout(LATER).unwrap();
    assert_eq!(next(), Outcome::Failed(Failure::Timeout));
    assert_eq!(next(), Outcome::Failed(Failure::Protocol));
}

#[test]
fn a_peer_that_ends_in_the_middle_of_a_sample_is_a_failed_read() {
    for sent in [0, 1, 49_999] {
        assert_eq!(outcome_of(Fault::Closes(sent)), Outcome::Failed(Failure::Closed), "{sent}");
    }
}

#[test]
fn a_peer_that_stops_in_the_middle_of_a_sample_is_silent() {
    for sent in [0, 49_999] {
        assert_eq!(outcome_of(Fault::Stops(sent)), Outcome::Failed(Failure::Silent), "{sent}");
    }
}

#[test]
fn a_client_that_closes_in_the_middle_costs_the_server_nothing() {
    let lens = vec![1 << 20; 32];
    let node = super::fixture::Node::holding(&lens);
    network()
        .wait_blocking(async {
            for _ in 0..3 {
                let stream = tokio::net::TcpStream::connect(node.server().address()).await.unwrap();
                let access = Access::private(&SECRET, OURS, 1);
                let mut proved = handshake::connect(stream, &access, THEIRS, 1).await.unwrap();
                let samples = (0..32).map(SampleId).collect();
                let ask = Message::Ask { id: 0, generation: 7, within_ms: 1000, samples };
                proved.channel.send_all(&ask.tagged(&mut proved.sent)).await.unwrap();
                let (mut some, mut received) = ([0; 5000], 0);
                while received < some.len() {
                    proved.channel.readable().await.unwrap();
                    received += proved.channel.receive(&mut some[received..]).unwrap_or(0);
                }
            }
        })
        .unwrap();
    // Every answer is over, and its memory is no longer used.
    node.wait_for(|node| node.sent.load(std::sync::atomic::Ordering::Acquire) == 3);
    node.wait_for(|node| node.server().counts().lost == 3);
}
