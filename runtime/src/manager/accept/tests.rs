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
    /// So many connections at a time.
    fn in_at_most(connections_max: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let door = Arc::new(Door::unix(&folder.path().join("socket")).unwrap());
        let (server, accepted) = mpsc::channel(4);
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(door, connections_max, server));
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

/// Waits until the other end closed the connection.
async fn closed(stream: &mut UnixStream) {
    // With words unread it ends as a reset.
    let end = stream.read(&mut [0]).await;
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
}

#[tokio::test]
async fn there_are_only_so_many_connections_and_one_that_ends_makes_room() {
    let mut door = Let::in_at_most(2);
    let _peers = [door.speak().await, door.speak().await];
    let (first, second) = (door.next().await, door.next().await);
    let mut third = door.speak().await;
    timeout(ON_TIME, closed(&mut third)).await.unwrap();
    assert!(door.accepted.try_recv().is_err(), "the server does not hear of it");
    drop(first);
    let _fourth = door.speak().await;
    door.next().await;
    drop(second);
}

#[tokio::test]
async fn who_says_nothing_is_closed_in_time() {
    let mut door = Let::in_at_most(2);
    let begun = Instant::now();
    let mut silent = door.connect().await;
    timeout(HANDSHAKE_WITHIN + ON_TIME, closed(&mut silent)).await.unwrap();
    assert!(begun.elapsed() >= HANDSHAKE_WITHIN, "{:?}", begun.elapsed());
    assert!(door.accepted.try_recv().is_err(), "the server does not hear of it");
}
