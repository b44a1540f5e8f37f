//! Both sides of the protocol, each against a substitute of the other; `tierfeed read` itself is in
//! the end-to-end tests.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, mpsc::channel},
};

use crate::{
    Dataset, Format, Index,
    format::Raw,
    source::{Access, Identity, Location},
};
use tempfile::TempDir;
use tierfeed_core::{id::SampleId, units::Bytes};

use super::*;
use crate::read::{FileSource, ReadError};

const RECORD: usize = 10;
const RECORDS: u32 = 40;

/// An index of records, each filled with its number.
fn index(folder: &TempDir) -> Index {
    let path = folder.path().join("records");
    let bytes: Vec<u8> = (0..RECORDS).flat_map(|it| [it.to_le_bytes()[0]; RECORD]).collect();
    fs::write(&path, bytes).unwrap();
    let format = Format::Raw(Raw::of_records(Bytes(RECORD as u64)));
    Index::build(&Dataset::new(Location::Path(path), format), None, &mut |_| ()).unwrap()
}

fn numbers(samples: impl IntoIterator<Item = u32>) -> Vec<u8> {
    samples.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Status and content of each answer.
type Answers = Vec<(u8, Vec<u8>)>;

fn answers(mut bytes: &[u8]) -> Answers {
    let mut answers = Answers::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() {
        let len = u64::from_le_bytes(header[1..].try_into().unwrap());
        let (content, rest) = rest.split_at(usize::try_from(len).unwrap());
        answers.push((header[0], content.to_vec()));
        bytes = rest;
    }
    assert!(bytes.is_empty(), "half a header: {bytes:?}");
    answers
}

fn served(input: &[u8]) -> (Result<(), ServeError>, Answers) {
    let folder = TempDir::new().unwrap();
    let files = FileSource::new(index(&folder).into(), 1);
    let mut output = Vec::new();
    let read = |sample, place: &mut [u8]| files.read_into(sample, place);
    let outcome = serve(files.index(), read, input, &mut output);
    (outcome, answers(&output))
}

#[test]
fn every_number_is_answered_in_turn_until_the_input_ends() {
    let asked: Vec<u32> = (0..500).map(|at| at * 7 % RECORDS).collect();
    let (outcome, answers) = served(&numbers(asked.iter().copied()));
    outcome.unwrap();
    let expected = asked.iter().map(|it| (READ, vec![it.to_le_bytes()[0]; RECORD]));
    assert_eq!(answers, expected.collect::<Vec<_>>());
    let (outcome, answers) = served(&[]);
    outcome.unwrap();
    assert_eq!(answers, []);
}

#[test]
fn a_slow_sample_holds_up_no_read_but_the_answers() {
    let folder = TempDir::new().unwrap();
    let index = index(&folder);
    let (done, others) = channel();
    let (done, others) = (Mutex::new(done), Mutex::new(others));
    let read = |SampleId(sample), place: &mut [u8]| {
        if sample == 0 {
            // Returns only if the others are read meanwhile.
            (1..READS).for_each(|_| others.lock().unwrap().recv().unwrap());
        } else {
            done.lock().unwrap().send(()).unwrap();
        }
        place.fill(sample.to_le_bytes()[0]);
        Ok(())
    };
    let mut output = Vec::new();
    let asked = 0..u32::try_from(READS).unwrap();
    serve(&index, read, &numbers(asked.clone())[..], &mut output).unwrap();
    let expected = asked.map(|it| (READ, vec![it.to_le_bytes()[0]; RECORD]));
    assert_eq!(answers(&output), expected.collect::<Vec<_>>());
}

#[test]
fn a_number_that_the_index_does_not_have_is_answered_with_a_text() {
    let (outcome, answers) = served(&numbers([RECORDS, u32::MAX, 3]));
    outcome.unwrap();
    let text = |number: u32| {
        let text = format!("the index has no sample {number}; it has {RECORDS} samples");
        (code_of(Fault::Changed), text.into_bytes())
    };
    assert_eq!(answers, [text(RECORDS), text(u32::MAX), (READ, vec![3; RECORD])]);
}

#[test]
fn a_text_is_cut_at_its_limit() {
    let folder = TempDir::new().unwrap();
    let long = || PathBuf::from("x".repeat(TEXT_BYTES_MAX));
    let read = |_, _: &mut [u8]| Err(ReadError::Vanished { path: long() });
    let mut output = Vec::new();
    serve(&index(&folder), read, &numbers([0])[..], &mut output).unwrap();
    let expected = (code_of(Fault::Vanished), vec![b'x'; TEXT_BYTES_MAX]);
    assert_eq!(answers(&output), [expected]);
}

#[test]
fn half_a_number_is_an_error_after_the_answers_to_whole_ones() {
    let mut input = numbers([1]);
    input.extend([2, 0, 0]);
    let (outcome, answers) = served(&input);
    assert!(
        matches!(outcome, Err(ServeError::Input(error)) if error.kind() == io::ErrorKind::UnexpectedEof)
    );
    assert_eq!(answers, [(READ, vec![1; RECORD])]);
}

#[test]
fn a_trainer_that_takes_no_answer_is_an_error() {
    let folder = TempDir::new().unwrap();
    let files = FileSource::new(index(&folder).into(), 1);
    let read = |sample, place: &mut [u8]| files.read_into(sample, place);
    let mut room = [0; 30];
    let outcome = serve(files.index(), read, &numbers(0..RECORDS)[..], &mut room[..]);
    assert!(matches!(outcome, Err(ServeError::Output(_))), "{outcome:?}");
}

#[test]
fn every_fault_has_a_status_of_its_own() {
    for code in 0..=u8::MAX {
        assert_eq!(fault_of(code).map(code_of), (1..=7).contains(&code).then_some(code));
    }
}

/// A reader whose program is a script, which finds its number of starts in `$starts`.
fn scripted(folder: &TempDir, script: &str) -> Reader {
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
    Reader::new(Launch { exe, index: "the index".into(), access: Access::default() })
}

fn starts(folder: &TempDir) -> usize {
    fs::read_to_string(folder.path().join("starts")).unwrap_or_default().lines().count()
}

fn read(reader: &mut Reader, samples: &[u32]) -> Result<[u8; 5], ReaderError> {
    let samples: Vec<_> = samples.iter().copied().map(SampleId).collect();
    let mut place = [0; 5];
    reader.read_into(&samples, &mut place, &mut || true).map(|()| place)
}

/// Answers one sample of five bytes.
const HELLO: &str = r"printf '\000\005\000\000\000\000\000\000\000hello'";

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
fn the_program_is_told_where_the_bucket_is() {
    let folder = TempDir::new().unwrap();
    let mut reader = scripted(&folder, &format!("{HELLO}\ncat > /dev/null"));
    let access = Access {
        endpoint: Some("http://here".into()),
        region: Some("there".into()),
        identity: Identity::Anonymous,
    };
    let launch = Launch { access, ..reader.launch().clone() };
    reader = Reader::new(launch);
    read(&mut reader, &[1]).unwrap();
    assert_eq!(
        fs::read_to_string(folder.path().join("starts")).unwrap(),
        "read --index the index --endpoint http://here --region there --anonymous\n"
    );
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
    let launch = Launch {
        exe: "/no/such/tierfeed".into(),
        index: PathBuf::new(),
        access: Access::default(),
    };
    let error = read(&mut Reader::new(launch), &[1]).unwrap_err();
    assert!(matches!(error, ReaderError::NotStarted { .. }), "{error:?}");
    let said = error.to_string();
    assert!(said.contains("/no/such/tierfeed") && said.contains("TIERFEED_EXE"), "{said}");
}

#[test]
fn a_fault_comes_with_its_text_and_the_next_sample_from_the_same_process() {
    let folder = TempDir::new().unwrap();
    let fault = r"printf '\001\004\000\000\000\000\000\000\000gone'";
    let mut reader = scripted(&folder, &format!("{fault}\n{HELLO}\ncat > /dev/null"));
    let error = read(&mut reader, &[1, 2]).unwrap_err();
    assert_eq!(error.to_string(), "gone");
    assert!(matches!(error, ReaderError::Unreadable { fault: Fault::Vanished, .. }), "{error:?}");
    assert_eq!(&read(&mut reader, &[2]).unwrap(), b"hello");
    assert_eq!(starts(&folder), 1);
}

#[test]
fn nonsense_is_believed_in_no_part() {
    let check = |script: &str, is_expected: fn(&InvalidAnswer) -> bool| {
        let folder = TempDir::new().unwrap();
        let mut reader = scripted(&folder, &format!("{script}\ncat > /dev/null"));
        let error = read(&mut reader, &[1]).unwrap_err();
        let ReaderError::ProtocolMismatch { found, .. } = &error else { panic!("{error:?}") };
        assert!(is_expected(found), "{error}");
    };
    check(r"printf '\000\006\000\000\000\000\000\000\000hello!'", |it| {
        matches!(it, InvalidAnswer::Length { expected: Bytes(5), found: Bytes(6) })
    });
    check(r"printf '\010\000\000\000\000\000\000\000\000'", |it| {
        matches!(it, InvalidAnswer::Status(8))
    });
    check(r"printf '\001\377\377\377\377\377\377\377\377'", |it| {
        matches!(it, InvalidAnswer::Text(Bytes(u64::MAX)))
    });
}

#[test]
fn who_does_not_wait_any_longer_leaves_no_process() {
    let folder = TempDir::new().unwrap();
    let pid = folder.path().join("pid");
    let mut reader = scripted(&folder, &format!("echo $$ > {}\nexec cat", pid.display()));
    let mut waits = || !fs::read_to_string(&pid).is_ok_and(|pid| pid.ends_with('\n'));
    let error = reader.read_into(&[SampleId(0x4141_4141)], &mut [0; 5], &mut waits).unwrap_err();
    assert!(matches!(error, ReaderError::Interrupted), "{error:?}");
    let pid = fs::read_to_string(&pid).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists());
}
