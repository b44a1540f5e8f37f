//! Manager, agent and trainers as processes of their own, on TCP loopback, and what happens when one of
//! them is killed.

use std::{fs, process::Command};

use crate::{
    fixture::{
        Fixture, RANKS, Running, assert_complete, assert_ended, digest, eventually, trainer,
    },
    memory::Held,
    metrics,
};

/// Allocators keep pages, and threads touch their stacks when they need them first.
const RESIDENT_GROWTH_MAX: u64 = 16 << 20;

pub(crate) struct Cluster {
    pub(crate) fixture: Fixture,
    pub(crate) manager: Running,
    address: String,
    /// Of every process of the cluster.
    variables: Vec<(&'static str, String)>,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        Self::of(Fixture::new(), Vec::new())
    }

    pub(crate) fn of(fixture: Fixture, variables: Vec<(&'static str, String)>) -> Self {
        let manager = manager(&fixture, "127.0.0.1:0", &variables);
        Self { variables, ..Self::with(fixture, manager) }
    }

    /// The manager of the job of `fixture`, whose run directory is `manager`.
    pub(crate) fn with(fixture: Fixture, manager: Running) -> Self {
        let file = fixture.path("manager/manager.address");
        let mut address = String::new();
        eventually("the manager listens", || {
            let text = fs::read_to_string(&file).unwrap_or_default();
            text.trim().clone_into(&mut address);
            !address.is_empty()
        });
        Self { fixture, manager, address, variables: Vec::new() }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn look_at(&mut self, address: &str) {
        address.clone_into(&mut self.address);
    }

    pub(crate) fn agent(&self) -> Running {
        self.agent_with(&[])
    }

    pub(crate) fn agent_with(&self, more: &[&str]) -> Running {
        Running::start(self.agent_command().args(more))
    }

    pub(crate) fn agent_command(&self) -> Command {
        let arguments = ["agent", "--manager", &self.address, "--token-file", "manager/token"];
        let mut agent = self.fixture.tierfeed(&arguments);
        agent.args(["--run-dir", "run"]).envs(self.variables.clone());
        agent
    }

    pub(crate) fn trainers(&self, step_us: u64) -> Vec<Running> {
        let start = |rank: u32| {
            let mut exec = self.fixture.tierfeed(&["exec", "--run-dir", "run", "--"]);
            exec.arg(trainer()).arg(self.fixture.path("log")).arg(step_us.to_string());
            exec.envs(self.variables.clone());
            Running::start(exec.env("TIERFEED_RANK", rank.to_string()))
        };
        (0..RANKS).map(start).collect()
    }

    /// Kills the manager, and starts another one where it listened.
    pub(crate) fn restart_manager(&mut self) {
        self.manager.kill();
        self.manager = manager(&self.fixture, &self.address, &self.variables);
        let status = || self.fixture.tierfeed(&["status", "--run-dir", "manager"]).output();
        eventually("the manager is back", || status().unwrap().status.success());
    }

    pub(crate) fn manager_said(&mut self) -> String {
        self.manager.errors()
    }

    pub(crate) fn status(&self) -> serde_json::Value {
        let mut status = self.fixture.tierfeed(&["status", "--json", "--run-dir", "manager"]);
        let output = status.output().unwrap();
        assert_ended(&output, 0);
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn manager(fixture: &Fixture, listen: &str, variables: &[(&'static str, String)]) -> Running {
    let mut manager = fixture.tierfeed(&["manager", "job.yaml", "--listen", listen]);
    manager.args(["--run-dir", "manager"]).envs(variables.iter().cloned());
    Running::start(&mut manager)
}

pub(crate) fn end_well(trainers: Vec<Running>) {
    for mut trainer in trainers {
        trainer.ends_with(0);
        eprint!("{}", trainer.errors());
    }
}

#[test]
fn the_same_parts_apart_do_the_same() {
    let mut cluster = Cluster::start();
    // Job scripts start both at once: trainers wait for their agent.
    let trainers = cluster.trainers(0);
    let mut agent = cluster.agent();
    end_well(trainers);
    eventually("the manager knows how far the node is", || {
        cluster.status()["joined"][0]["batches"] == 42
    });
    let status = cluster.status();
    assert_eq!((&status["job"], &status["batches"]), (&"small".into(), &42.into()));
    assert_eq!(status["joined"][0]["state"], "alive");
    let left = &status["joined"][0]["available"];
    assert!(left["host_bytes"].as_u64().unwrap() > 0, "{left}");
    assert!(left["age_ns"].as_u64().unwrap() < 60_000_000_000, "{left}");
    assert!(!left["numa_nodes"].as_array().unwrap().is_empty(), "{left}");
    let scratch = &left["directories"][0];
    assert!(scratch["free_bytes"].as_u64() <= scratch["total_bytes"].as_u64(), "{left}");
    let drain = cluster.fixture.tierfeed(&["drain", "--run-dir", "manager"]).output().unwrap();
    assert_ended(&drain, 0);
    agent.ends_with(0);
    cluster.manager.ends_with(0);
    let log = cluster.fixture.log();
    assert_eq!(assert_complete(&log), log.len());
    assert_eq!(cluster.fixture.report()["order_digest"], digest(&log));
}

#[test]
fn without_an_agent_exec_gives_up_in_the_end() {
    let fixture = Fixture::new();
    let mut exec =
        fixture.tierfeed(&["exec", "--run-dir", "run", "--wait", "200 ms", "--", "true"]);
    let output = exec.output().unwrap();
    assert_ended(&output, 2);
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("run: "),
        "it names what it looked for"
    );
}

#[test]
fn a_killed_agent_costs_no_sample() {
    let mut alone = 0;
    for lines in moments() {
        let cluster = Cluster::start();
        let mut agent = cluster.agent();
        let trainers = cluster.trainers(1_000);
        eventually("the training is on its way", || cluster.fixture.lines() >= lines);
        agent.kill();
        end_well(trainers);
        let log = cluster.fixture.log();
        let from_agent = assert_complete(&log);
        assert!(from_agent >= lines, "{from_agent} of {lines} from the agent: {}", agent.errors());
        assert_eq!(cluster.fixture.scratch_files(), 0);
        alone += log.len() - from_agent;
    }
    assert!(alone > 40, "{alone} of 840 batches were read without the agent");
}

#[test]
fn a_killed_manager_is_not_missed() {
    let mut cluster = Cluster::start();
    let mut agent = cluster.agent();
    let trainers = cluster.trainers(4_000);
    eventually("the training is on its way", || cluster.fixture.lines() >= 6);
    cluster.manager.kill();
    end_well(trainers);
    let log = cluster.fixture.log();
    assert_eq!(assert_complete(&log), log.len());
    agent.signal("-TERM");
    agent.ends_with(0);
    assert_eq!(cluster.fixture.report()["order_digest"], digest(&log));
}

#[test]
fn an_agent_that_comes_back_is_the_same_node() {
    let cluster = Cluster::start();
    let mut agent = cluster.agent();
    eventually("the agent joined", || cluster.status()["joined"][0]["state"] == "alive");
    agent.kill();
    let _again = cluster.agent();
    eventually("the node has its second process", || {
        cluster.status()["joined"][0]["generation"] == 1
    });
    assert_eq!(cluster.status()["joined"].as_array().unwrap().len(), 1);
    end_well(cluster.trainers(0));
    assert_complete(&cluster.fixture.log());
}

#[test]
fn a_killed_trainer_leaves_nothing_and_can_be_started_again() {
    let cluster = Cluster::start();
    let mut agent = cluster.agent();
    // What caches hold after a whole training, they hold from then on.
    end_well(cluster.trainers(0));
    fs::remove_file(cluster.fixture.path("log")).unwrap();
    let nothing_is_lent = || {
        eventually("every batch and all memory of trainers is the agent's again", || {
            let held = Held::by(agent.pid());
            metrics::leases(&cluster.fixture) == 0.0 && held.of_trainers == 0
        });
        Held::by(agent.pid())
    };
    let before = nothing_is_lent();
    for lines in moments() {
        let mut trainers = cluster.trainers(1_000);
        eventually("the training is on its way", || cluster.fixture.lines() >= lines);
        let held = Held::by(agent.pid());
        assert!(
            held.of_trainers > 0,
            "{held:?}: trainers have memory of the agent while they live"
        );
        trainers.iter_mut().for_each(Running::kill);
        drop(trainers);
        let after = nothing_is_lent();
        // Connections of this test come and go.
        assert!(after.descriptors <= before.descriptors + 2, "{before:?}, {after:?}");
        assert!(after.resident <= before.resident + RESIDENT_GROWTH_MAX, "{before:?}, {after:?}");
        fs::remove_file(cluster.fixture.path("log")).unwrap();
    }
    end_well(cluster.trainers(0));
    let log = cluster.fixture.log();
    assert_eq!(assert_complete(&log), log.len(), "the agent serves those that come after");
    agent.signal("-TERM");
    agent.ends_with(0);
    assert_eq!(cluster.fixture.scratch_files(), 0);
}

/// Twenty moments of a training of 42 batches, in no order.
fn moments() -> impl Iterator<Item = usize> {
    (0..20).map(|at| 1 + at * 17 % 37)
}

#[test]
fn strangers_and_surplus_agents_are_turned_away() {
    let cluster = Cluster::start();
    let refused = |command: &mut Command, sentence: &str| {
        let output = command.output().unwrap();
        assert_ended(&output, 2);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(sentence), "{errors}");
    };
    let mut without = cluster.fixture.tierfeed(&["status", "--manager", &cluster.address]);
    refused(&mut without, "wants a token");
    fs::write(cluster.fixture.path("wrong"), "0".repeat(64)).unwrap();
    let mut chmod = Command::new("chmod");
    assert!(chmod.arg("600").arg(cluster.fixture.path("wrong")).status().unwrap().success());
    let mut wrong = cluster.fixture.tierfeed(&["status", "--manager", &cluster.address]);
    refused(wrong.args(["--token-file", "wrong"]), "cannot prove this token");
    let agent = ["agent", "--manager", &cluster.address, "--token-file", "manager/token"];
    let mut outside = cluster.fixture.tierfeed(&agent);
    refused(
        outside.args(["--run-dir", "other", "--node", "1"]),
        "--node=1 of the arguments, but the job has nodes 0 to 0",
    );
    let _first = cluster.agent();
    eventually("the agent joined", || cluster.status()["joined"][0]["state"] == "alive");
    let mut second = cluster.fixture.tierfeed(&agent);
    refused(second.args(["--run-dir", "other"]), "node 0 is taken by another agent");
    let mut same = cluster.fixture.tierfeed(&agent);
    refused(same.args(["--run-dir", "run"]), "another agent works in this run directory");
}
