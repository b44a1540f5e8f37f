//! Two users on one host: what one can do to the jobs of the other. Needs root, which starts the processes
//! of the other user.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use nix::unistd::geteuid;
use tierfeed_test_needs::{Need, skip};

use crate::{
    apart::Cluster,
    fixture::{Fixture, RANKS, assert_complete, assert_ended, eventually, trainer},
};

/// The user `nobody` of Debian, who owns no file of the test.
const OTHER: &str = "65534";

/// Whether this process may start others as another user; else the calling test is skipped.
#[track_caller]
fn may_be_others() -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        skip(Need::Superuser, "only root starts processes of other users");
    }
    is_root
}

fn as_other(command: &Command) -> Command {
    let mut other = Command::new("setpriv");
    other.args(["--reuid", OTHER, "--regid", OTHER, "--clear-groups", "--"]);
    other.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        other.current_dir(folder);
    }
    other
}

/// Lets everybody read what is below, as a shared file system would.
fn open_to_all(folder: &Path) {
    let status = Command::new("chmod").args(["-R", "a+rX"]).arg(folder).status().unwrap();
    assert!(status.success());
}

/// The binaries where the other user can reach them.
fn reachable(fixture: &Fixture, binary: &Path) -> PathBuf {
    let copy = fixture.path(binary.file_name().unwrap().to_str().unwrap());
    fs::copy(binary, &copy).unwrap();
    copy
}

#[test]
fn another_user_reaches_neither_the_agent_nor_the_manager_and_reads_alone() {
    if !may_be_others() {
        return;
    }
    let cluster = Cluster::start();
    let fixture = &cluster.fixture;
    let agent = cluster.agent();
    eventually("the agent joined", || cluster.status()["joined"][0]["state"] == "alive");
    let sockets = ["agent.sock", "observe.sock"].map(|socket| fixture.run_dir().join(socket));
    // It would refuse a directory that others can enter.
    eventually("the agent listens", || sockets.iter().all(|path| path.exists()));
    // Even if the run directory is opened by mistake, the kernel says who comes.
    open_to_all(&fixture.path("."));
    for path in sockets {
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
    }
    let log = fixture.path("log");
    fs::write(&log, "").unwrap();
    fs::set_permissions(&log, fs::Permissions::from_mode(0o666)).unwrap();
    let trainer = reachable(fixture, &trainer());
    for rank in 0..RANKS {
        let mut alone = Command::new(&trainer);
        alone.arg(&log).arg("0").current_dir(fixture.path("."));
        alone.env("TIERFEED_RANK", rank.to_string()).env("TIERFEED_JOB", fixture.job());
        alone.env("TIERFEED_INDEX", fixture.run_dir().join("dataset.index"));
        alone.env("TIERFEED_SOCK", fixture.run_dir().join("agent.sock"));
        let output = as_other(&alone).output().unwrap();
        assert_ended(&output, 0);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("goes alone"), "{errors}");
    }
    assert_eq!(assert_complete(&fixture.log()), 0, "nothing came from the agent");
    drop(agent);
}

#[test]
fn the_token_of_a_job_is_its_owners() {
    if !may_be_others() {
        return;
    }
    let cluster = Cluster::start();
    open_to_all(&cluster.fixture.path("."));
    let tierfeed = reachable(&cluster.fixture, Path::new(env!("CARGO_BIN_EXE_tierfeed")));
    fs::set_permissions(cluster.fixture.path("manager/token"), fs::Permissions::from_mode(0o600))
        .unwrap();
    let mut status = Command::new(&tierfeed);
    status.args(["status", "--manager", cluster.address(), "--token-file", "manager/token"]);
    let output = as_other(status.current_dir(cluster.fixture.path("."))).output().unwrap();
    assert_ended(&output, 2);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("Permission denied"), "{errors}");
}

/// Names in directories that all users share can be foreseen, and taken. The job is that of a user who has
/// no rights on what others own.
#[test]
fn names_that_another_user_took_keep_no_job_from_running() {
    if !may_be_others() {
        return;
    }
    let fixture = Fixture::new();
    // Too long for a socket, so that its folder stands in /tmp.
    let long = fixture.path(&"r".repeat(120));
    fixture.write_job("job_scratch: { size: 128 KiB }\n");
    let scratch = fixture.scratch().to_owned();
    fs::set_permissions(&scratch, fs::Permissions::from_mode(0o1777)).unwrap();
    let taken = scratch.join("tierfeed-job-small-0.lock");
    let mut take = Command::new("touch");
    assert!(as_other(take.arg(&taken)).status().unwrap().success());
    let tierfeed = reachable(&fixture, Path::new(env!("CARGO_BIN_EXE_tierfeed")));
    let trainer = reachable(&fixture, &trainer());
    let mut give = Command::new("chown");
    assert!(give.args(["-R", "1000:1000"]).arg(fixture.path(".")).status().unwrap().success());
    // In a /tmp of its own, so that no other test meets the folder.
    let script = "mount --bind \"$0\" /mnt && mount -t tmpfs -o mode=1777 tmpfs /tmp && \
                  mkdir -p \"$0\" && mount --bind /mnt \"$0\" && cd \"$0\" && \
                  setpriv --reuid 65534 --regid 65534 --clear-groups -- mkdir /tmp/tierfeed-1000 && \
                  exec setpriv --reuid 1000 --regid 1000 --clear-groups -- \"$@\"";
    let mut run = Command::new("unshare");
    run.args(["-m", "--propagation", "private", "sh", "-c", script]).arg(fixture.path("."));
    run.arg(tierfeed);
    run.args(["run", "job.yaml", "--run-dir"]).arg(&long).arg("--");
    run.arg(trainer).arg(fixture.path("log")).arg("0");
    run.current_dir(fixture.path(".")).env_remove("TIERFEED_RUN_DIR");
    run.env("HOME", fixture.path("."));
    let output = run.output().unwrap();
    assert_ended(&output, 0);
    let batches = fixture.log();
    assert_eq!(assert_complete(&batches), batches.len());
    let names = fs::read_dir(&scratch).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["tierfeed-job-small-0.lock"], "what was taken stays");
}
