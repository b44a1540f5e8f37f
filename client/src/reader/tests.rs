//! The trainer's side against scripts; the other side has tests of its own, and `tierfeed read` itself is in the
//! end-to-end tests.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use tempfile::TempDir;
use tierfeed_dataset::source::Identity;

use super::*;

fn task(bucket: Option<Access>) -> ReadTask {
    ReadTask { index: "the index".into(), fingerprint: 7, bucket, transform: None, seed: 0 }
}

#[test]
fn every_fault_has_a_status_of_its_own() {
    let header = |fault| Header { fault, errno: -5, len: Bytes(1 << 40) };
    for (status, fault) in (1..).zip(FAULTS) {
        let bytes = header(Some(fault)).to_bytes();
        assert_eq!((bytes[0], Header::of_bytes(bytes)), (status, Ok(header(Some(fault)))));
    }
    assert_eq!(Header::of_bytes(header(None).to_bytes()), Ok(header(None)));
    let unknown = [10; Header::BYTES];
    assert_eq!(Header::of_bytes(unknown), Err(10));
}

#[test]
fn a_request_becomes_bytes_and_again_a_request() {
    let asked = Asked { sample: SampleId(1 << 31 | 5), epoch: Epoch(9) };
    assert_eq!(Asked::of_bytes(asked.to_bytes()), asked);
}

/// A reader whose program is a script.
fn scripted(folder: &TempDir, script: &str) -> Reader {
    Reader::new(program(folder, script), task(None))
}

/// A program that runs a script, which finds its number of starts in `$starts`.
fn program(folder: &TempDir, script: &str) -> PathBuf {
    let exe = folder.path().join("tierfeed");
    let starts = folder.path().join("starts");
    let starts = starts.display();
    let text =
        format!("#!/bin/sh\necho \"$*\" >> {starts}\nstarts=$(wc -l < {starts})\n{script}\n");
    fs::write(folder.path().join("text"), text).unwrap();
    // Another process writes it: a file that is open for writing cannot be executed.
    let mut install = Command::new("install");
    install.args(["-m", "755"]).arg(folder.path().join("text")).arg(&exe);
    assert!(install.stdout(Stdio::null()).status().unwrap().success());
    exe
}

fn starts(folder: &TempDir) -> usize {
    fs::read_to_string(folder.path().join("starts")).unwrap_or_default().lines().count()
}

fn read(reader: &mut Reader, samples: &[u32]) -> Result<[u8; 5], ReaderError> {
    let asked = |sample: &u32| Asked { sample: SampleId(*sample), epoch: Epoch(0) };
    let asked: Vec<_> = samples.iter().map(asked).collect();
    let (mut place, mut behind) = ([0; 3], [0; 2]);
    reader.read_into(&asked, &mut [&mut place, &mut behind], &mut || true)?;
    Ok([&place[..], &behind].concat().try_into().unwrap())
}

/// Answers one sample of five bytes.
const HELLO: &str = r"printf '\000\000\000\000\000\005\000\000\000\000\000\000\000hello'";

#[test]
fn a_reader_is_started_by_the_first_sample_and_once() {
    let folder = TempDir::new().unwrap();
    let mut reader = scripted(&folder, &format!("{HELLO}\n{HELLO}\n{HELLO}\ncat > /dev/null"));
    assert_eq!(starts(&folder), 0);
    for samples in [&[1, 2, 3][..], &[2, 3], &[3]] {
        assert_eq!(&read(&mut reader, samples).unwrap(), b"hello");
    }
    assert_eq!(starts(&folder), 1);
}

#[test]
fn what_is_asked_out_of_turn_is_asked_of_another_process() {
    let folder = TempDir::new().unwrap();
    let mut reader = scripted(&folder, &format!("{HELLO}\n{HELLO}\ncat > /dev/null"));
    read(&mut reader, &[1, 2]).unwrap();
    read(&mut reader, &[3]).unwrap();
    assert_eq!(starts(&folder), 2, "the answer to 2 was on its way");
}

#[test]
fn the_program_is_told_what_it_reads() {
    let folder = TempDir::new().unwrap();
    let line = folder.path().join("line");
    let endpoint = Some("http://here".into());
    let told = task(Some(Access { endpoint, region: None, identity: Identity::Anonymous }));
    let exe = program(&folder, &format!("head -n 1 > {}\n{HELLO}", line.display()));
    read(&mut Reader::new(exe, told.clone()), &[1]).unwrap();
    assert_eq!(fs::read_to_string(folder.path().join("starts")).unwrap(), "read\n");
    let line = fs::read_to_string(line).unwrap();
    assert_eq!(serde_json::from_str::<ReadTask>(&line).unwrap(), told);
}

#[test]
fn a_process_that_dies_is_replaced_once_for_a_sample() {
    let folder = TempDir::new().unwrap();
    // Requested before it ends, as with a process that dies of a sample.
    let answer = format!("[ $starts -gt 1 ] && head -c 1 > /dev/null && {HELLO}\nexit 3");
    let mut reader = scripted(&folder, &answer);
    assert_eq!(&read(&mut reader, &[1, 2, 3]).unwrap(), b"hello");
    assert_eq!(starts(&folder), 2);
    assert_eq!(&read(&mut reader, &[2, 3]).unwrap(), b"hello");
    assert_eq!(starts(&folder), 3);
}

#[test]
fn a_process_that_always_dies_is_an_error_that_says_how() {
    let folder = TempDir::new().unwrap();
    let mut reader = scripted(&folder, "exit 3");
    let error = read(&mut reader, &[1]).unwrap_err();
    assert!(error.to_string().contains("exit status: 3"), "{error}");
    assert_eq!(starts(&folder), 2);
}

#[test]
fn a_program_that_is_not_there_is_named_with_the_remedy() {
    let error = read(&mut Reader::new("/no/such/tierfeed".into(), task(None)), &[1]).unwrap_err();
    assert!(matches!(error, ReaderError::NotStarted { .. }), "{error:?}");
    let said = error.to_string();
    assert!(said.contains("/no/such/tierfeed") && said.contains("TIERFEED_EXE"), "{said}");
}

#[test]
fn a_fault_comes_with_its_text_and_the_next_sample_from_the_same_process() {
    let folder = TempDir::new().unwrap();
    let fault = r"printf '\002\005\000\000\000\004\000\000\000\000\000\000\000gone'";
    let mut reader = scripted(&folder, &format!("{fault}\n{HELLO}\ncat > /dev/null"));
    let error = read(&mut reader, &[1, 2]).unwrap_err();
    assert_eq!(error.to_string(), "gone");
    let ReaderError::Unreadable(ReadFault { fault, errno, .. }) = error else {
        panic!("{error:?}")
    };
    assert_eq!((fault, errno), (Fault::Vanished, Some(5)));
    assert_eq!(&read(&mut reader, &[2]).unwrap(), b"hello");
    assert_eq!(starts(&folder), 1);
}

#[test]
fn nonsense_is_believed_in_no_part() {
    for (script, expected) in [
        (
            r"printf '\000\000\000\000\000\006\000\000\000\000\000\000\000hello!'",
            "6 bytes for a sample of 5",
        ),
        (r"printf '\012\000\000\000\000\000\000\000\000\000\000\000\000'", "status 10 is unknown"),
        (
            r"printf '\001\000\000\000\000\377\377\377\377\377\377\377\377'",
            "a text of 18446744073709551615 bytes",
        ),
    ] {
        let folder = TempDir::new().unwrap();
        let mut reader = scripted(&folder, &format!("{script}\ncat > /dev/null"));
        let error = read(&mut reader, &[1]).unwrap_err();
        let ReaderError::ProtocolMismatch { found, .. } = &error else { panic!("{error:?}") };
        assert_eq!(found, expected);
    }
}

#[test]
fn who_does_not_wait_any_longer_leaves_no_process() {
    let folder = TempDir::new().unwrap();
    let pid = folder.path().join("pid");
    let mut reader =
        scripted(&folder, &format!("read task\necho $$ > {}\nexec cat", pid.display()));
    let mut waits = || !fs::read_to_string(&pid).is_ok_and(|pid| pid.ends_with('\n'));
    let asked = Asked { sample: SampleId(0x4141_4141), epoch: Epoch(0) };
    let error = reader.read_into(&[asked], &mut [&mut [0; 5]], &mut waits).unwrap_err();
    assert!(matches!(error, ReaderError::Interrupted), "{error:?}");
    let pid = fs::read_to_string(&pid).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists());
}
