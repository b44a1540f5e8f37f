use std::{
    io::{ErrorKind, IoSlice, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::fd::OwnedFd,
    os::unix::net,
    thread::{self, JoinHandle},
    time::Duration,
};

use nix::{
    libc,
    sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg, setsockopt, sockopt},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    runtime::{Builder, Runtime},
};

use super::*;

/// Far longer than an answer takes, and far shorter than the hostile descriptors block.
pub(crate) const ON_TIME: Duration = Duration::from_secs(5);

/// As many threads as the runtime of a process of tierfeed has.
pub(crate) fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A TCP socket whose last `close` blocks for a minute, or until its peer is dropped.
fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    loop {
        match socket.write(&[0; 16 * 1024]) {
            Ok(_) => (),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    setsockopt(&socket, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 60 }).unwrap();
    (socket.into(), peer)
}

/// A peer that sends a descriptor whose `close` blocks, and the socket that makes it block.
pub(crate) struct Hostile {
    _stream: net::UnixStream,
    _keeps_waiting: TcpStream,
    /// `Some` if the kernel refused to send it. It is closed once its `close` does not block any more.
    _socket: Option<OwnedFd>,
    /// Closes the copy of this side if the kernel sent it: the close of the last copy blocks.
    closing: Option<JoinHandle<()>>,
    pub(crate) sent: nix::Result<usize>,
}

impl Hostile {
    /// Sends `bytes` to the socket file `path`, with such a descriptor if the kernel permits it.
    pub(crate) fn speak(path: &Path, bytes: &[u8]) -> Self {
        use std::os::fd::AsRawFd as _;
        let mut stream = net::UnixStream::connect(path).unwrap();
        let (socket, keeps_waiting) = lingering();
        let rights = [socket.as_raw_fd()];
        let control = [ControlMessage::ScmRights(&rights)];
        let (fd, bytes_sent) = (stream.as_raw_fd(), [IoSlice::new(bytes)]);
        let sent = sendmsg::<UnixAddr>(fd, &bytes_sent, &control, MsgFlags::empty(), None);
        let (socket, closing) = if sent.is_err() {
            stream.write_all(bytes).unwrap();
            (Some(socket), None)
        } else {
            (None, Some(thread::spawn(|| drop(socket))))
        };
        Self { _stream: stream, _keeps_waiting: keeps_waiting, _socket: socket, closing, sent }
    }

    /// Waits until the receiving socket has the only copy. It must not have been read yet.
    fn gone(mut self) -> Self {
        self.closing.take().into_iter().for_each(|closing| closing.join().unwrap());
        self
    }
}

fn kernel() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|it: char| !it.is_ascii_digit()).map(|it| it.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

fn echo(runtime: &Runtime, listener: LocalListener) {
    runtime.spawn(async move {
        while let Ok(mut stream) = listener.accept().await {
            tokio::spawn(async move {
                let mut bytes = [0; 4096];
                while let Ok(len @ 1..) = stream.read(&mut bytes).await {
                    stream.write_all(&bytes[..len]).await.unwrap();
                }
            });
        }
    });
}

fn listen(runtime: &Runtime, path: &Path, wanted: Descriptors) -> LocalListener {
    let _guard = runtime.enter();
    match wanted {
        Descriptors::Refused => LocalListener::bind(path).unwrap(),
        Descriptors::Possible => {
            let socket = UnixSocket::new_stream().unwrap();
            let socket = LocalSocket::with(socket, path, Descriptors::Possible).unwrap();
            socket.into_listener().unwrap()
        }
    }
}

fn check_third_is_heard(path: &Path) {
    let mut third = net::UnixStream::connect(path).unwrap();
    third.set_read_timeout(Some(ON_TIME)).unwrap();
    third.write_all(b"third").unwrap();
    let mut answer = [0; 5];
    third.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"third");
}

#[test]
fn peers_with_descriptors_that_wait_when_they_are_closed_hold_up_no_other() {
    for wanted in [Descriptors::Refused, Descriptors::Possible] {
        let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
        let path = folder.path().join("socket");
        let listener = listen(&runtime, &path, wanted);
        // More than there are threads.
        let hostile: Vec<_> = (0..4).map(|_| Hostile::speak(&path, b"hostile").gone()).collect();
        echo(&runtime, listener);
        check_third_is_heard(&path);
        drop(hostile);
        check_third_is_heard(&path);
        runtime.shutdown_background();
    }
}

#[test]
fn the_kernel_refuses_descriptors_at_the_sender_where_it_can() {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
    let path = folder.path().join("socket");
    echo(&runtime, listen(&runtime, &path, Descriptors::Refused));
    let refused = if kernel() >= (6, 16) { Err(nix::errno::Errno::EPERM) } else { Ok(5) };
    assert_eq!(Hostile::speak(&path, b"words").sent, refused);
}

#[test]
fn bytes_come_whole_where_each_read_looks_first() {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
    let path = folder.path().join("socket");
    echo(&runtime, listen(&runtime, &path, Descriptors::Possible));
    let bytes: Vec<u8> = (0..1_000_003_u32).map(|at| (at % 251).to_le_bytes()[0]).collect();
    let mut stream = net::UnixStream::connect(&path).unwrap();
    let mut reader = stream.try_clone().unwrap();
    let len = bytes.len();
    let answer = thread::spawn(move || {
        let mut answer = vec![0; len];
        reader.read_exact(&mut answer).unwrap();
        answer
    });
    stream.write_all(&bytes).unwrap();
    assert!(answer.join().unwrap() == bytes);
}

#[tokio::test]
async fn the_file_of_a_socket_is_its_owners_and_replaces_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    for _ in 0..2 {
        let _listener = LocalListener::bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(net::UnixStream::connect(&path).unwrap());
    }
}

#[test]
fn a_peer_is_heard_that_came_before_the_runtime() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let socket = LocalSocket::bind(&path).unwrap();
    let mut early = net::UnixStream::connect(&path).unwrap();
    early.set_read_timeout(Some(ON_TIME)).unwrap();
    early.write_all(b"early").unwrap();
    let runtime = runtime();
    let inside = runtime.enter();
    let listener = socket.into_listener().unwrap();
    drop(inside);
    echo(&runtime, listener);
    let mut answer = [0; 5];
    early.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"early");
    runtime.shutdown_background();
}
