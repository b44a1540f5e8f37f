//! Nodes that share what they keep: several agents on one host, each with trainers of its own, which compare
//! every byte.

use std::{collections::BTreeMap, fs};

use serde_json::Value;
use tierfeed_core::order::World;

use crate::{
    apart::Cluster,
    fixture::{EPOCHS, Fixture, Running, assert_ended, eventually, expected_log_of, trainer},
};

pub(crate) const SAMPLES: u32 = 400;

/// A step of the training; with 50 steps an epoch takes longer than nodes need to find each other.
const STEP_US: u32 = 40_000;

struct Nodes {
    cluster: Cluster,
    agents: Vec<Running>,
}

/// A job of `nodes` nodes of one rank each, whose caches hold a fifth of the dataset each.
pub(crate) fn job_of(nodes: u32, policy: &str) -> Fixture {
    let fixture = Fixture::new();
    for number in 100..SAMPLES {
        let class = fixture.path("data").join(format!("class{}", number % 4));
        let len = 5_000 + (u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 55_000;
        let bytes: Vec<u8> = (0..len).map(|at| (at * u64::from(number)).to_le_bytes()[0]).collect();
        fs::write(class.join(format!("{number:03}.jpg")), bytes).unwrap();
    }
    fixture.write_job(&format!("policy: {policy}\nprefetch: {{ look_ahead: off }}\n"));
    let text = fs::read_to_string(fixture.job()).unwrap();
    let text = text
        .replace("nodes: 1, ranks_per_node: 2", &format!("nodes: {nodes}, ranks_per_node: 1"))
        .replace("main-memory: { size: 3 MiB }", "main-memory: { size: 1 MiB }")
        .replace("bandwidth: 60 MB/s", "bandwidth: 15 MB/s")
        .replace("size: 1280 KiB,", "size: 2 MiB,");
    let lines: Vec<_> = text.lines().filter(|line| !line.contains("scratch:")).collect();
    fs::write(fixture.job(), lines.join("\n")).unwrap();
    fixture
}

fn nodes(nodes: u32, policy: &str) -> Nodes {
    let cluster = Cluster::of(job_of(nodes, policy), Vec::new());
    let agents = (0..nodes).map(|node| agent(&cluster, node)).collect();
    let nodes = Nodes { cluster, agents };
    eventually("all agents join", || {
        nodes.cluster.status()["joined"].as_array().unwrap().len() == nodes.agents.len()
    });
    nodes
}

fn agent(cluster: &Cluster, node: u32) -> Running {
    let mut agent = cluster.fixture.tierfeed(&["agent", "--manager", cluster.address()]);
    agent.args(["--token-file", "manager/token", "--node", &node.to_string()]);
    Running::start(agent.args(["--run-dir", &format!("run{node}")]))
}

impl Nodes {
    /// A trainer of each rank, in step with the others.
    fn trainers(&self) -> Vec<Running> {
        let fixture = &self.cluster.fixture;
        let start = |node: usize| {
            let mut exec = fixture.tierfeed(&["exec", "--run-dir", &format!("run{node}"), "--"]);
            exec.arg(trainer()).arg(fixture.path("log")).arg(STEP_US.to_string()).arg("lock-step");
            Running::start(exec.env("TIERFEED_RANK", node.to_string()))
        };
        (0..self.agents.len()).map(start).collect()
    }

    /// Ends the job; returns the reports of the nodes that are still there.
    fn reports(&mut self) -> Vec<Value> {
        let fixture = &self.cluster.fixture;
        let mut drain = fixture.tierfeed(&["drain", "--run-dir", "manager"]);
        assert_ended(&drain.output().unwrap(), 0);
        let report = |(node, agent): (usize, &mut Running)| {
            agent.ends_with(0);
            let report = fs::read(fixture.path(&format!("run{node}/report.json"))).unwrap();
            serde_json::from_slice(&report).unwrap()
        };
        self.agents.iter_mut().enumerate().map(report).collect()
    }

    fn assert_links_are_shown(&self, count: u32) {
        let peers_of = |node: &Value| node["peers"].as_array().unwrap().clone();
        let read = |link: &Value| link["received_bytes"].as_u64().unwrap();
        let mut status = Value::Null;
        eventually("each node has told of each other", || {
            status = self.cluster.status();
            let nodes = status["joined"].as_array().unwrap();
            let mut links = nodes.iter().map(peers_of);
            links.all(|links| {
                links.len() + 1 == count as usize && links.iter().all(|it| read(it) > 0)
            })
        });
        let links: Vec<Value> =
            status["joined"].as_array().unwrap().iter().flat_map(peers_of).collect();
        assert!(links.iter().all(|link| link["standing"] == "asked"), "{links:#?}");
        let text = self.cluster.fixture.tierfeed(&["status", "--run-dir", "manager"]).output();
        let text = String::from_utf8(text.unwrap().stdout).unwrap();
        let is_link = |line: &&str| {
            line.starts_with("  node ") && line.contains(" read ") && line.contains(", sent ")
        };
        let shown = text.lines().filter(is_link).count();
        assert_eq!(shown, (count * (count - 1)) as usize, "{text}");
    }

    /// Checks that the nodes read what the simulation of all of them says: to a 50th of the dataset, for what
    /// nodes ask each other too early or in vain.
    fn assert_as_simulated(&self, reports: &[Value], dataset: u64) {
        let fixture = &self.cluster.fixture;
        let job = fixture.job().to_str().unwrap().to_owned();
        let mut plan = fixture.tierfeed(&["plan", &job, "--simulate", "--whole-job", "--json"]);
        let plan: Value = serde_json::from_slice(&plan.output().unwrap().stdout).unwrap();
        for (epoch, simulated) in plan["epochs"].as_array().unwrap().iter().enumerate() {
            for key in ["cold_read_bytes", "peer_read_bytes"] {
                let (read, said) =
                    (sum(reports, in_epoch(epoch, key)), simulated[key].as_u64().unwrap());
                assert!(
                    read.abs_diff(said) * 50 <= dataset,
                    "{key} in epoch {epoch}: {read}, simulated {said}, of {dataset}: {reports:#?}"
                );
            }
        }
    }

    fn dataset(&self) -> u64 {
        let classes = fs::read_dir(self.cluster.fixture.path("data")).unwrap();
        let files = classes.flat_map(|class| fs::read_dir(class.unwrap().path()).unwrap());
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
    }

    fn assert_complete(&self) {
        let nodes = u32::try_from(self.agents.len()).unwrap();
        let expected = expected_log_of(SAMPLES, World { nodes, ranks_per_node: 1 });
        let log = self.cluster.fixture.log();
        let read: BTreeMap<_, _> = log.into_iter().map(|(key, it)| (key, it.samples)).collect();
        assert_eq!(read, expected);
    }
}

fn sum(reports: &[Value], of: impl Fn(&Value) -> u64) -> u64 {
    reports.iter().map(of).sum()
}

fn in_epoch(epoch: usize, key: &'static str) -> impl Fn(&Value) -> u64 {
    move |report| report["epochs"][epoch][key].as_u64().unwrap()
}

#[test]
fn nodes_together_read_cold_only_what_does_not_fit_into_all_of_them() {
    for (count, policy) in [(2, "partitioned"), (3, "partitioned\nnetwork: private")] {
        let mut nodes = nodes(count, policy);
        let mut trainers = nodes.trainers();
        trainers.iter_mut().for_each(|trainer| trainer.ends_with(0));
        let dataset = nodes.dataset();
        nodes.assert_complete();
        nodes.assert_links_are_shown(count);
        let reports = nodes.reports();
        let caches = sum(&reports, |report| {
            let tiers = report["tiers"].as_array().unwrap();
            tiers.iter().map(|tier| tier["cache_bytes"].as_u64().unwrap()).sum()
        });
        assert!(caches * 100 >= dataset * 20 * u64::from(count) / 2, "{caches} of {dataset}");
        for epoch in 1..EPOCHS as usize {
            let cold = sum(&reports, in_epoch(epoch, "cold_read_bytes"));
            let least = dataset.saturating_sub(caches);
            // A cache does not end with a sample.
            let end = 60_000 * u64::from(count);
            assert!(
                cold * 100 <= least * 103 + end * 100,
                "{count} nodes, epoch {epoch}: {cold} cold, {least} at least: {reports:#?}"
            );
            let received = sum(&reports, in_epoch(epoch, "peer_read_bytes"));
            assert!(received > 0, "{reports:#?}");
        }
        nodes.assert_as_simulated(&reports, dataset);
        let total = |key: &'static str| sum(&reports, |report| report[key].as_u64().unwrap());
        assert_eq!(total("self_read_batches"), 0);
        let links = |key: &'static str| {
            sum(&reports, |report| {
                let links = report["peers"].as_array().unwrap().iter();
                links.map(|link| link[key].as_u64().unwrap()).sum()
            })
        };
        assert_eq!(links("received_bytes"), total("peer_read_bytes"));
        assert!(links("sent_bytes") >= links("received_bytes"), "{reports:#?}");
    }
}

#[test]
fn a_node_that_is_killed_costs_its_share_and_no_batch() {
    let mut nodes = nodes(3, "partitioned");
    let mut trainers = nodes.trainers();
    eventually("the second epoch", || nodes.cluster.fixture.lines() >= 3 * 24);
    nodes.agents[1].kill();
    trainers.iter_mut().for_each(|trainer| trainer.ends_with(0));
    nodes.assert_complete();
    drop(nodes.agents.remove(1));
    let fixture = &nodes.cluster.fixture;
    let mut drain = fixture.tierfeed(&["drain", "--run-dir", "manager"]);
    assert_ended(&drain.output().unwrap(), 0);
    for (node, agent) in [0, 2].into_iter().zip(&mut nodes.agents) {
        agent.ends_with(0);
        let report = fs::read(fixture.path(&format!("run{node}/report.json"))).unwrap();
        let report: Value = serde_json::from_slice(&report).unwrap();
        assert_eq!(report["self_read_batches"], 0, "its own trainer lost nothing");
        assert!(report["peer_read_bytes"].as_u64().unwrap() > 0, "{report:#}");
    }
}

#[test]
fn a_manager_that_is_restarted_knows_who_holds_what_and_costs_no_node_its_peers() {
    let mut nodes = nodes(3, "partitioned");
    let mut trainers = nodes.trainers();
    eventually("the second epoch", || nodes.cluster.fixture.lines() >= 3 * 24);
    let kept = nodes.cluster.fixture.path("manager/memberships.json");
    let before = fs::read(&kept).unwrap();
    nodes.cluster.restart_manager();
    eventually("all agents join again", || {
        nodes.cluster.status()["joined"].as_array().unwrap().len() == nodes.agents.len()
    });
    trainers.iter_mut().for_each(|trainer| trainer.ends_with(0));
    nodes.assert_complete();
    assert_eq!(fs::read(&kept).unwrap(), before, "nothing has changed for nodes that go on");
    let reports = nodes.reports();
    assert!(reports.iter().all(|report| report["self_read_batches"] == 0));
    for agent in &mut nodes.agents {
        let log = agent.errors();
        assert!(log.contains("registered with the manager again"), "{log}");
        assert!(!log.contains("a node is gone"), "{log}");
    }
}
