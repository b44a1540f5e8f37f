//! A panic on any thread of a manager or an agent ends the whole process.
//!
//! A thread that is gone would leave the process deaf: trainers would wait for an agent that never answers
//! again, and no supervisor would notice. When the process ends, trainers read on alone at once.
//!
//! `tierfeed run` is also the parent of its trainers, and a batch system ends a job when that ends. So it
//! becomes another program in place, `tierfeed attend`, which only waits for them: the kernel ends all other
//! threads and closes what they held.

use std::{
    ffi::OsString,
    os::unix::process::CommandExt,
    panic,
    process::{self, Command},
    sync::{Mutex, MutexGuard, PoisonError, TryLockError},
    thread,
    time::Duration,
};

use nix::unistd::Pid;

use crate::deadline;
#[cfg(debug_assertions)]
use crate::environment;

/// What Rust itself ends with after a panic of the main thread.
const EXIT_CODE: i32 = 101;

/// Processes that this one must wait for.
static TRAINERS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// How long a panic waits for trainers that are being started.
const STARTED_WITHIN: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// From now on a panic ends this process, but for what it has to wait for; nothing is unwound, so nothing
/// waits for what is broken.
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

/// From now on the place that a test names panics. Only a build with debug assertions can be told to.
pub(crate) fn arm_drill() {
    #[cfg(debug_assertions)]
    environment::arm_drill();
}

/// Holds back a panic while trainers are started, so that all of them are or none is: who starts one adds it.
pub(crate) fn starting_trainers() -> MutexGuard<'static, Vec<Pid>> {
    TRAINERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All that were started. Without them if they are not in time, as where starting them is what panicked.
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

/// Becomes a process that waits for trainers. Returns if the system refuses.
fn attend(trainers: &[Pid]) {
    let pids = trainers.iter().map(|pid| OsString::from(pid.as_raw().to_string()));
    let error = Command::new("/proc/self/exe").arg("attend").args(pids).exec();
    tracing::error!(%error, "the trainers cannot be waited for");
}
