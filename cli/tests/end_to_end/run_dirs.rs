//! What runs leave below `.tierfeed`: a limited number of directories, one index for all of them, and no doubt
//! about which run is live.

use std::{
    ffi::OsStr,
    fs::{self, Permissions},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt, PermissionsExt},
    },
    path::PathBuf,
};

use crate::fixture::{Fixture, Running, assert_ended, eventually};

fn runs(fixture: &Fixture) -> Vec<PathBuf> {
    let entries = fs::read_dir(fixture.path(".tierfeed/runs")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn run_at_once(fixture: &Fixture) {
    assert_ended(&fixture.tierfeed(&["run", "job.yaml", "--", "true"]).output().unwrap(), 0);
}

#[test]
fn a_second_run_takes_the_index_of_the_first() {
    let fixture = Fixture::new();
    run_at_once(&fixture);
    run_at_once(&fixture);
    let runs = runs(&fixture);
    let inode = |run: &PathBuf| fs::metadata(run.join("dataset.index")).unwrap().ino();
    assert!(runs.len() == 2 && inode(&runs[0]) == inode(&runs[1]), "{runs:?}");
    assert_eq!(fs::read_dir(fixture.path(".tierfeed/indexes")).unwrap().count(), 1);
}

#[test]
fn directories_of_old_runs_go_and_those_of_live_ones_stay() {
    let fixture = Fixture::new();
    let mut live =
        Running::start(fixture.tierfeed(&["run", "job.yaml", "--"]).args(["sleep", "600"]));
    let started = || {
        fixture.path(".tierfeed/runs").exists()
            && runs(&fixture).iter().any(|run| run.join("trainer.json").exists())
    };
    eventually("the first run listens", started);
    let of_live = runs(&fixture).remove(0);
    for number in 0..25 {
        let old = fixture.path(&format!(".tierfeed/runs/old-{number}"));
        fs::create_dir(&old).unwrap();
        fs::set_permissions(&old, Permissions::from_mode(0o700)).unwrap();
        fs::write(old.join("manager.lock"), "").unwrap();
    }
    run_at_once(&fixture);
    assert_eq!(
        runs(&fixture).len(),
        1 + 20 + 1,
        "the live one, the last that ended, and the new one"
    );
    assert!(of_live.join("trainer.json").exists());
    let status = fixture.tierfeed(&["status", "--json"]).output().unwrap();
    assert_ended(&status, 0);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(
        status["joined"][0]["state"], "alive",
        "of the live run, not of the newest: {status:#}"
    );
    live.signal("-TERM");
    live.ends_with(143);
    let over = fixture.tierfeed(&["status"]).output().unwrap();
    assert_ended(&over, 2);
    let errors = String::from_utf8_lossy(&over.stderr);
    assert!(errors.contains("no run in .tierfeed/runs is live; the newest has ended"), "{errors}");
}

/// The errors of a run in the run directory `dir`, which does not begin.
fn refused(fixture: &Fixture, dir: &str) -> String {
    let run = ["run", "job.yaml", "--run-dir", dir, "--", "true"];
    let output = fixture.tierfeed(&run).output().unwrap();
    assert_ended(&output, 2);
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_directory_that_others_use_is_refused_and_stays_as_it_is() {
    let fixture = Fixture::new();
    for mode in [0o2775, 0o1777] {
        let shared = fixture.path("shared");
        fs::create_dir_all(&shared).unwrap();
        fs::set_permissions(&shared, Permissions::from_mode(mode)).unwrap();
        let said = refused(&fixture, "shared");
        assert!(said.contains("nobody else may write to it"), "{said}");
        assert_eq!(fs::metadata(&shared).unwrap().mode() & 0o7777, mode);
    }
    let said = refused(&fixture, "data");
    assert!(said.contains("it has other files (class"), "{said}");
}

#[test]
fn a_run_directory_whose_path_is_no_text_is_refused_at_once() {
    let fixture = Fixture::new();
    let odd = fixture.path("").join(OsStr::from_bytes(b"caf\xe9"));
    fs::create_dir(&odd).unwrap();
    let job = fixture.job();
    let mut run = fixture.tierfeed(&["run", job.to_str().unwrap(), "--", "true"]);
    let output = run.current_dir(&odd).output().unwrap();
    assert_ended(&output, 2);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("must be UTF-8") && said.contains("TIERFEED_RUN_DIR"), "{said}");
}
