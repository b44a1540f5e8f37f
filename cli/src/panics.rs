//! Makes a panic on any thread of a manager or an agent end the whole process.
//!
//! A process without one of its threads would not answer: trainers would wait for its agent for ever, and no
//! supervisor would notice. When the process ends, trainers immediately continue by reading themselves.
//!
//! `tierfeed run` is also the parent of its trainers, and a batch system ends a job with it. So after a panic
//! it replaces itself (`execve`) by `tierfeed attend`, which only waits for the trainers: the kernel ends all
//! other threads and closes their descriptors.

use std::{
    ffi::OsString,
    os::unix::process::CommandExt,
    panic,
    process::{self, Command},
    sync::{
        Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use nix::unistd::Pid;
use tierfeed_core::units::Nanoseconds;

use crate::deadline;
#[cfg(debug_assertions)]
use crate::environment;

/// The exit code of Rust after a panic of the main thread.
const EXIT_CODE: i32 = 101;

/// The trainers that this process must wait for.
static TRAINERS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// How long they may take to end after a signal, in nanoseconds.
static GRACE_NS: AtomicU64 = AtomicU64::new(0);

/// How long a panic waits for trainers that are being started.
const STARTED_WITHIN: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// From now on a panic ends this process, or replaces it if it has trainers to wait for. The stack is not
/// unwound, so no destructor can block.
pub(crate) fn end_this_process() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let trainers = trainers();
        if !trainers.is_empty() {
            print(panic);
            attend(&trainers);
        }
        deadline::start(deadline::AFTER_PANIC);
        print(panic);
        process::exit(EXIT_CODE);
    }));
}

/// From now on trainers that outlive a panic of this process have so long to end after a signal.
pub(crate) fn give_grace(grace: Nanoseconds) {
    GRACE_NS.store(grace.0, Ordering::Relaxed);
}

/// From now on the point that a test names panics. Works only in builds with debug assertions.
pub(crate) fn arm_drill() {
    #[cfg(debug_assertions)]
    environment::arm_drill();
}

/// A lock that delays the panic handler while trainers are started, so that it sees all of them. The caller
/// adds each trainer.
pub(crate) fn starting_trainers() -> MutexGuard<'static, Vec<Pid>> {
    TRAINERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The trainers that were started; none if the lock is not free in time, as after a panic of the starter.
#[expect(clippy::disallowed_methods, reason = "a thread that panics must not wait for a lock")]
fn trainers() -> Vec<Pid> {
    for _ in 0..STARTED_WITHIN.as_millis() / LOOK_EVERY.as_millis() {
        match TRAINERS.try_lock() {
            Ok(trainers) => return trainers.clone(),
            Err(TryLockError::Poisoned(trainers)) => return trainers.into_inner().clone(),
            Err(TryLockError::WouldBlock) => thread::sleep(LOOK_EVERY),
        }
    }
    Vec::new()
}

/// Replaces this process by one that waits for trainers. Returns only on failure.
fn attend(trainers: &[Pid]) {
    let pids = trainers.iter().map(|pid| OsString::from(pid.as_raw().to_string()));
    let grace = format!("{} ns", GRACE_NS.load(Ordering::Relaxed));
    let mut command = Command::new("/proc/self/exe");
    let error = command.args(["attend", "--grace", &grace]).args(pids).exec();
    tracing::error!(%error, "the trainers cannot be waited for");
}
