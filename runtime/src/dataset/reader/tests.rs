//! The side of the reading process, without one.

use std::sync::{Mutex, mpsc::channel};

use tierfeed_client::reader::{Header, TEXT_BYTES_MAX};
use tierfeed_core::{
    id::{Epoch, SampleId},
    units::Bytes,
};
use tierfeed_dataset::{Dataset, Format, format::Raw, source::Location};

use super::{serve::serve, *};

const SAMPLES: u32 = 40;

fn requests(samples: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let asked = |sample| Asked { sample: SampleId(sample), epoch: Epoch(1) };
    samples.into_iter().flat_map(|sample| asked(sample).to_bytes()).collect()
}

/// Fault, and content, of each answer.
type Answers = Vec<(Option<Fault>, Vec<u8>)>;

fn answers(mut bytes: &[u8]) -> Answers {
    let mut answers = Answers::new();
    while let Some((header, rest)) = bytes.split_first_chunk() {
        let Header { fault, len, .. } = Header::of_bytes(*header).unwrap();
        let (content, rest) = rest.split_at(usize::try_from(len.0).unwrap());
        answers.push((fault, content.to_vec()));
        bytes = rest;
    }
    assert!(bytes.is_empty(), "half a header: {bytes:?}");
    answers
}

fn answer(sample: u32) -> Vec<u8> {
    vec![sample.to_le_bytes()[0]; 10]
}

fn served(input: &[u8]) -> (Result<(), ServeError>, Answers) {
    let mut output = Vec::new();
    let outcome = serve(|asked| Ok(answer(asked.sample.0)), input, &mut output);
    (outcome, answers(&output))
}

#[test]
fn every_request_is_answered_in_turn_until_the_input_ends() {
    let asked: Vec<u32> = (0..500).map(|at| at * 7 % SAMPLES).collect();
    let (outcome, answers) = served(&requests(asked.iter().copied()));
    outcome.unwrap();
    let expected = asked.iter().map(|sample| (None, answer(*sample)));
    assert_eq!(answers, expected.collect::<Vec<_>>());
    let (outcome, answers) = served(&[]);
    outcome.unwrap();
    assert_eq!(answers, []);
}

#[test]
fn a_slow_sample_holds_up_no_read_but_the_answers() {
    let (done, others) = channel();
    let (done, others) = (Mutex::new(done), Mutex::new(others));
    let read = |Asked { sample: SampleId(sample), .. }| {
        if sample == 0 {
            // Returns only if the others are read meanwhile.
            (1..READS).for_each(|_| others.lock().unwrap().recv().unwrap());
        } else {
            done.lock().unwrap().send(()).unwrap();
        }
        Ok(answer(sample))
    };
    let mut output = Vec::new();
    let asked = 0..u32::try_from(READS).unwrap();
    serve(read, &requests(asked.clone())[..], &mut output).unwrap();
    let expected = asked.map(|sample| (None, answer(sample)));
    assert_eq!(answers(&output), expected.collect::<Vec<_>>());
}

#[test]
fn half_a_request_is_an_error_after_the_answers_to_whole_ones() {
    let mut input = requests([1]);
    input.extend([2, 0, 0]);
    let (outcome, answers) = served(&input);
    assert!(
        matches!(outcome, Err(ServeError::Input(error)) if error.kind() == io::ErrorKind::UnexpectedEof)
    );
    assert_eq!(answers, [(None, answer(1))]);
}

#[test]
fn a_trainer_that_takes_no_answer_is_an_error() {
    let mut room = [0; 30];
    let read = |asked: Asked| Ok(answer(asked.sample.0));
    let outcome = serve(read, &requests(0..SAMPLES)[..], &mut room[..]);
    assert!(matches!(outcome, Err(ServeError::Output(_))), "{outcome:?}");
}

#[test]
fn a_text_is_cut_at_its_limit() {
    let message = "x".repeat(TEXT_BYTES_MAX + 1);
    let fault = Fault::Vanished;
    let read = |_| Err(ReadFault { fault, errno: None, message: message.clone() });
    let mut output = Vec::new();
    serve(read, &requests([0])[..], &mut output).unwrap();
    assert_eq!(answers(&output), [(Some(fault), vec![b'x'; TEXT_BYTES_MAX])]);
}

/// The index of a file with records, each filled with its number, and the task to read it.
fn task(folder: &tempfile::TempDir) -> ReadTask {
    let path = folder.path().join("records");
    std::fs::write(&path, (0..SAMPLES).flat_map(answer).collect::<Vec<u8>>()).unwrap();
    let format = Format::Raw(Raw::of_records(Bytes(10)));
    let dataset = Dataset::new(Location::Path(path), format);
    let index = Index::build(&dataset, None, &mut |_| ()).unwrap();
    let path = folder.path().join("index");
    index.save(&path).unwrap();
    let fingerprint = index.fingerprint();
    ReadTask { index: path, fingerprint, bucket: None, transform: None, seed: 0 }
}

fn read_by(task: &ReadTask, samples: &[u32]) -> (Result<(), ReadError>, Answers) {
    let mut input = serde_json::to_vec(task).unwrap();
    input.push(b'\n');
    input.extend(requests(samples.iter().copied()));
    let mut output = Vec::new();
    let worker = Program::tierfeed("/no/such/tierfeed".into());
    let outcome = read(&input[..], &mut output, worker);
    (outcome, answers(&output))
}

#[test]
fn a_sample_that_the_index_does_not_have_is_answered_with_a_text() {
    let folder = tempfile::tempdir().unwrap();
    let (outcome, answers) = read_by(&task(&folder), &[SAMPLES, u32::MAX, 3]);
    outcome.unwrap();
    let text = |number: u32| {
        let text = format!("the index has no sample {number}; it has {SAMPLES} samples");
        (Some(Fault::Changed), text.into_bytes())
    };
    assert_eq!(answers, [text(SAMPLES), text(u32::MAX), (None, answer(3))]);
}

#[test]
fn an_index_that_was_built_again_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let task = ReadTask { fingerprint: 1, ..task(&folder) };
    let (outcome, answers) = read_by(&task, &[3]);
    assert!(matches!(outcome, Err(ReadError::IndexedAgain(_))), "{outcome:?}");
    assert_eq!(answers, []);
}

#[test]
fn where_no_worker_starts_each_sample_is_answered_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let steps = r#"{ "steps": [{ "array": { "shape": [10], "dtype": "uint8" } }] }"#;
    let steps = Pipeline::try_new(&serde_json::from_str(steps).unwrap()).unwrap();
    let task = ReadTask { transform: Some(steps), ..task(&folder) };
    let (outcome, answers) = read_by(&task, &[3]);
    outcome.unwrap();
    let [(Some(Fault::NoWorker), text)] = &answers[..] else { panic!("{answers:?}") };
    let text = String::from_utf8_lossy(text);
    assert!(text.contains("/no/such/tierfeed"), "{text}");
}
