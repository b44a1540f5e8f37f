//! Strangers who come to every open port of a job while it runs: they learn nothing, and harm nothing.
//!
//! Two real nodes share what they hold. A third has the token and reports an address, at which others answer
//! than it should: strangers, and a process that has the secret and sends wrong bytes.

mod crowd;
mod false_peer;
mod impostor;
mod relay;

use std::{
    collections::BTreeSet,
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    process::Command,
};

use serde_json::Value;
use tierfeed_core::{id::NodeId, order::World};
use tierfeed_prefetcher::peers::{Access, Failure, Outcome};

use crate::{
    apart::{Cluster, end_well},
    fixture::{Fixture, Running, assert_ended, digest, eventually, expected_log_of, trainer},
    memory::Held,
    peers::{SAMPLES, job_of},
};
use crowd::{Crowd, IDLE};
use false_peer::FalsePeer;
use impostor::Impostor;
use relay::Relay;

const NODES: u32 = 3;

const REAL: u32 = 2;

/// A step of the training: all of it takes long enough for every stranger.
const STEP_US: u32 = 100_000;

/// Buffers and tasks of connections that have not proved themselves; a buffer of 256 KiB each would take more.
const GROWTH_MAX: u64 = 32 << 20;

/// Descriptors of such connections, and of those of a job of three nodes.
const DESCRIPTORS_MAX: usize = 256 + 64;

struct Job {
    cluster: Cluster,
    agents: Vec<Running>,
    /// Between the second node and its manager.
    relay: Relay,
    access: fn(&[u8; 32], NodeId, u64) -> Access,
}

fn start(network: &str, access: fn(&[u8; 32], NodeId, u64) -> Access) -> Job {
    let policy = format!("partitioned\nnetwork: {network}");
    let cluster = Cluster::of(job_of(NODES, &policy), Vec::new());
    let relay = Relay::to(cluster.address().parse().unwrap());
    let manager_of = [cluster.address().to_owned(), relay.address().to_string()];
    let agents = (0..REAL).zip(&manager_of).map(|(node, manager)| {
        let mut agent = cluster.fixture.tierfeed(&["agent", "--manager", manager]);
        agent.args(["--token-file", "manager/token", "--node", &node.to_string()]);
        Running::start(agent.args(["--run-dir", &format!("run{node}")]))
    });
    let agents: Vec<_> = agents.collect();
    eventually("the real nodes join", || {
        cluster.status()["joined"].as_array().unwrap().len() == agents.len()
    });
    Job { cluster, agents, relay, access }
}

impl Job {
    fn trainers(&self) -> Vec<Running> {
        let fixture = &self.cluster.fixture;
        let start = |node: u32| {
            let mut exec = fixture.tierfeed(&["exec", "--run-dir", &format!("run{node}"), "--"]);
            exec.arg(trainer()).arg(fixture.path("log")).arg(STEP_US.to_string());
            Running::start(exec.env("TIERFEED_RANK", node.to_string()))
        };
        (0..REAL).map(start).collect()
    }

    fn processes(&self) -> Vec<u32> {
        self.agents.iter().chain([&self.cluster.manager]).map(Running::pid).collect()
    }

    fn token(&self) -> String {
        fs::read_to_string(self.cluster.fixture.path("manager/token")).unwrap().trim().to_owned()
    }

    /// The agent behind the relay loses its manager to one of another job, which cannot prove the token.
    fn meet_a_false_manager(&mut self) {
        let fixture = &self.cluster.fixture;
        let arguments = ["manager", "job.yaml", "--listen", "127.0.0.1:0", "--run-dir", "false"];
        let _other = Running::start(&mut fixture.tierfeed(&arguments));
        let file = fixture.path("false/manager.address");
        let mut address = String::new();
        eventually("the false manager listens", || {
            fs::read_to_string(&file).unwrap_or_default().trim().clone_into(&mut address);
            !address.is_empty()
        });
        self.relay.turn_to(address.parse().unwrap());
        let agent = &mut self.agents[1];
        eventually("the agent is not taken in", || agent.errors().contains("cannot prove"));
        self.relay.turn_to(self.cluster.address().parse().unwrap());
        eventually("it finds its own", || agent.errors().contains("the manager is back"));
    }

    fn assert_within_bounds(&self, before: &[Held]) {
        for (pid, before) in self.processes().into_iter().zip(before) {
            let now = Held::by(pid);
            assert!(now.resident <= before.resident + GROWTH_MAX, "{before:?}, {now:?}");
            // A connection that gives way to a later one is closed a moment afterwards.
            eventually("the oldest strangers are turned away", || {
                Held::by(pid).descriptors <= before.descriptors + DESCRIPTORS_MAX
            });
        }
    }

    /// Checks what the trainers were given, and what the reports of the nodes say.
    fn assert_unharmed(&mut self) {
        let fixture = &self.cluster.fixture;
        let log = fixture.log();
        let mut expected = expected_log_of(SAMPLES, World { nodes: NODES, ranks_per_node: 1 });
        expected.retain(|(rank, _, _), _| *rank < REAL);
        let read = log.iter().map(|(key, batch)| (*key, batch.samples.clone()));
        assert_eq!(read.collect::<std::collections::BTreeMap<_, _>>(), expected);
        assert!(log.values().all(|batch| batch.source == "agent"), "no trainer read alone");
        for (node, agent) in (0..).zip(&mut self.agents) {
            agent.ends_with(0);
            let report = report_of(fixture, node);
            let own = log.iter().filter(|((rank, _, _), _)| *rank == node);
            let own = own.map(|(key, batch)| (*key, batch.clone())).collect();
            assert_eq!(report["order_digest"], digest(&own), "node {node}");
            let link = |peer: u32| {
                let mut links = report["peers"].as_array().unwrap().iter();
                links.find(|link| link["node"] == peer).unwrap()
            };
            let (other, impostor) = (link(1 - node), link(REAL));
            assert!(other["received_bytes"].as_u64() > Some(0), "{report:#}");
            assert_eq!(impostor["received_bytes"], 0, "{report:#}");
            assert!(impostor["failures"].as_u64() > Some(0), "{report:#}");
        }
    }
}

fn report_of(fixture: &Fixture, node: u32) -> Value {
    let text = fs::read(fixture.path(&format!("run{node}/report.json"))).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn ports_of(pid: u32) -> BTreeSet<u16> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let targets = descriptors.filter_map(|it| fs::read_link(it.path()).ok());
    let own: BTreeSet<String> = targets.map(|it| it.to_string_lossy().into_owned()).collect();
    let tables = ["tcp", "tcp6"].map(|name| fs::read_to_string(format!("/proc/{pid}/net/{name}")));
    let tables: Vec<String> = tables.into_iter().flatten().collect();
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    let port = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_listening = fields[3] == "0A" && own.contains(&format!("socket:[{}]", fields[9]));
        let (_, port) = fields[1].rsplit_once(':').filter(|_| is_listening)?;
        u16::from_str_radix(port, 16).ok()
    };
    lines.filter_map(port).collect()
}

#[test]
fn strangers_learn_and_harm_nothing_where_bytes_are_encrypted() {
    strangers_learn_and_harm_nothing("open", Access::encrypted);
}

#[test]
fn strangers_learn_and_harm_nothing_in_a_network_that_is_called_private() {
    strangers_learn_and_harm_nothing("private", Access::private);
}

fn strangers_learn_and_harm_nothing(network: &str, access: fn(&[u8; 32], NodeId, u64) -> Access) {
    crowd::raise_limit();
    let mut job = start(network, access);
    let false_peer = FalsePeer::start(&job.cluster.fixture);
    let impostor = Impostor::join(job.cluster.address(), &job.token(), false_peer.address());
    false_peer.answer_with(&impostor.secret, job.access);
    let trainers = job.trainers();
    eventually("batches arrive", || job.cluster.fixture.lines() >= 4);

    let ports: Vec<SocketAddr> = job
        .processes()
        .into_iter()
        .map(|pid| match Vec::from_iter(ports_of(pid)).as_slice() {
            [port] => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), *port),
            other => panic!("process {pid} listens at {other:?}, not at one port"),
        })
        .collect();
    let before: Vec<Held> = job.processes().into_iter().map(Held::by).collect();

    let idle = Crowd::of(&ports);
    job.assert_within_bounds(&before);
    let mut heard = crowd::speak_without_token(&ports);
    // What a node says that belongs to the job is heard on the way, and repeated.
    let agents = &ports[..REAL as usize];
    for (node, port) in (0..).map(NodeId).zip(agents) {
        let relay = Relay::to(*port);
        let ask = |secret: &[u8; 32]| impostor.ask(node, relay.address(), secret, job.access);
        assert_eq!(ask(&impostor.secret), Outcome::Absent, "it is answered");
        heard.push(crowd::repeat(&relay.heard_of_clients(), *port));
        assert_eq!(ask(&[9; 32]), Outcome::Failed(Failure::Stranger));
    }
    heard.push(crowd::repeat(&job.relay.heard_of_clients(), ports[REAL as usize]));
    let wrong = job.cluster.fixture.path("wrong");
    fs::write(&wrong, "0".repeat(64)).unwrap();
    assert!(Command::new("chmod").arg("600").arg(&wrong).status().unwrap().success());
    let manager = job.cluster.address();
    let mut status = job.cluster.fixture.tierfeed(&["status", "--manager", manager]);
    assert_ended(&status.args(["--token-file", "wrong"]).output().unwrap(), 2);
    job.meet_a_false_manager();
    eventually("the false peer was met in all its forms", || false_peer.was_met());

    job.assert_within_bounds(&before);
    end_well(trainers);
    assert_eq!(idle.len(), ports.len() * IDLE, "they stayed to the end");
    let token = job.token();
    impostor.leave();
    let mut drain = job.cluster.fixture.tierfeed(&["drain", "--run-dir", "manager"]);
    assert_ended(&drain.output().unwrap(), 0);
    job.assert_unharmed();
    job.cluster.manager.ends_with(0);
    assert_eq!(false_peer.asked_without_secret(), 0, "a stranger was asked for samples");
    heard.extend(idle.heard());
    heard.extend(false_peer.heard());
    let secrets = [token.as_bytes(), b"shuffle", b"PRI * HTTP/2.0"];
    crowd::assert_nothing_is_in(&heard, &job.cluster.fixture, &secrets);
}
