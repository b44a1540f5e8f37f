//! Workers as processes: this test program starts itself again and serves with a transform that does what
//! the first byte of a sample says.

#![deny(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::{
    fs,
    io::{self, Write as _},
    net::{TcpStream, UdpSocket},
    num::NonZeroUsize,
    os::{fd::AsFd as _, unix::net::UnixDatagram},
    path::{Path, PathBuf},
    process::{self, Command},
    time::Duration,
};

use caps::{CapSet, Capability};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{CWD, renameat},
    process::{Pid, Signal, getppid, getsid, kill_process, test_kill_process},
};
use tierfeed_core::id::{Epoch, SampleId};
use tierfeed_dataset::read::sample_sum::sum_of;
use tierfeed_numa_memory::{Pages, Region, Request as RegionRequest};
use tierfeed_prefetcher::transforms::{Rows, StartError, TransformError};
use tierfeed_test_needs::{Need, skip};
use tierfeed_transform::{
    Pipeline,
    worker_process::{Program, WorkerProcess},
    worker_protocol::{
        AfterTransform, ArenaId, Arrival, Defect, DefectKind, FromWorker, InputForm, Outcome, Part,
        Request, Setup, ToWorker,
    },
};
use tierfeed_transform_worker::{Apply, Input, Transform, serve};
use tierfeed_units::{Bytes, Locality};

const ROW: usize = 8;

/// Does what the first byte of a sample says.
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
            Some(b'h') => loop {
                std::thread::park();
            },
            Some(b'p') => panic!("a played panic of {}", input.sample),
            Some(b'e') => return Err(defect("no image".to_owned())),
            Some(b'v') => {
                let names: Vec<_> = std::env::vars_os().map(|(name, _)| name).collect();
                return Err(defect(format!("variables: {names:?}")));
            }
            Some(b'f') => {
                let opened = fs::read("/proc/self/status").map(|it| it.len());
                return Err(defect(format!("reading a file: {opened:?}")));
            }
            Some(b'u') => drop(UdpSocket::bind("127.0.0.1:0")),
            Some(b't') => drop(TcpStream::connect("127.0.0.1:1")),
            Some(b'l') => drop(UnixDatagram::unbound()),
            Some(b'x') => drop(Command::new("/bin/true").spawn()),
            Some(b'm') => {
                let mut taken = Vec::new();
                loop {
                    taken.push(vec![1_u8; 1 << 20]);
                }
            }
            Some(b'k') => drop(kill_process(Pid::INIT, Signal::URG)),
            Some(b'g') => signal_thread_of_parent(),
            Some(b'o') => let_descriptor_signal_parent(),
            Some(b'r') => drop(renameat(CWD, "/proc/none", CWD, "/proc/other")),
            Some(b's') => return Err(defect(system_call(&input.bytes[1..]))),
            Some(b'w') => {
                eprintln!("the first\n\u{1b}[2Jthe last words\n");
                process::abort();
            }
            Some(b'z') => {
                // More than a pipe holds, of which nobody reads.
                drop(io::stderr().write_all(&vec![b'z'; 1 << 20]));
            }
            _ => (),
        }
        row.fill(0);
        let count = input.bytes.len().min(row.len());
        row[..count].copy_from_slice(&input.bytes[..count]);
        prepared.into_iter().for_each(|it| it.extend(input.bytes.iter().rev()));
        Ok(())
    }
}

/// Makes the call of this number, with arguments that let it do nothing, and says what became of it.
#[expect(unsafe_code, reason = "a system call by its number")]
fn system_call(number: &[u8]) -> String {
    let number = i64::from_le_bytes(number.try_into().unwrap());
    // SAFETY: no call takes these as an address or a descriptor, or as a process.
    let made = unsafe { libc::syscall(number, -1_i64, -1_i64, -1_i64, -1_i64, -1_i64, -1_i64) };
    format!("call {number}: {made}, {}", io::Error::last_os_error())
}

struct Real(Transform);

impl Apply for Real {
    fn apply(
        &mut self,
        input: &Input<'_>,
        row: &mut [u8],
        prepared: Option<&mut Vec<u8>>,
    ) -> Result<(), Defect> {
        self.0.apply(input, row, prepared).map_err(|error| defect(error.to_string()))
    }
}

/// The C library offers this call for threads of the same process only.
#[expect(unsafe_code, reason = "a system call without a safe wrapper")]
fn signal_thread_of_parent() {
    let parent = getppid().map_or(0, |it| it.as_raw_nonzero().get());
    // SAFETY: the call takes numbers only; signal 0 does nothing.
    unsafe { libc::syscall(libc::SYS_tgkill, parent, parent, 0) };
}

#[expect(unsafe_code, reason = "a system call without a safe wrapper")]
fn let_descriptor_signal_parent() {
    let parent = getppid().map_or(0, |it| it.as_raw_nonzero().get());
    // SAFETY: the call takes numbers only.
    unsafe { libc::fcntl(0, libc::F_SETOWN, parent) };
}

fn defect(message: String) -> Defect {
    Defect { kind: DefectKind::Damaged, message }
}

/// Serves when another test starts this program.
#[test]
#[ignore = "no test of its own: others start it"]
fn worker() {
    let socket = io::stdin().as_fd().try_clone_to_owned().unwrap();
    let served = serve(socket, |setup| match setup.pipeline.as_str() {
        "unfit" => Err("no such step".to_owned()),
        "played" => Ok(Box::new(Played) as Box<dyn Apply>),
        steps => {
            let file = serde_json::from_str(steps).unwrap();
            Ok(Box::new(Real(Transform::new(Pipeline::try_new(&file).unwrap(), setup.seed))))
        }
    });
    served.unwrap();
}

fn program() -> Program {
    let arguments = ["--ignored", "--exact", "worker", "--nocapture"];
    Program {
        path: std::env::current_exe().unwrap(),
        arguments: arguments.map(str::to_owned).to_vec(),
    }
}

fn setup() -> Setup {
    Setup {
        parent: process::id(),
        seed: 1,
        pixels_max: 1 << 20,
        time_limit: Duration::from_secs(60),
        niceness: 0,
        pipeline: "played".to_owned(),
    }
}

fn rows(setup: Setup) -> Rows {
    rows_of(program(), setup, ROW).unwrap()
}

fn rows_of(program: Program, setup: Setup, row: usize) -> Result<Rows, StartError> {
    Rows::start_blocking(program, setup, row as u64, NonZeroUsize::MIN)
}

fn transform(rows: &Rows, bytes: &[u8]) -> Result<Vec<u8>, TransformError> {
    rows.of_sample_blocking(SampleId(3), Epoch(0), bytes)
}

#[test]
fn bytes_go_in_and_a_row_comes_out_also_after_a_crash_of_another_sample() {
    let worker = rows(setup());
    assert_eq!(transform(&worker, b"12345678").unwrap(), b"12345678");
    let error = transform(&worker, b"abort").unwrap_err();
    assert!(error.to_string().contains("SIGABRT"), "{error}");
    assert_eq!(transform(&worker, b"87654321").unwrap(), b"87654321");
    // Longer than the memory at first.
    assert_eq!(transform(&worker, &vec![b'1'; 3 << 20]).unwrap(), [b'1'; ROW]);
}

#[test]
fn a_sample_that_cannot_be_transformed_costs_no_worker() {
    let worker = rows(setup());
    for (bytes, why) in [(b"e", "no image"), (b"p", "panicked: a played panic of 3")] {
        let error = transform(&worker, bytes).unwrap_err();
        assert!(
            matches!(&error, TransformError::Untransformable(it) if it.message.contains(why)),
            "{error}"
        );
    }
    assert_eq!(transform(&worker, b"1").unwrap()[0], b'1');
}

#[test]
fn a_panic_costs_no_worker_where_standard_error_is_a_file() {
    let path = std::env::temp_dir().join(format!("transform-worker-{}.log", process::id()));
    let Program { path: test, arguments } = program();
    let script = r#"log=$1; shift; exec "$@" 2> "$log""#;
    let head = ["-c", script, "sh"].map(str::to_owned).into_iter();
    let paths = [&path, &test].map(|it| it.to_str().unwrap().to_owned());
    let arguments = head.chain(paths).chain(arguments).collect();
    let program = Program { path: "/bin/sh".into(), arguments };
    let worker = rows_of(program, setup(), ROW).unwrap();
    let error = transform(&worker, b"p").unwrap_err();
    assert!(error.to_string().contains("a played panic"), "{error}");
    fs::remove_file(path).unwrap();
}

#[test]
fn a_worker_that_hangs_ends_itself_and_is_replaced() {
    let worker = rows(Setup { time_limit: Duration::ZERO, ..setup() });
    let error = transform(&worker, b"hang").unwrap_err();
    assert!(matches!(error, TransformError::TimedOut(_)), "{error}");
    assert_eq!(transform(&worker, b"1").unwrap()[0], b'1');
}

#[test]
fn a_worker_that_ends_at_its_start_says_how() {
    // It ends after its setup came.
    let arguments = ["-c", "head -c 1 > /dev/null; exit 3"].map(str::to_owned).to_vec();
    let program = Program { path: "/bin/sh".into(), arguments };
    let error = rows_of(program, setup(), ROW).unwrap_err();
    assert!(error.to_string().contains("ended with code 3"), "{error}");
}

#[test]
fn a_worker_opens_no_file() {
    let error = transform(&rows(setup()), b"file").unwrap_err().to_string();
    assert!(error.contains("PermissionDenied"), "{error}");
}

#[test]
fn a_worker_that_tries_to_reach_beyond_its_memory_is_killed_and_costs_one_sample() {
    let worker = rows(setup());
    for tries in
        [b"udp", b"tcp", b"local", b"xec", b"kill", b"group", b"owner", b"rename"] as [&[u8]; 8]
    {
        let error = transform(&worker, tries).unwrap_err();
        assert!(matches!(error, TransformError::Crashed(_)), "{error}");
        assert!(error.to_string().contains("SIGSYS (a forbidden system call)"), "{error}");
        assert_eq!(transform(&worker, b"1").unwrap()[0], b'1');
    }
}

/// A sample that lets a worker make a system call.
fn calling(number: i64) -> Vec<u8> {
    [b"s", &number.to_le_bytes()[..]].concat()
}

#[test]
fn a_worker_that_would_change_other_processes_or_the_host_is_killed() {
    let worker = rows(setup());
    for number in [
        libc::SYS_setpriority,
        libc::SYS_ioprio_set,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setattr,
        libc::SYS_migrate_pages,
        libc::SYS_move_pages,
        libc::SYS_process_madvise,
        libc::SYS_reboot,
        libc::SYS_settimeofday,
        libc::SYS_clock_settime,
        libc::SYS_sethostname,
        libc::SYS_swapoff,
        libc::SYS_delete_module,
        libc::SYS_kexec_file_load,
        libc::SYS_open_tree,
        libc::SYS_move_mount,
        libc::SYS_fsopen,
        libc::SYS_quotactl,
    ] {
        let error = transform(&worker, &calling(number)).unwrap_err().to_string();
        assert!(error.contains("SIGSYS (a forbidden system call)"), "call {number}: {error}");
        // The next one starts at once only after one that did something.
        assert_eq!(transform(&worker, b"1").unwrap()[0], b'1');
    }
}

#[test]
fn a_worker_finds_no_other_system_call_than_it_needs() {
    let worker = rows(setup());
    for number in [libc::SYS_ioctl, libc::SYS_getdents64, libc::SYS_statx, libc::SYS_splice, 9999] {
        let error = transform(&worker, &calling(number)).unwrap_err().to_string();
        assert!(error.contains("Function not implemented"), "call {number}: {error}");
    }
}

#[test]
fn a_confined_worker_makes_rows_of_every_kind_of_image() {
    let pipeline = r#"{"steps": [{"random_resized_crop": 16}, {"dtype": "float32"}]}"#;
    let setup = Setup { pipeline: pipeline.to_owned(), ..setup() };
    let worker = rows_of(program(), setup, 16 * 16 * 3 * 4).unwrap();
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../platform/images/tests/fixtures");
    let mut count = 0;
    for fixture in fs::read_dir(fixtures).unwrap() {
        let bytes = fs::read(fixture.unwrap().path()).unwrap();
        transform(&worker, &bytes).unwrap();
        count += 1;
    }
    assert!(count > 10, "{count}");
}

#[test]
fn a_worker_has_no_terminal_no_session_of_its_starter_and_no_capability() {
    let worker = ready();
    assert_eq!(getsid(Some(pid(&worker))).unwrap(), pid(&worker));
    let of_worker = PathBuf::from(format!("/proc/{}", worker.id()));
    let said = fs::read_link(of_worker.join("fd/2")).unwrap();
    assert!(said.to_str().unwrap().starts_with("pipe:"), "{said:?}");
    // The thread that serves is not the first one in this test.
    let threads = fs::read_dir(of_worker.join("task")).unwrap();
    let statuses = threads.map(|it| fs::read_to_string(it.unwrap().path().join("status")).unwrap());
    let served = statuses.filter(|it| it.contains("NoNewPrivs:\t1")).collect::<String>();
    let sets: Vec<_> = served.lines().filter(|it| it.starts_with("Cap")).collect();
    assert_eq!(sets.len(), 5, "{served}");
    let may_drop_all = caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP).unwrap();
    for set in sets.iter().filter(|it| may_drop_all || !it.starts_with("CapBnd")) {
        assert!(set.ends_with(":\t0000000000000000"), "{set}");
    }
}

#[test]
fn the_last_words_of_a_worker_are_told_without_what_moves_a_cursor() {
    let error = transform(&rows(setup()), b"words").unwrap_err().to_string();
    assert!(error.ends_with(", and said \"[2Jthe last words\""), "{error}");
}

#[test]
fn a_worker_that_says_more_than_anybody_reads_goes_on() {
    let worker = rows(setup());
    assert_eq!(transform(&worker, b"z").unwrap()[0], b'z');
    assert_eq!(transform(&worker, b"1").unwrap()[0], b'1');
}

/// A control group whose processes get little memory; removed when dropped.
struct LittleMemory(PathBuf);

impl LittleMemory {
    fn make() -> io::Result<Self> {
        let (root, limit) = match Path::new("/sys/fs/cgroup/memory") {
            first if first.is_dir() => (first, "memory.limit_in_bytes"),
            _ => (Path::new("/sys/fs/cgroup"), "memory.max"),
        };
        let group = Self(root.join(format!("transform-worker-{}", process::id())));
        fs::create_dir(&group.0)?;
        fs::write(group.0.join(limit), (64 << 20).to_string())?;
        Ok(group)
    }

    /// A worker in the group.
    fn worker(&self) -> Program {
        let script = r#"echo $$ > "$0/cgroup.procs" && exec "$@""#;
        let Program { path: test, arguments } = program();
        let head = ["-c", script].map(str::to_owned).into_iter();
        let paths = [&self.0, &test].map(|it| it.to_str().unwrap().to_owned());
        let arguments = head.chain(paths).chain(arguments).collect();
        Program { path: "/bin/sh".into(), arguments }
    }
}

impl Drop for LittleMemory {
    fn drop(&mut self) {
        // A group that stays is empty.
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_worker_that_the_kernel_kills_for_lack_of_memory_is_said_to_be() {
    let group = match LittleMemory::make() {
        Ok(group) => group,
        Err(error) => return skip(Need::MemoryGroups, error),
    };
    let worker = rows_of(group.worker(), setup(), ROW).unwrap();
    assert_eq!(transform(&worker, b"1").unwrap()[0], b'1');
    let error = transform(&worker, b"memory").unwrap_err();
    assert!(error.to_string().contains("for lack of memory"), "{error}");
}

#[test]
fn a_worker_that_is_killed_otherwise_has_not_run_out_of_memory() {
    let worker = ready();
    kill_process(pid(&worker), Signal::KILL).unwrap();
    let ending = worker.end_by_itself();
    assert!(!ending.is_out_of_memory() && ending.to_string() == "ended by SIGKILL", "{ending}");
}

#[test]
fn a_worker_that_is_killed_after_another_ran_out_of_memory_has_not_done_so() {
    let group = match LittleMemory::make() {
        Ok(group) => group,
        Err(error) => return skip(Need::MemoryGroups, error),
    };
    let mut worker = ready();
    let other = rows_of(group.worker(), setup(), ROW).unwrap();
    transform(&other, b"memory").unwrap_err();
    // Without a request nothing comes, and the number of kills is read again after a while.
    let nothing = receive_within(&mut worker, Duration::from_millis(200));
    assert!(matches!(nothing, Arrival::Nothing), "{nothing:?}");
    worker.send(&ToWorker::Request(REQUEST), None).unwrap();
    assert!(matches!(wait_for(&mut worker), FromWorker::Answer { .. }));
    kill_process(pid(&worker), Signal::KILL).unwrap();
    let ending = worker.end_by_itself();
    assert_eq!(ending.to_string(), "ended by SIGKILL");
}

#[test]
fn a_worker_gets_no_variable_of_its_starter_but_where_libraries_lie() {
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "there is one to be hidden");
    let error = transform(&rows(setup()), b"v").unwrap_err().to_string();
    assert!(
        error.contains("variables: []") || error.contains("variables: [\"LD_LIBRARY_PATH\"]"),
        "{error}"
    );
}

fn receive_within(worker: &mut WorkerProcess, patience: Duration) -> Arrival<FromWorker> {
    let mut socket = [PollFd::from_borrowed_fd(worker.as_fd(), PollFlags::IN)];
    poll(&mut socket, Some(&patience.try_into().unwrap())).unwrap();
    worker.receive().unwrap()
}

fn wait_for(worker: &mut WorkerProcess) -> FromWorker {
    match receive_within(worker, Duration::from_secs(30)) {
        Arrival::Packet(packet, _) => packet,
        other => panic!("{other:?}"),
    }
}

fn pid(worker: &WorkerProcess) -> Pid {
    Pid::from_raw(i32::try_from(worker.id()).unwrap()).unwrap()
}

fn ready() -> WorkerProcess {
    let mut worker = WorkerProcess::start(&program(), &setup()).unwrap();
    assert_eq!(wait_for(&mut worker), FromWorker::Ready);
    worker
}

const REQUEST: Request = Request {
    id: 1,
    arena: ArenaId(5),
    slot: Part { offset: 64, len: 32 },
    input_len: 8,
    form: InputForm::Stored,
    after: AfterTransform::Unused,
    row: Part { offset: 0, len: ROW as u64 },
    sample: 0,
    epoch: 0,
};

/// A request for the prepared form, of which `len` bytes are foreseen, of what arrived as `input`.
fn preparing(id: u64, input: &[u8], len: u64) -> ToWorker {
    let after = AfterTransform::Prepared { len, input_sum: sum_of(input) };
    ToWorker::Request(Request { id, after, ..REQUEST })
}

/// A worker that maps the arena of [`REQUEST`], in whose slot bytes lie.
fn ready_with_input() -> (WorkerProcess, Region) {
    let len = Bytes(4096);
    let name = "transform-worker-test";
    let request = RegionRequest { len, locality: Locality::Anywhere, name, pages: Pages::Small };
    let region = Region::reserve(&request).unwrap();
    region.write(Bytes(64), b"12345678 rest").unwrap();
    let mut worker = ready();
    let arena = ToWorker::Arena { arena: ArenaId(5), len: len.0 };
    worker.send(&arena, Some(region.fd())).unwrap();
    (worker, region)
}

#[test]
fn the_prepared_form_replaces_the_input_behind_a_notice() {
    let (mut worker, region) = ready_with_input();
    worker.send(&preparing(1, b"12345678", 8), None).unwrap();
    assert_eq!(wait_for(&mut worker), FromWorker::Replacing { id: 1 });
    let FromWorker::Answer { id: 1, outcome, .. } = wait_for(&mut worker) else {
        panic!("the request failed")
    };
    assert_eq!(outcome, Outcome::Done { prepared_sum: Some(sum_of(b"87654321")) });
    let mut bytes = [0; 13];
    region.read(Bytes(64), &mut bytes).unwrap();
    assert_eq!(&bytes, b"87654321 rest");
    worker.send(&preparing(2, b"87654321", 7), None).unwrap();
    let FromWorker::Answer { id: 2, outcome, .. } = wait_for(&mut worker) else {
        panic!("a form of another length than was foreseen replaces nothing")
    };
    assert_eq!(outcome, Outcome::Done { prepared_sum: None });
    region.read(Bytes(64), &mut bytes).unwrap();
    assert_eq!(&bytes, b"87654321 rest");
}

/// What a trainer wrote to its arena must not reach a tier as the prepared form of a sample.
#[test]
fn bytes_that_changed_since_they_arrived_become_a_row_and_no_prepared_form() {
    let (mut worker, region) = ready_with_input();
    worker.send(&preparing(1, b"12345679", 8), None).unwrap();
    let FromWorker::Answer { id: 1, outcome, .. } = wait_for(&mut worker) else {
        panic!("the input is replaced")
    };
    assert_eq!(outcome, Outcome::Done { prepared_sum: None });
    let mut bytes = [0; 13];
    region.read(Bytes(64), &mut bytes).unwrap();
    assert_eq!(&bytes, b"12345678 rest");
    let mut row = [0; ROW];
    region.read(Bytes(0), &mut row).unwrap();
    assert_eq!(&row, b"12345678");
}

#[test]
fn a_request_that_leaves_its_arena_is_refused_and_the_next_is_served() {
    let (mut worker, _region) = ready_with_input();
    let outside = Request { row: Part { offset: 4095, len: 8 }, ..REQUEST };
    let unknown = Request { arena: ArenaId(6), ..REQUEST };
    for (request, why) in [(outside, "leave 4096 bytes"), (unknown, "no arena 6")] {
        worker.send(&ToWorker::Request(request), None).unwrap();
        let FromWorker::Answer { outcome: Outcome::Failed(reason), .. } = wait_for(&mut worker)
        else {
            panic!("{request:?} was served")
        };
        assert!(reason.contains(why), "{reason}");
    }
    worker.send(&ToWorker::Request(REQUEST), None).unwrap();
    assert!(matches!(
        wait_for(&mut worker),
        FromWorker::Answer { outcome: Outcome::Done { .. }, .. }
    ));
}

/// A worker that a killed process leaves behind is no child of this one, so its end is polled.
#[test]
fn a_worker_ends_with_the_process_that_it_was_told_is_its_starter() {
    let mut starter = process::Command::new("sleep").arg("60").spawn().unwrap();
    let setup = Setup { parent: starter.id(), ..setup() };
    let mut worker = WorkerProcess::start(&program(), &setup).unwrap();
    assert_eq!(wait_for(&mut worker), FromWorker::Ready);
    starter.kill().unwrap();
    starter.wait().unwrap();
    let ended = receive_within(&mut worker, Duration::from_secs(30));
    assert!(matches!(ended, Arrival::End), "{ended:?}");
}

#[test]
fn dropping_a_worker_ends_its_process_also_if_it_is_stopped() {
    let worker = ready();
    let pid = pid(&worker);
    kill_process(pid, Signal::STOP).unwrap();
    drop(worker);
    assert!(test_kill_process(pid).is_err(), "the process {pid:?} is still there");
}
