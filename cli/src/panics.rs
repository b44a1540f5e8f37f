//! Makes a panic on any thread of a manager or an agent end the whole process.
//!
//! A process without one of its threads would not answer: trainers would wait for its agent for ever, and no
//! supervisor would notice. When the process ends, trainers immediately continue by reading themselves.

use std::{panic, process};

use crate::deadline;

/// The exit code of Rust after a panic of the main thread.
pub(crate) const EXIT_CODE: i32 = 101;

/// From now on a panic ends this process. The stack is not unwound, so no destructor can block.
pub(crate) fn end_this_process() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        deadline::start(deadline::AFTER_PANIC);
        print(panic);
        process::exit(EXIT_CODE);
    }));
}
