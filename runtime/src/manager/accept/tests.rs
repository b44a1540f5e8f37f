use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    task::JoinSet,
};

use super::*;
use crate::transport::local_socket::tests::ON_TIME;

struct Let {
    folder: TempDir,
    accepted: mpsc::Receiver<Result<Accepted, Infallible>>,
    _accepting: JoinSet<()>,
}

impl Let {
    fn in_at_most(connections_max: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = Arc::new(Listener::unix(&folder.path().join("socket")).unwrap());
        let (server, accepted) = mpsc::channel(4);
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, connections_max, server));
        Self { folder, accepted, _accepting: accepting }
    }

    async fn connect(&self) -> UnixStream {
        UnixStream::connect(self.folder.path().join("socket")).await.unwrap()
    }

    async fn speak(&self) -> UnixStream {
        let mut stream = self.connect().await;
        stream.write_all(b"words").await.unwrap();
        stream
    }

    async fn next(&mut self) -> Accepted {
        let Ok(accepted) = timeout(ON_TIME, self.accepted.recv()).await.unwrap().unwrap();
        accepted
    }
}

async fn closed(stream: &mut UnixStream) {
    // With unread bytes it ends as a reset.
    let end = stream.read(&mut [0]).await;
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
}

#[tokio::test]
async fn there_are_only_so_many_connections_and_one_that_ends_makes_room() {
    let mut listener = Let::in_at_most(2);
    let _peers = [listener.speak().await, listener.speak().await];
    let (first, second) = (listener.next().await, listener.next().await);
    let mut third = listener.speak().await;
    timeout(ON_TIME, closed(&mut third)).await.unwrap();
    assert!(listener.accepted.try_recv().is_err(), "the server does not hear of it");
    drop(first);
    let _fourth = listener.speak().await;
    listener.next().await;
    drop(second);
}

#[tokio::test]
async fn who_says_nothing_is_closed_in_time() {
    let mut listener = Let::in_at_most(2);
    let begun = Instant::now();
    let mut silent = listener.connect().await;
    timeout(HANDSHAKE_WITHIN + ON_TIME, closed(&mut silent)).await.unwrap();
    assert!(begun.elapsed() >= HANDSHAKE_WITHIN, "{:?}", begun.elapsed());
    assert!(listener.accepted.try_recv().is_err(), "the server does not hear of it");
}
