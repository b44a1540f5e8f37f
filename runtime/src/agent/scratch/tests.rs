use std::{
    fs::Permissions,
    os::unix::fs::{PermissionsExt, chown, symlink},
};

use nix::{sys::stat::Mode, unistd::mkfifo};
use tempfile::TempDir;
use tierfeed_test_needs::{Need, again_without_file_rights, skip};

use super::*;

fn request(after_run: AfterRun) -> JobScratch {
    JobScratch { size: Bytes::mib(1), after_run }
}

fn prepare(tier: &TempDir, after_run: AfterRun) -> Result<Scratch, ScratchError> {
    Scratch::prepare((tier.path(), None), "job", NodeId(0), request(after_run))
}

fn names(tier: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(tier.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// What a killed run leaves.
fn leave_behind(tier: &TempDir, name: &str, lock: &str) {
    let path = tier.path().join(format!("{PREFIX}{name}"));
    fs::create_dir(&path).unwrap();
    fs::write(path.join("checkpoint"), "much work").unwrap();
    fs::write(lock_of(&path), lock).unwrap();
}

#[test]
fn scratch_is_private_and_gone_at_the_end() {
    let tier = TempDir::new().unwrap();
    let scratch = prepare(&tier, AfterRun::Remove).unwrap();
    let mode = fs::metadata(scratch.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    fs::write(scratch.path().join("half a checkpoint"), vec![1; 10_000]).unwrap();
    let entry = scratch.end();
    assert!(entry.peak_bytes >= 10_000 && !entry.is_exceeded && !entry.is_kept, "{entry:?}");
    assert_eq!(names(&tier), [""; 0]);
}

#[test]
fn what_is_kept_is_found_by_the_next_run() {
    let tier = TempDir::new().unwrap();
    let scratch = prepare(&tier, AfterRun::Keep).unwrap();
    fs::write(scratch.path().join("checkpoint"), "step 7").unwrap();
    assert!(scratch.end().is_kept);
    let again = prepare(&tier, AfterRun::Keep).unwrap();
    assert_eq!(fs::read(again.path().join("checkpoint")).unwrap(), b"step 7");
}

#[test]
fn what_was_kept_is_not_removed_by_a_run_that_keeps_nothing() {
    let tier = TempDir::new().unwrap();
    let scratch = prepare(&tier, AfterRun::Keep).unwrap();
    let checkpoint = scratch.path().join("checkpoint");
    fs::write(&checkpoint, "step 7").unwrap();
    assert!(scratch.end().is_kept);
    let refused = prepare(&tier, AfterRun::Remove);
    assert!(matches!(refused, Err(ScratchError::Kept { .. })), "{refused:?}");
    assert_eq!(fs::read(checkpoint).unwrap(), b"step 7");
}

#[test]
fn trainers_that_outlive_their_agent_keep_their_scratch() {
    let tier = TempDir::new().unwrap();
    let scratch = prepare(&tier, AfterRun::Remove).unwrap();
    let checkpoint = scratch.path().join("checkpoint");
    fs::write(&checkpoint, "step 7").unwrap();
    hold(scratch.path()).unwrap();
    // As a kill does: the lock goes, the files stay.
    drop(scratch);
    let other =
        Scratch::prepare((tier.path(), None), "other", NodeId(0), request(AfterRun::Remove))
            .unwrap();
    assert!(checkpoint.exists(), "another job takes nothing away");
    let again = prepare(&tier, AfterRun::Remove).unwrap();
    assert_eq!(fs::read(again.path().join("checkpoint")).unwrap(), b"step 7");
    drop(other);
}

#[test]
fn two_runs_of_a_job_do_not_share() {
    let tier = TempDir::new().unwrap();
    let first = prepare(&tier, AfterRun::Remove).unwrap();
    assert!(matches!(prepare(&tier, AfterRun::Remove), Err(ScratchError::InUse { .. })));
    let other =
        Scratch::prepare((tier.path(), None), "job", NodeId(1), request(AfterRun::Remove)).unwrap();
    assert_ne!(first.path(), other.path());
}

#[test]
fn only_orphans_of_this_user_are_removed() {
    let (tier, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    leave_behind(&tier, "killed-0", "");
    leave_behind(&tier, "kept-0", KEPT);
    fs::write(elsewhere.path().join("precious"), "").unwrap();
    symlink(elsewhere.path(), tier.path().join(format!("{PREFIX}link-0"))).unwrap();
    fs::write(tier.path().join(format!("{PREFIX}link-0.lock")), "").unwrap();
    fs::create_dir(tier.path().join(format!("{PREFIX}no-lock-0"))).unwrap();
    fs::write(tier.path().join("notes.lock"), "").unwrap();
    let living =
        Scratch::prepare((tier.path(), None), "living", NodeId(0), request(AfterRun::Remove))
            .unwrap();
    leftovers::remove(tier.path());
    let job = |name: &str| format!("{PREFIX}{name}");
    let left = ["notes.lock".to_owned(), job("kept-0"), job("link-0"), job("link-0.lock")];
    let more = [job("living-0"), job("living-0.lock"), job("no-lock-0")];
    let mut expected: Vec<String> = left.into_iter().chain(more).collect();
    expected.sort();
    assert_eq!(names(&tier), expected);
    assert!(elsewhere.path().join("precious").exists());
    drop(living);
}

#[test]
fn a_link_or_a_file_in_its_place_is_refused() {
    let (tier, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let path = tier.path().join(format!("{PREFIX}job-0"));
    symlink(elsewhere.path(), &path).unwrap();
    assert!(matches!(prepare(&tier, AfterRun::Keep), Err(ScratchError::NotOurs { .. })));
    fs::remove_file(&path).unwrap();
    fs::write(&path, "a file").unwrap();
    assert!(matches!(prepare(&tier, AfterRun::Keep), Err(ScratchError::NotOurs { .. })));
}

#[test]
fn more_than_allowed_is_noticed_where_only_a_watch_holds_the_budget() {
    let tier = TempDir::new().unwrap();
    let mut scratch = prepare(&tier, AfterRun::Keep).unwrap();
    assert_eq!(scratch.entry.held_by, HeldBy::Watch);
    fs::create_dir(scratch.path().join("sub")).unwrap();
    fs::write(scratch.path().join("sub/large"), vec![1; 2 << 20]).unwrap();
    scratch.look();
    fs::remove_file(scratch.path().join("sub/large")).unwrap();
    let entry = scratch.end();
    assert!(entry.is_exceeded && entry.peak_bytes >= 2 << 20, "{entry:?}");
}

#[test]
fn a_ram_disk_of_its_own_takes_no_more_than_its_size() {
    let tier = TempDir::new_in("/dev/shm").unwrap();
    let scratch = prepare(&tier, AfterRun::Remove).unwrap();
    if scratch.entry.held_by == HeldBy::Watch {
        skip(Need::Mounts, "this process may not mount");
        return;
    }
    let error = fs::write(scratch.path().join("large"), vec![1; 2 << 20]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    let entry = scratch.end();
    assert!(entry.peak_bytes <= 1 << 20 && !entry.is_exceeded, "{entry:?}");
    assert_eq!(names(&tier), [""; 0]);
}

#[test]
fn a_ram_disk_that_a_killed_run_left_is_taken_away() {
    let tier = TempDir::new_in("/dev/shm").unwrap();
    leave_behind(&tier, "killed-0", "");
    if !mount_on(&tier.path().join(format!("{PREFIX}killed-0")), Bytes::mib(1), None) {
        skip(Need::Mounts, "this process may not mount");
        return;
    }
    leftovers::remove(tier.path());
    assert_eq!(names(&tier), [""; 0]);
}

#[test]
fn a_name_that_another_has_taken_keeps_no_job_from_its_scratch() {
    let (tier, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    symlink(elsewhere.path(), tier.path().join(format!("{PREFIX}job-0"))).unwrap();
    let scratch = prepare(&tier, AfterRun::Remove).unwrap();
    assert!(is_ours(scratch.path()));
    fs::write(scratch.path().join("checkpoint"), "much work").unwrap();
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    let path = scratch.path().to_owned();
    drop(scratch);
    // As a killed run leaves it: the next run removes it under any name.
    let again = prepare(&tier, AfterRun::Remove).unwrap();
    assert!(!path.exists() && is_ours(again.path()));
    drop(again.end());
    assert_eq!(names(&tier), ["tierfeed-job-job-0", "tierfeed-job-job-0.lock"]);
}

fn usual_lock(tier: &TempDir) -> PathBuf {
    tier.path().join(format!("{PREFIX}job-0.lock"))
}

/// The lock of the usual directory is taken by a file that no lock of this user can be.
fn check_another_name_is_taken(tier: &TempDir) {
    let kept = prepare(tier, AfterRun::Keep);
    assert!(matches!(kept, Err(ScratchError::NotOurs { .. })), "{kept:?}");
    let scratch = prepare(tier, AfterRun::Remove).unwrap();
    assert_ne!(scratch.path(), tier.path().join(format!("{PREFIX}job-0")));
    assert!(is_ours(scratch.path()));
    drop(scratch.end());
    assert_eq!(names(tier), ["tierfeed-job-job-0.lock"]);
}

#[test]
fn whatever_has_the_name_of_a_lock_keeps_no_job_from_its_scratch() {
    let kinds: [fn(&Path); 4] = [
        |path| symlink("/etc/hostname", path).unwrap(),
        |path| symlink("nowhere", path).unwrap(),
        |path| fs::create_dir(path).unwrap(),
        |path| mkfifo(path, Mode::S_IRWXU).unwrap(),
    ];
    for take_name in kinds {
        let tier = TempDir::new().unwrap();
        take_name(&usual_lock(&tier));
        check_another_name_is_taken(&tier);
    }
}

#[test]
fn a_lock_that_another_user_closed_keeps_no_job_from_its_scratch() {
    let tier = TempDir::new().unwrap();
    let lock = usual_lock(&tier);
    fs::write(&lock, "").unwrap();
    if let Err(error) = chown(&lock, Some(65534), Some(65534)) {
        return skip(Need::Superuser, error);
    }
    if OpenOptions::new().write(true).open(&lock).is_ok() {
        let this =
            "agent::scratch::tests::a_lock_that_another_user_closed_keeps_no_job_from_its_scratch";
        return again_without_file_rights(this);
    }
    check_another_name_is_taken(&tier);
}

#[test]
fn a_tier_that_cannot_be_written_is_an_error_of_the_system() {
    let tier = TempDir::new().unwrap();
    fs::set_permissions(tier.path(), Permissions::from_mode(0o500)).unwrap();
    if fs::write(tier.path().join("file"), "").is_ok() {
        let this = "agent::scratch::tests::a_tier_that_cannot_be_written_is_an_error_of_the_system";
        return again_without_file_rights(this);
    }
    let refused = prepare(&tier, AfterRun::Remove);
    assert!(matches!(refused, Err(ScratchError::System { .. })), "{refused:?}");
}
