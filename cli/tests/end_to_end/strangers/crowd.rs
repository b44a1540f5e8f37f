//! Processes without a token that connect to a port.

use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::fixture::Fixture;

pub(super) const IDLE: usize = 2_000;

/// What is heard within this time is all: a port that goes on listening has nothing to say.
const PATIENCE: Duration = Duration::from_millis(300);

/// No sample of the dataset is shorter.
const SAMPLE_BYTES_MIN: usize = 5_000;

/// The number of first bytes by which a sample is recognised.
const START_BYTES: usize = 16;

/// This process holds both ends of thousands of connections.
pub(super) fn raise_limit() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
}

pub(super) struct Crowd(Vec<TcpStream>);

impl Crowd {
    pub(super) fn of(ports: &[SocketAddr]) -> Self {
        let each = ports.iter().flat_map(|port| [port; IDLE]);
        Self(each.map(|port| TcpStream::connect(port).unwrap()).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn heard(self) -> Vec<Vec<u8>> {
        self.0.into_iter().map(listen).collect()
    }
}

/// The answers of each port to messages without a token.
pub(super) fn speak_without_token(ports: &[SocketAddr]) -> Vec<Vec<u8>> {
    // A request of a node for sample 0 (`prefetcher/src/peers/message.rs`), whose tag is zeros.
    let mut request = vec![6, 0, 0, 0, 4, 0, 0, 100, 1, 0];
    request.resize(request.len() + 16, 0);
    let messages: [&[u8]; 4] = [
        b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        &request,
        &[0xa5; 4096],
    ];
    let each = ports.iter().flat_map(|port| messages.map(|message| (message, *port)));
    thread::scope(|scope| {
        let spoken: Vec<_> =
            each.map(|(message, port)| scope.spawn(move || repeat(message, port))).collect();
        spoken.into_iter().map(|it| it.join().unwrap()).collect()
    })
}

pub(super) fn repeat(bytes: &[u8], port: SocketAddr) -> Vec<u8> {
    let mut stream = TcpStream::connect(port).unwrap();
    assert!(!bytes.is_empty());
    // It may be closed before it has taken all of them.
    let _ = stream.write_all(bytes);
    listen(stream)
}

fn listen(mut stream: TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // As one that ends.
    let _ = stream.shutdown(Shutdown::Write);
    let mut heard = Vec::new();
    let _ = stream.read_to_end(&mut heard);
    heard
}

/// Checks that no part of what was heard is a sample, or one of `secrets`.
pub(super) fn assert_nothing_is_in(heard: &[Vec<u8>], fixture: &Fixture, secrets: &[&[u8]]) {
    let classes = fs::read_dir(fixture.path("data")).unwrap().flatten();
    let files = classes.flat_map(|class| fs::read_dir(class.path()).unwrap().flatten());
    let start = |path| fs::read(path).unwrap()[..START_BYTES].to_vec();
    let starts: BTreeSet<Vec<u8>> = files.map(|file| start(file.path())).collect();
    assert!(heard.iter().any(|it| !it.is_empty()), "ports answer strangers with a refusal");
    for heard in heard {
        assert!(heard.len() < SAMPLE_BYTES_MIN, "{} bytes were heard", heard.len());
        assert!(!heard.windows(START_BYTES).any(|part| starts.contains(part)), "{heard:?}");
        for secret in secrets {
            assert!(!heard.windows(secret.len()).any(|part| part == *secret), "{heard:?}");
        }
    }
}
