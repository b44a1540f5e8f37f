use tierfeed_core::{
    fleet::{Direction, Progress, Registration},
    order::{Position, Shuffle, Spec, World},
    policy,
    units::Bytes,
};

use super::*;
use crate::client::{Address, Client};

fn settings(begun: PathBuf) -> Settings {
    let order = Spec {
        samples: 100,
        shuffle: Shuffle::Sequential,
        seed: 0,
        epochs: 1,
        drop_last: false,
        batch_size: 10,
        world: World { nodes: 1, ranks_per_node: 1 },
        start: Position::START,
    };
    Settings {
        job: JobText {
            name: "job".into(),
            text: String::new(),
            file: "/job.yaml".into(),
            index_fingerprint: 0,
        },
        fleet: fleet::Settings {
            order,
            policy: policy::Kind::Gap,
            staged_batches: 2,
            chunk: Bytes::mib(1),
            lost_after: Nanoseconds(u64::MAX),
        },
        begun,
    }
}

fn left(host: u64) -> Available {
    let (cgroup, pressure, load) = (None, None, None);
    let (nodes_free, disks) = (Vec::new(), Vec::new());
    Available { host: Bytes(host), cgroup, nodes_free, pressure, load, disks }
}

/// What `status` shows of the only node.
async fn shown(client: &mut Client) -> Option<u64> {
    let status = client.status().await.unwrap();
    status.joined[0].available.as_ref().map(|available| available.host_bytes)
}

#[tokio::test]
async fn status_shows_what_the_node_told_last_and_nothing_of_a_process_that_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let (_trigger, shutdown) = shutdown::channel();
    let begun = directory.path().join("begun");
    let manager = Manager::start(settings(begun), Door::unix(&socket).unwrap(), shutdown);
    let manager = tokio::spawn(manager.run());
    let mut client = Client::connect(&Address::Unix(socket), None).await.unwrap();
    let (node, progress) = (NodeId(0), Progress::default());
    let agent = |incarnation| Registration { node: None, home: 1, incarnation, tiers: Vec::new() };

    client.register(&agent(1)).await.unwrap();
    assert_eq!(shown(&mut client).await, None, "it told nothing yet");
    for host in [70, 50] {
        client.report(node, 1, &progress, Some(&left(host))).await.unwrap();
        assert_eq!(shown(&mut client).await, Some(host));
    }
    client.report(node, 1, &progress, None).await.unwrap();
    assert_eq!(shown(&mut client).await, Some(50), "a report without it changes nothing");

    client.register(&agent(2)).await.unwrap();
    assert_eq!(shown(&mut client).await, None, "another process told that");
    let direction = client.report(node, 1, &progress, Some(&left(9))).await.unwrap();
    assert_eq!((direction, shown(&mut client).await), (Direction::Superseded, None));
    client.report(node, 2, &progress, Some(&left(40))).await.unwrap();
    client.drained(node, 1, &progress).await.unwrap();
    assert_eq!(shown(&mut client).await, Some(40), "the first process ends nothing any more");
    client.drained(node, 2, &progress).await.unwrap();
    assert_eq!(shown(&mut client).await, None, "it ended");
    client.drain().await.unwrap();
    manager.await.unwrap().unwrap();
}

/// The job is noted from its first node on, and until somebody says that it is over.
#[tokio::test]
async fn a_job_has_begun_when_a_node_joined_and_ended_when_it_is_drained() {
    let directory = tempfile::tempdir().unwrap();
    let (socket, begun) = (directory.path().join("socket"), directory.path().join("begun"));
    let noted = || Begun::index_of(&begun, "");
    let agent = |incarnation| Registration { node: None, home: 1, incarnation, tiers: Vec::new() };
    for (life, is_drained) in [(1, false), (2, true)] {
        let (trigger, shutdown) = shutdown::channel();
        let door = Door::unix(&socket).unwrap();
        let manager = tokio::spawn(Manager::start(settings(begun.clone()), door, shutdown).run());
        let mut client = Client::connect(&Address::Unix(socket.clone()), None).await.unwrap();
        client.status().await.unwrap();
        assert_eq!(noted(), (life == 2).then_some(0), "only a node makes a beginning");
        client.register(&agent(life)).await.unwrap();
        assert_eq!(noted(), Some(0));
        if is_drained {
            client.drain().await.unwrap();
        } else {
            trigger.pull();
        }
        client.drained(NodeId(0), life, &Progress::default()).await.unwrap();
        manager.await.unwrap().unwrap();
        assert_eq!(noted(), (!is_drained).then_some(0), "a manager that is stopped may come back");
    }
}
