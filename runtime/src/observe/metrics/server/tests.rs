use std::{
    io::{Read as _, Write as _},
    os::{fd::AsFd as _, unix::net::UnixStream},
    sync::atomic::{AtomicUsize, Ordering},
};

use nix::poll::{PollFd, PollFlags, poll};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::transport::local_socket::{
    tests as local_socket,
    tests::{Hostile, ON_TIME},
};

struct Served {
    address: SocketAddr,
    token: Token,
    asked: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
    _folder: tempfile::TempDir,
}

/// A server whose loop counts how often it was asked.
async fn served() -> Served {
    let folder = tempfile::tempdir().unwrap();
    let token = Token::generate().unwrap();
    let network = Network { address: "127.0.0.1:0".to_owned(), token: token.clone() };
    let socket = folder.path().join("socket");
    let mut server = Server::start(&socket, Some(network)).await.unwrap();
    let (address, asked) = (server.address().unwrap(), Arc::new(AtomicUsize::new(0)));
    let (counted, mut tasks) = (Arc::clone(&asked), JoinSet::new());
    tasks.spawn(async move {
        while let Some(ask) = server.next().await {
            counted.fetch_add(1, Ordering::Relaxed);
            answer_metrics(ask);
        }
    });
    Served { address, token, asked, _tasks: tasks, _folder: folder }
}

/// Answers with metrics, and with a trace that is longer than what the system buffers.
fn answer_metrics(Request { page, reply }: Request) {
    let text = match page {
        Page::Trace => "x".repeat(8 << 20),
        _ => "metrics".to_owned(),
    };
    drop(reply.send(Box::new(|| text)));
}

impl Served {
    async fn get(&self, header: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("GET /metrics HTTP/1.1\r\nHost: it\r\n{header}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    async fn get_with(&self, token: &Token) -> String {
        self.get(&format!("Authorization: Bearer {}\r\n", token.to_hex())).await
    }
}

#[tokio::test]
async fn the_network_shows_the_token_or_gets_nothing() {
    let served = served().await;
    for answer in [
        served.get("").await,
        served.get("Authorization: Basic xyz\r\n").await,
        served.get_with(&Token::generate().unwrap()).await,
    ] {
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
        assert!(answer.to_ascii_lowercase().contains("www-authenticate: bearer"), "{answer}");
    }
    assert_eq!(served.asked.load(Ordering::Relaxed), 0, "the loop was not asked");
    let answer = served.get_with(&served.token).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn the_loop_is_asked_once_a_second_however_many_ask() {
    let served = Arc::new(served().await);
    let began = Instant::now();
    let mut scrapes = JoinSet::new();
    for _ in 0..12 {
        let served = Arc::clone(&served);
        scrapes.spawn(async move { served.get_with(&served.token).await });
    }
    while let Some(answer) = scrapes.join_next().await {
        assert!(answer.unwrap().starts_with("HTTP/1.1 200 "));
    }
    let seconds = usize::try_from(began.elapsed().as_secs()).unwrap();
    let asked = served.asked.load(Ordering::Relaxed);
    assert!((1..=1 + seconds).contains(&asked), "{asked} times");
}

#[tokio::test]
async fn peers_that_never_read_hold_up_nobody() {
    let served = served().await;
    let mut deaf = Vec::new();
    for _ in 0..2 * CONNECTIONS_MAX {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        // A request that does not end, so that the connection stays.
        stream.write_all(b"GET /metrics HTTP/1.1\r\n").await.unwrap();
        deaf.push(stream);
    }
    let answer = timeout(Duration::from_secs(5), served.get_with(&served.token)).await;
    assert!(answer.unwrap().starts_with("HTTP/1.1 200 "));
}

#[test]
fn peers_that_send_descriptors_hold_up_nobody() {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), local_socket::runtime());
    let path = folder.path().join("socket");
    let mut server = runtime.block_on(Server::start(&path, None)).unwrap();
    runtime.spawn(async move {
        while let Some(ask) = server.next().await {
            answer_metrics(ask);
        }
    });
    let request = b"GET /metrics HTTP/1.1\r\nHost: it\r\n\r\n";
    let hostile: Vec<_> = (0..4).map(|_| Hostile::speak(&path, request)).collect();
    let mut third = UnixStream::connect(&path).unwrap();
    third.set_read_timeout(Some(ON_TIME)).unwrap();
    third.write_all(request).unwrap();
    let mut answer = String::new();
    third.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    drop(hostile);
    runtime.shutdown_background();
}

#[tokio::test]
async fn peers_that_ask_and_never_read_hold_up_nobody_and_are_let_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut server = Server::start(&path, None).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Some(ask) = server.next().await {
            answer_metrics(ask);
        }
    });
    let mut deaf = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
        stream.write_all(b"GET /trace HTTP/1.1\r\nHost: it\r\n\r\n").await.unwrap();
        stream.readable().await.unwrap();
        deaf.push(stream);
    }
    let begun = Instant::now();
    let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: it\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    timeout(ON_TIME, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let last = deaf.pop().unwrap();
    let hung_up = tokio::task::spawn_blocking(move || {
        let patience = u16::try_from((ANSWERED_WITHIN + ON_TIME).as_millis()).unwrap();
        poll(&mut [PollFd::new(last.as_fd(), PollFlags::empty())], patience).unwrap()
    });
    assert_eq!(hung_up.await.unwrap(), 1, "it is let go");
    assert!(begun.elapsed() <= ANSWERED_WITHIN + ON_TIME, "{:?}", begun.elapsed());
}
