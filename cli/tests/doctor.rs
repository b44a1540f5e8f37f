//! `tierfeed doctor` as a real process: on this host as it is, and with system calls denied as container
//! engines deny them.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::{
    io,
    process::{Command, Output, Stdio},
    thread,
};

use serde_json::Value;

/// `SECCOMP_MODE_FILTER` of `linux/seccomp.h`.
const SECCOMP_MODE_FILTER: libc::c_ulong = 2;

fn doctor(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierfeed"));
    command.arg("doctor").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn finding<'a>(document: &'a Value, subject: &str) -> &'a Value {
    let findings = document["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["subject"] == subject).unwrap()
}

fn instruction(code: u32, skip_unless: u8, value: u32) -> libc::sock_filter {
    libc::sock_filter { code: u16::try_from(code).unwrap(), jt: 0, jf: skip_unless, k: value }
}

/// Makes `calls` fail with `EPERM` in the calling thread and in all processes that it starts, for good.
fn deny(calls: &[libc::c_long]) -> io::Result<()> {
    let load_number = instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0);
    let mut filter = vec![load_number];
    for call in calls {
        let number = u32::try_from(*call).unwrap();
        let denied = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
        filter.push(instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, number));
        filter.push(instruction(libc::BPF_RET | libc::BPF_K, 0, denied));
    }
    filter.push(instruction(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW));
    let program =
        libc::sock_fprog { len: u16::try_from(filter.len()).unwrap(), filter: filter.as_mut_ptr() };
    let none: libc::c_ulong = 0;
    // SAFETY:
    // - The call takes no pointers.
    let no_new_privileges = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, none, none, none) };
    assert_eq!(no_new_privileges, 0);
    // SAFETY:
    // - `program` and the `filter` it points to live through the call, which copies both.
    let status =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &raw const program) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn doctor_without(calls: &'static [libc::c_long]) -> Value {
    let denied = move || {
        deny(calls).unwrap();
        doctor(&["--json"])
    };
    json(&thread::spawn(denied).join().unwrap())
}

#[test]
fn the_findings_of_this_host_are_one_document() {
    let document = json(&doctor(&["--json"]));
    let findings = document["findings"].as_array().unwrap();
    let count = |state: &str| findings.iter().filter(|it| it["state"] == state).count();
    for state in ["ok", "degraded", "missing"] {
        assert_eq!(document["count"][state], count(state));
    }
    assert!(count("ok") > 0);
    for finding in findings {
        let is_ok = finding["state"] == "ok";
        assert_eq!(finding["consequence"].is_null(), is_ok, "{finding}");
        assert!(!is_ok || finding["fixes"] == Value::Array(Vec::new()), "{finding}");
    }
    assert!(document["kernel"].as_str().is_some_and(|kernel| !kernel.is_empty()));
}

#[test]
fn a_transform_worker_is_started_and_makes_a_row() {
    let document = json(&doctor(&["--json"]));
    let findings = document["findings"].as_array().unwrap();
    let worker = findings.iter().find(|it| it["subject"] == "transform worker").unwrap();
    assert_eq!(worker["state"], "ok", "{worker}");
}

#[test]
fn people_get_a_table_with_a_count() {
    let output = doctor(&[]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    let document = json(&doctor(&["--json"]));
    for finding in document["findings"].as_array().unwrap() {
        assert!(text.contains(finding["subject"].as_str().unwrap()), "{finding}");
    }
    assert!(text.lines().last().unwrap().contains(" ok, "), "{text}");
    assert!(!text.contains('\u{1b}'), "colour is for terminals");
}

#[test]
fn strict_is_a_failure_if_and_only_if_something_is_missing() {
    let missing = json(&doctor(&["--json"]))["count"]["missing"].as_u64().unwrap();
    let code = i32::from(missing > 0);
    assert_eq!(doctor(&["--strict"]).status.code(), Some(code));
}

#[test]
fn denied_memory_policies_are_found_with_the_capability_that_allows_them() {
    let document = doctor_without(&[
        libc::SYS_mbind,
        libc::SYS_get_mempolicy,
        libc::SYS_move_pages,
        libc::SYS_set_mempolicy_home_node,
    ]);
    for subject in ["memory policies", "placement read back", "preferred nodes"] {
        let finding = finding(&document, subject);
        assert_ne!(finding["state"], "ok", "{finding}");
        assert!(finding["found"].as_str().unwrap().contains("EPERM"), "{finding}");
        let fixes = finding["fixes"].as_array().unwrap();
        assert!(fixes.iter().any(|fix| fix["setting"] == "--cap-add SYS_NICE"), "{finding}");
    }
    assert_eq!(finding(&document, "memory policies")["state"], "missing");
}

#[test]
fn denied_rings_and_pidfds_are_found() {
    let document = doctor_without(&[libc::SYS_io_uring_setup, libc::SYS_pidfd_open]);
    let rings = finding(&document, "io_uring");
    assert_eq!(rings["state"], "degraded", "{rings}");
    assert!(rings["consequence"].as_str().unwrap().contains("threads"), "{rings}");
    let pidfds = finding(&document, "pidfds");
    assert!(pidfds["found"].as_str().unwrap().contains("EPERM"), "{pidfds}");
}

#[test]
fn a_small_limit_of_locked_memory_is_found() {
    let tierfeed = env!("CARGO_BIN_EXE_tierfeed");
    let script = format!("ulimit -l 64; exec {tierfeed} doctor --json");
    let document = json(&Command::new("sh").args(["-c", &script]).output().unwrap());
    let memory = finding(&document, "locked memory");
    assert!(memory["found"].as_str().unwrap().contains("64 KiB"), "{memory}");
    let is_lifted = memory["found"].as_str().unwrap().contains("CAP_IPC_LOCK");
    assert_eq!(memory["state"] == "ok", is_lifted, "{memory}");
}

#[test]
fn a_dataset_is_looked_at_by_its_path_and_a_missing_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("sample"), [7; 5000]).unwrap();
    let path = folder.path().to_str().unwrap();
    let document = json(&doctor(&["--json", "--path", path]));
    let cold = finding(&document, "cold reads")["found"].as_str().unwrap();
    assert!(cold.starts_with(path), "{cold}");
    assert!(!cold.contains("no file to try"), "{cold}");
    let output = doctor(&["--path", "/no/such/dataset"]);
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("/no/such/dataset is not there"), "{errors}");
}

#[test]
fn a_denied_cachestat_is_found_with_the_filter_that_allows_it() {
    // The same on every architecture, and younger than the table of `libc`.
    const CACHESTAT: libc::c_long = 451;
    let document = doctor_without(&[CACHESTAT]);
    let seen = finding(&document, "page cache seen");
    assert_eq!(seen["state"], "degraded", "{seen}");
    assert!(seen["fixes"].to_string().contains("allows cachestat"), "{seen}");
}
