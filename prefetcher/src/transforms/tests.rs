use std::{
    collections::BTreeMap,
    fs, io,
    os::{fd::AsFd as _, unix::fs::PermissionsExt as _},
    path::PathBuf,
    process,
    sync::mpsc::{Receiver, Sender, channel},
};

use rustix::process::{Pid, Signal, kill_process};
use tierfeed_core::{tier::Locality, units::Bytes};
use tierfeed_dataset::read::sample_sum::sum_of;
use tierfeed_numa_memory::{Pages, Request as RegionRequest, View};
use tierfeed_transform::worker_protocol::{
    Arrival, FromWorker, PACKET_BYTES_MAX, ToWorker, receive, send,
};
use tierfeed_transform_worker::{Apply, Input, serve};

use super::*;

const ROW: u64 = 64;
const SLOT: u64 = 64;
const PATIENCE: Duration = Duration::from_secs(60);
const WITHOUT_PROCESSOR: Duration = Duration::from_millis(20);

/// Copies samples into rows, and ends its process at samples that say so.
struct Played;

impl Apply for Played {
    fn apply(
        &mut self,
        input: &Input<'_>,
        row: &mut [u8],
        prepared: Option<&mut Vec<u8>>,
    ) -> Result<(), Defect> {
        match input.bytes.first() {
            Some(b'a') => process::abort(),
            Some(b'e') => return Err(defect("no image")),
            Some(b'r') => {
                let packet = FromWorker::Replacing { id: 1 }.encode();
                while send(io::stdin().as_fd(), &packet, None).is_ok() {}
                process::exit(1);
            }
            Some(b'h') => loop {
                thread::park();
            },
            Some(b'w') => thread::park_timeout(WITHOUT_PROCESSOR),
            _ => (),
        }
        row.fill(0);
        row[..input.bytes.len()].copy_from_slice(input.bytes);
        prepared.into_iter().for_each(|it| it.extend(input.bytes.iter().rev()));
        Ok(())
    }
}

fn defect(message: &str) -> Defect {
    Defect { kind: DefectKind::Damaged, message: message.to_owned() }
}

/// Serves when another test starts this program.
#[test]
#[ignore = "no test of its own: others start it"]
fn worker() {
    let socket = io::stdin().as_fd().try_clone_to_owned().unwrap();
    let served = serve(socket, |setup| match setup.pipeline.as_str() {
        "unfit" => Err("no such step".to_owned()),
        _ => Ok(Played),
    });
    served.unwrap();
}

/// Writes the row of the sample that it gets, and ends while it replaces the input.
#[test]
#[ignore = "no test of its own: others start it"]
fn worker_that_ends() {
    let socket = io::stdin().as_fd().try_clone_to_owned().unwrap();
    let mut buffer = vec![0; PACKET_BYTES_MAX];
    let mut arena = None;
    loop {
        let arrived = receive(socket.as_fd(), &mut buffer, ToWorker::decode).unwrap();
        let answer = match arrived {
            Arrival::Packet(ToWorker::Setup(_), _) => FromWorker::Ready,
            Arrival::Packet(ToWorker::Arena { len, .. }, descriptor) => {
                arena = Some(View::map(descriptor.unwrap(), Bytes(len)).unwrap());
                continue;
            }
            Arrival::Packet(ToWorker::Request(request), _) => {
                let arena = arena.as_ref().unwrap();
                arena.write(Bytes(request.row.offset), b"a row").unwrap();
                arena.write(Bytes(request.slot.offset), b"half of").unwrap();
                FromWorker::Replacing { id: request.id }
            }
            Arrival::Packet(ToWorker::DropArena(_), _) | Arrival::Nothing => continue,
            Arrival::End => return,
        };
        let is_last = answer != FromWorker::Ready;
        send(socket.as_fd(), &answer.encode(), None).unwrap();
        if is_last {
            process::exit(1);
        }
    }
}

fn settings(workers: usize) -> Settings {
    settings_of("worker", workers)
}

fn settings_of(worker: &str, workers: usize) -> Settings {
    let worker = format!("transforms::tests::{worker}");
    let arguments = ["--ignored", "--exact", &worker, "--nocapture"];
    Settings {
        program: Program {
            path: std::env::current_exe().unwrap(),
            arguments: arguments.map(str::to_owned).to_vec(),
        },
        setup: Setup {
            parent: process::id(),
            seed: 1,
            pixels_max: 1 << 20,
            time_limit: PATIENCE,
            niceness: 0,
            pipeline: "played".to_owned(),
        },
        workers: NonZeroUsize::new(workers).unwrap(),
        queued_max: NonZeroUsize::new(1000).unwrap(),
    }
}

type End = (u32, Finished);

struct Rig {
    pool: Transforms,
    memory: Arc<Region>,
    ends: (Sender<End>, Receiver<End>),
}

impl Rig {
    fn start(settings: Settings) -> Self {
        let pool = Transforms::start_blocking(settings).unwrap();
        Self { pool, memory: memory(1 << 20, "transforms-test"), ends: channel() }
    }

    /// Transforms a sample whose bytes are its number behind a letter.
    fn submit(&self, letter: char, sample: u32) {
        let place = u64::from(sample) * (ROW + SLOT);
        let bytes = format!("{letter}{sample}");
        self.memory.write(Bytes(place), bytes.as_bytes()).unwrap();
        let ended = self.ends.0.clone();
        self.pool.submit(Task {
            sample: SampleId(sample),
            epoch: Epoch(0),
            memory: Arc::clone(&self.memory),
            slot: Part { offset: place, len: SLOT },
            input_len: bytes.len() as u64,
            form: InputForm::Stored,
            after: AfterTransform::Unused,
            row: Part { offset: place + SLOT, len: ROW },
            finish: Box::new(move |finished| ended.send((sample, finished)).unwrap()),
        });
    }

    /// How the next `count` tasks ended, by their samples.
    fn ended(&self, count: usize) -> BTreeMap<u32, Finished> {
        (0..count).map(|_| self.ends.1.recv_timeout(PATIENCE).unwrap()).collect()
    }

    fn row_of(&self, sample: u32) -> String {
        let mut row = [0; 64];
        let place = u64::from(sample) * (ROW + SLOT) + SLOT;
        self.memory.read(Bytes(place), &mut row).unwrap();
        String::from_utf8(row.into_iter().take_while(|it| *it > 0).collect()).unwrap()
    }

    fn check_rows(&self, ended: &BTreeMap<u32, Finished>, letter: char) {
        for (sample, finished) in ended {
            assert_eq!(finished.outcome, Ok(None), "sample {sample}");
            assert_eq!(self.row_of(*sample), format!("{letter}{sample}"));
        }
    }
}

fn memory(len: u64, name: &str) -> Arc<Region> {
    let len = Bytes(len);
    let request = RegionRequest { len, locality: Locality::Anywhere, name, pages: Pages::Small };
    Arc::new(Region::reserve(&request).unwrap())
}

/// The worker processes of this one that have not ended.
fn workers() -> Vec<Pid> {
    let children = fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|task| fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default());
    let children: Vec<String> = children.collect();
    let pids = children.iter().flat_map(|it| it.split_whitespace()).map(|it| it.parse().unwrap());
    pids.filter_map(Pid::from_raw).collect()
}

#[test]
fn every_sample_becomes_the_row_that_is_its_own() {
    let rig = Rig::start(settings(3));
    (0..200).for_each(|sample| rig.submit('s', sample));
    rig.check_rows(&rig.ended(200), 's');
    let counts = rig.pool.counts();
    assert_eq!((counts.transformed, counts.rejected, counts.started), (200, [0; 6], 3));
    assert!(counts.worked > Duration::ZERO);
}

#[test]
fn a_worker_holds_a_sample_for_longer_than_a_processor_works_at_it() {
    let rig = Rig::start(settings(1));
    (0..10).for_each(|sample| rig.submit('w', sample));
    rig.check_rows(&rig.ended(10), 'w');
    let counts = rig.pool.counts();
    let least = 10 * WITHOUT_PROCESSOR;
    assert!(counts.held >= least, "{counts:?}");
    assert!(counts.worked < least, "{counts:?}");
    let idle = 10 * WITHOUT_PROCESSOR;
    thread::park_timeout(idle);
    rig.submit('s', 10);
    rig.check_rows(&rig.ended(1), 's');
    let since = rig.pool.counts().held.saturating_sub(counts.held);
    assert!(since < idle, "without a sample a worker holds none, {since:?}");
}

#[test]
fn a_sample_that_crashes_workers_is_named_and_costs_no_other() {
    let rig = Rig::start(settings(2));
    for sample in 0..60 {
        rig.submit(if sample == 20 { 'a' } else { 's' }, sample);
    }
    let mut ended = rig.ended(60);
    let crashed = ended.remove(&20).unwrap().outcome.unwrap_err();
    assert!(
        matches!(&crashed, TransformError::Crashed(how) if how.contains("SIGABRT")),
        "{crashed}"
    );
    rig.check_rows(&ended, 's');
    let counts = rig.pool.counts();
    assert_eq!((counts.crashed, counts.transformed), (2, 59));
    assert_eq!(counts.rejections().collect::<Vec<_>>(), [("crashed", 1)]);
}

#[test]
fn a_sample_that_cannot_be_transformed_ends_no_worker() {
    let rig = Rig::start(settings(1));
    rig.submit('e', 0);
    rig.submit('s', 1);
    let mut ended = rig.ended(2);
    let error = ended.remove(&0).unwrap().outcome.unwrap_err();
    assert_eq!(error, TransformError::Untransformable(defect("no image")));
    rig.check_rows(&ended, 's');
    let counts = rig.pool.counts();
    assert_eq!((counts.rejections().collect(), counts.started), (vec![("damaged", 1)], 1));
}

#[test]
fn workers_that_are_killed_cost_no_sample() {
    let rig = Rig::start(settings(2));
    for round in (0..).take_while(|_| rig.pool.counts().crashed == 0) {
        for sample in 0..100 {
            rig.submit('s', sample);
            if sample == 50 && rig.pool.counts().working > 0 {
                // One at a time, for a sample that ends two workers is taken for the cause; each in turn, for one that
                // dies without a sample is not missed before its next one.
                let pids = workers();
                let pid = pids.get(round % pids.len().max(1));
                pid.into_iter().for_each(|pid| _ = kill_process(*pid, Signal::KILL));
            }
        }
        rig.check_rows(&rig.ended(100), 's');
    }
}

#[test]
fn samples_wait_while_no_worker_starts() {
    let dir = tempfile::tempdir().unwrap();
    let [program, gone, starts] = ["program", "gone", "starts"].map(|name| dir.path().join(name));
    let mut settings = settings(1);
    let script = format!(
        "#!/bin/sh\n[ ! -e {gone} ] || {{ echo >> {starts}; exit 1; }}\nexec {real} \"$@\"\n",
        gone = gone.display(),
        starts = starts.display(),
        real = settings.program.path.display(),
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    settings.program.path = program;
    let rig = Rig::start(settings);
    fs::write(&gone, "").unwrap();
    workers().into_iter().for_each(|pid| _ = kill_process(pid, Signal::KILL));
    (0..10).for_each(|sample| rig.submit('s', sample));
    while fs::read(&starts).map_or(0, |lines| lines.len()) < 7 {
        thread::yield_now();
    }
    fs::remove_file(&gone).unwrap();
    rig.check_rows(&rig.ended(10), 's');
    assert_eq!(rig.pool.counts().rejected, [0; 6]);
}

#[test]
fn samples_beyond_what_the_queue_takes_are_refused_and_not_left_out() {
    let mut settings = settings(1);
    settings.queued_max = NonZeroUsize::MIN;
    let rig = Rig::start(settings);
    (0..40).for_each(|sample| rig.submit('h', sample));
    // Some hang in the worker or wait for it.
    let beyond = 40 - GIVEN_MAX - 1;
    for (sample, finished) in rig.ended(beyond) {
        let error = finished.outcome.unwrap_err();
        assert_eq!(error.fault(), Fault::NoWorker, "sample {sample}: {error}");
        assert!(error.to_string().contains("too many samples"), "{error}");
    }
}

#[test]
fn what_is_no_fault_of_a_sample_is_not_reported_as_one() {
    let why = String::new;
    for error in [TransformError::NoWorker(why()), TransformError::Failed(why())] {
        assert_eq!(error.fault(), Fault::NoWorker, "{error}");
    }
    for error in [
        TransformError::Untransformable(defect("")),
        TransformError::Crashed(why()),
        TransformError::OutOfMemory(why()),
        TransformError::TimedOut(PATIENCE),
    ] {
        assert_eq!(error.fault(), Fault::Untransformable, "{error}");
    }
}

#[test]
fn a_worker_that_stands_still_is_replaced_and_its_samples_become_rows() {
    let mut settings = settings(1);
    settings.setup.time_limit = Duration::ZERO;
    let rig = Rig::start(settings);
    let [pid] = workers()[..] else { panic!("one worker runs: {:?}", workers()) };
    kill_process(pid, Signal::STOP).unwrap();
    while !fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()))
        .unwrap()
        .contains("(stopped)")
    {
        thread::yield_now();
    }
    (0..3).for_each(|sample| rig.submit('s', sample));
    rig.check_rows(&rig.ended(3), 's');
    assert_eq!((rig.pool.counts().timed_out, rig.pool.counts().rejected), (1, [0; 6]));
}

#[test]
fn a_sample_that_never_ends_is_refused_and_the_next_is_transformed() {
    let mut settings = settings(1);
    settings.setup.time_limit = Duration::ZERO;
    let rig = Rig::start(settings);
    rig.submit('h', 0);
    rig.submit('s', 1);
    let mut ended = rig.ended(2);
    let error = ended.remove(&0).unwrap().outcome.unwrap_err();
    assert_eq!(error, TransformError::TimedOut(Duration::ZERO));
    assert_eq!(rig.pool.counts().rejections().collect::<Vec<_>>(), [("timed-out", 1)]);
    rig.check_rows(&ended, 's');
}

#[test]
fn a_worker_that_repeats_itself_without_end_is_replaced() {
    let rig = Rig::start(settings(1));
    rig.submit('r', 0);
    rig.submit('s', 1);
    let mut ended = rig.ended(2);
    let error = ended.remove(&0).unwrap().outcome.unwrap_err();
    assert!(error.to_string().contains("answered what it was not asked"), "{error}");
    rig.check_rows(&ended, 's');
}

#[test]
fn a_task_outside_of_its_memory_is_refused() {
    let rig = Rig::start(settings(1));
    // Behind the end of the memory.
    let sample = 1 << 20;
    let ended = rig.ends.0.clone();
    rig.pool.submit(Task {
        sample: SampleId(sample),
        epoch: Epoch(0),
        memory: Arc::clone(&rig.memory),
        slot: Part { offset: 1 << 20, len: SLOT },
        input_len: 1,
        form: InputForm::Stored,
        after: AfterTransform::Unused,
        row: Part { offset: 0, len: ROW },
        finish: Box::new(move |finished| ended.send((sample, finished)).unwrap()),
    });
    let error = rig.ended(1).remove(&sample).unwrap().outcome.unwrap_err();
    assert!(error.to_string().contains("leave 1048576 bytes"), "{error}");
}

#[test]
fn the_prepared_form_comes_with_its_checksum() {
    let rig = Rig::start(settings(1));
    rig.memory.write(Bytes(0), b"12345").unwrap();
    let ended = rig.ends.0.clone();
    rig.pool.submit(Task {
        sample: SampleId(0),
        epoch: Epoch(0),
        memory: Arc::clone(&rig.memory),
        slot: Part { offset: 0, len: SLOT },
        input_len: 5,
        form: InputForm::Stored,
        after: AfterTransform::Prepared { len: 5, input_sum: sum_of(b"12345") },
        row: Part { offset: SLOT, len: ROW },
        finish: Box::new(move |finished| ended.send((0, finished)).unwrap()),
    });
    let sum = rig.ended(1).remove(&0).unwrap().outcome.unwrap();
    assert_eq!(sum, Some(sum_of(b"54321")));
    let mut slot = [0; 5];
    rig.memory.read(Bytes(0), &mut slot).unwrap();
    assert_eq!(&slot, b"54321");
}

#[test]
fn a_worker_that_ends_while_it_writes_the_prepared_form_has_made_the_row() {
    let rig = Rig::start(settings_of("worker_that_ends", 1));
    let ended = rig.ends.0.clone();
    rig.pool.submit(Task {
        sample: SampleId(0),
        epoch: Epoch(0),
        memory: Arc::clone(&rig.memory),
        slot: Part { offset: 0, len: SLOT },
        input_len: 5,
        form: InputForm::Stored,
        after: AfterTransform::Prepared { len: 5, input_sum: 0 },
        row: Part { offset: SLOT, len: ROW },
        finish: Box::new(move |finished| ended.send((0, finished)).unwrap()),
    });
    assert_eq!(rig.ended(1).remove(&0).unwrap().outcome, Ok(None), "no form to keep, but a row");
    assert_eq!(rig.row_of(0), "a row");
    let counts = rig.pool.counts();
    assert_eq!((counts.crashed, counts.rejected, counts.transformed), (1, [0; 6], 1));
}

#[test]
fn memory_that_is_forgotten_is_unmapped_by_workers() {
    let rig = Rig::start(settings(1));
    rig.submit('s', 0);
    rig.check_rows(&rig.ended(1), 's');
    let [pid] = workers()[..] else { panic!("one worker runs: {:?}", workers()) };
    let maps = || fs::read_to_string(format!("/proc/{}/maps", pid.as_raw_nonzero())).unwrap();
    assert!(maps().contains("transforms-test"));
    rig.pool.forget(&rig.memory);
    let rig = Rig { memory: memory(1 << 20, "another-memory"), ..rig };
    // Behind the order to unmap.
    rig.submit('s', 0);
    rig.check_rows(&rig.ended(1), 's');
    assert!(!maps().contains("transforms-test"), "{}", maps());
}

#[test]
fn a_pool_whose_workers_cannot_work_says_why() {
    let mut unfit = settings(2);
    unfit.setup.pipeline = "unfit".to_owned();
    let mut absent = settings(2);
    absent.program.path = PathBuf::from("/no/such/program");
    let mut other = settings(1);
    other.program.path = PathBuf::from("/bin/true");
    for (settings, why) in
        [(unfit, "no such step"), (absent, "/no/such/program"), (other, "code 0")]
    {
        let error = Transforms::start_blocking(settings).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn tasks_that_wait_at_the_end_are_dropped_and_no_worker_is_left() {
    let rig = Rig::start(settings(2));
    rig.submit('h', 0);
    (1..100).for_each(|sample| rig.submit('h', sample));
    let Rig { pool, ends: (sender, ends), .. } = rig;
    drop(pool);
    drop(sender);
    // Each task was dropped with its sender, so nothing more can come.
    assert!(ends.recv().is_err());
    assert_eq!(workers(), []);
}
