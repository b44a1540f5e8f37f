//! New processes work with every state that earlier ones left behind.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    apart::{Cluster, end_well},
    fixture::{
        Fixture, Running, assert_complete, assert_ended, eventually, expected_log, object_of,
        trainer,
    },
};

#[test]
fn a_run_works_in_the_run_directory_of_one_that_was_killed() {
    let fixture = Fixture::new();
    let mut run = Running::start(&mut fixture.run(20_000));
    eventually("some batches are there", || fixture.lines() >= 10);
    run.kill_with_agent();
    eventually("the training ends", || fixture.lines() == 42);
    let sockets = ["agent.sock", "manager.sock"].map(|name| fixture.run_dir().join(name));
    assert!(sockets.iter().all(|socket| socket.exists()), "kill -9 leaves them");
    fs::remove_file(fixture.path("log")).unwrap();
    assert_ended(&fixture.run(0).output().unwrap(), 0);
    let log = fixture.log();
    assert_eq!(assert_complete(&log), log.len());
    assert!(!sockets[0].exists(), "the agent took its socket with it");
    assert_eq!(fixture.scratch_files(), 0);
}

#[test]
fn an_agent_takes_the_place_of_one_that_was_killed_and_leaves_strange_files_alone() {
    let cluster = Cluster::start();
    let mut agent = cluster.agent();
    let socket = cluster.fixture.path("run/agent.sock");
    eventually("the agent listens", || socket.exists());
    agent.kill();
    let made = |socket: &Path| fs::metadata(socket).and_then(|it| it.modified()).ok();
    let left = made(&socket).expect("kill -9 leaves the socket");
    let strange = cluster.fixture.scratch().join("somebody-elses");
    fs::write(&strange, "precious").unwrap();
    let mut agent = cluster.agent();
    eventually("the next one listens", || made(&socket).is_some_and(|time| time > left));
    end_well(cluster.trainers(0));
    let log = cluster.fixture.log();
    assert_eq!(assert_complete(&log), log.len());
    agent.signal("-TERM");
    agent.ends_with(0);
    assert!(!socket.exists());
    assert_eq!(fs::read(&strange).unwrap(), b"precious");
    assert_eq!(cluster.fixture.scratch_files(), 1);
}

#[test]
fn an_agent_makes_the_directory_of_a_tier_that_went_away() {
    let cluster = Cluster::start();
    let mut agent = cluster.agent();
    let trainers = cluster.trainers(4_000);
    eventually("the training is on its way", || cluster.fixture.lines() >= 6);
    fs::remove_dir(cluster.fixture.scratch()).unwrap();
    eventually("the agent works on without it", || cluster.fixture.lines() >= 20);
    agent.kill();
    let _again = cluster.agent();
    eventually("there is another one", || cluster.fixture.scratch().exists());
    end_well(trainers);
    assert_complete(&cluster.fixture.log());
}

#[test]
fn a_second_run_in_a_run_directory_is_turned_away_and_the_first_goes_on() {
    let fixture = Fixture::new();
    let mut first = Running::start(&mut fixture.run(4_000));
    eventually("some batches are there", || fixture.lines() >= 4);
    let second = fixture.run(0).output().unwrap();
    assert_ended(&second, 2);
    let errors = String::from_utf8_lossy(&second.stderr);
    assert!(errors.contains("works in this run directory"), "{errors}");
    assert!(fixture.run_dir().join("manager.sock").exists(), "the first still has its socket");
    first.ends_with(0);
    let log = fixture.log();
    assert_eq!(assert_complete(&log), log.len());
}

#[test]
fn an_agent_joins_a_manager_that_comes_back() {
    let mut cluster = Cluster::start();
    let _agent = cluster.agent();
    let state = |cluster: &Cluster| cluster.status()["joined"][0]["state"].clone();
    eventually("the agent joined", || state(&cluster) == "alive");
    cluster.restart_manager();
    eventually("the agent joined again", || state(&cluster) == "alive");
    end_well(cluster.trainers(0));
    eventually("the new manager knows how far the node is", || {
        cluster.status()["joined"][0]["batches"] == 42
    });
}

#[test]
fn a_manager_that_comes_back_has_all_datasets_as_they_were() {
    let fixture = Fixture::new();
    let validation = fixture.path("validation/class0");
    fs::create_dir_all(&validation).unwrap();
    for number in 0..10 {
        fs::write(validation.join(format!("{number}.jpg")), "sample").unwrap();
    }
    let keys = format!("source: {}, format: image-folder", fixture.path("validation").display());
    fixture.write_job(&format!("datasets: {{ validation: {{ {keys} }} }}\n"));
    let mut cluster = Cluster::of(fixture, Vec::new());
    let _agent = cluster.agent();
    let state = |cluster: &Cluster| cluster.status()["joined"][0]["state"].clone();
    eventually("the agent joined", || state(&cluster) == "alive");
    let begun = cluster.fixture.path("manager/begun");
    eventually("the job has begun", || begun.exists());
    let index = cluster.fixture.path("manager/dataset-validation.index");
    let before = fs::read(&index).unwrap();
    fs::write(validation.join("late.jpg"), "sample").unwrap();
    cluster.restart_manager();
    eventually("the agent joined again", || state(&cluster) == "alive");
    assert_eq!(fs::read(&index).unwrap(), before);
    assert!(cluster.manager_said().contains("validation changed since the job began"));
}

/// Takes an object away, cuts one short, and puts a pipe or a directory in the place of one: moved aside,
/// by name, so that they can come back.
fn damage(fixture: &Fixture, names: [String; 3], put: fn(&Path)) -> [(PathBuf, PathBuf); 3] {
    let puts: [fn(&Path); 3] = [|_| (), |path| fs::write(path, "short").unwrap(), put];
    let mut puts = puts.into_iter();
    names.map(|name| {
        let object = fixture.path("data").join(&name);
        let aside = fixture.path(&name.replace('/', "-"));
        fs::rename(&object, &aside).unwrap();
        puts.next().unwrap()(&object);
        (object, aside)
    })
}

fn put_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn manager_and_agent_come_back_beside_damaged_objects() {
    let mut cluster = Cluster::start();
    let mut agent = cluster.agent();
    let state = |cluster: &Cluster| cluster.status()["joined"][0]["state"].clone();
    eventually("the agent joined", || state(&cluster) == "alive");
    // Agents stage some batches before anybody asks: these come later.
    let late = &expected_log()[&(0, 0, 5)];
    let names = [0, 1, 2].map(|at| object_of(late[at]));
    let damaged = damage(&cluster.fixture, names.clone(), put_pipe);
    agent.kill();
    cluster.restart_manager();
    let _again = cluster.agent();
    eventually("another agent joined", || {
        let status = cluster.status();
        status["joined"][0]["state"] == "alive" && status["joined"][0]["batches"] == 0
    });
    let said = cluster.manager_said();
    for (name, what) in names.iter().zip(["No such file", "another size", "not a regular file"]) {
        assert!(said.contains(&format!("{name}: {what}")), "{name}: {said}");
    }
    for (object, aside) in damaged {
        fs::rename(aside, object).unwrap();
    }
    end_well(cluster.trainers(0));
    let log = cluster.fixture.log();
    assert_eq!(assert_complete(&log), log.len());
}

#[test]
fn a_run_that_was_killed_goes_on_beside_damaged_objects_and_a_new_one_indexes_what_is_there() {
    let fixture = Fixture::new();
    fixture.write_job("on_error: { skip: 10 % }\n");
    let mut run = Running::start(&mut fixture.run(20_000));
    eventually("some batches are there", || fixture.lines() >= 10);
    run.kill_with_agent();
    eventually("the training ends", || fixture.lines() == 42);
    fs::remove_file(fixture.path("log")).unwrap();
    let names = ["class0/000.jpg", "class1/001.jpg", "class2/002.jpg"].map(str::to_owned);
    damage(&fixture, names, |path| fs::create_dir(path).unwrap());
    let output = fixture.run(0).output().unwrap();
    assert_ended(&output, 0);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("changed since the job began"), "{said}");
    assert_complete(&fixture.log());
    assert_eq!(fixture.report()["samples"], 300 - 3 * 3, "three epochs without three samples");

    fs::remove_file(fixture.path("log")).unwrap();
    fs::remove_dir(fixture.path("data/class2/002.jpg")).unwrap();
    assert_ended(&fixture.run(0).output().unwrap(), 0);
    let report = fixture.report();
    assert_eq!(report["fault_count"], 0, "98 samples, and the short one is one of them: {report}");
}

/// Trainers of rank 0 replace an object by a pipe: opening it blocks, as on a lost file server. After some
/// batches the pipe is opened for both directions, which does not block, and nothing is written into it; then
/// it goes away.
#[test]
fn an_object_that_hangs_holds_up_only_the_batch_that_needs_it() {
    let fixture = Fixture::new();
    fixture.write_job("on_error: { skip: 10 % }\n");
    let sample = expected_log()[&(0, 0, 6)][0];
    let object = format!("data/class{}/{:03}.jpg", sample / 25, sample % 25 * 4 + sample / 25);
    let script = format!(
        "if [ $RANK = 0 ]; then rm {object}; mkfifo {object}; \
         {{ until [ \"$(wc -l <log)\" -ge 13 ]; do sleep 0.02; done; : <>{object}; rm {object}; }} & \
         fi; exec \"$0\" \"$@\""
    );
    let mut run = fixture.tierfeed(&["run", "job.yaml", "--run-dir", "run", "--", "sh", "-c"]);
    run.arg(script).arg(trainer()).arg(fixture.path("log")).arg("500");
    assert_ended(&run.output().unwrap(), 0);
    assert_complete(&fixture.log());
    let report = fixture.report();
    assert_eq!(report["faults"][0]["sample"], sample);
    assert_eq!(report["samples"], 297, "three epochs without the sample");
}

/// Uses a folder of the user's in any state.
#[test]
fn a_lock_file_that_a_dead_agent_left_locks_nobody_out() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.run_dir()).unwrap();
    let mut chmod = Command::new("chmod");
    assert!(chmod.arg("700").arg(fixture.run_dir()).status().unwrap().success());
    for name in ["agent.lock", "manager.lock", "trainer.json"] {
        fs::write(fixture.run_dir().join(name), "of an earlier process").unwrap();
    }
    assert_ended(&fixture.run(0).output().unwrap(), 0);
    let log = fixture.log();
    assert_eq!(assert_complete(&log), log.len());
}
