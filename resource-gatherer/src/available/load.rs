//! Reads how many tasks want a CPU.

use crate::sysroot::{Sysroot, optional};

/// The tasks of the host that run or wait for a CPU or a disk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Their number, averaged over the last minute.
    pub one_minute: f64,
    /// Those that want a CPU right now, the one that asks included.
    pub runnable: u32,
}

/// The load of the host.
pub(crate) fn read(sysroot: Sysroot<'_>) -> Option<Load> {
    parse(&optional(&sysroot.join("proc/loadavg"))?)
}

/// `1.50 0.75 0.83 3/113 12818`: three averages, runnable and all tasks, the last process.
#[must_use]
pub fn parse(text: &str) -> Option<Load> {
    let mut fields = text.split_whitespace();
    let one_minute = fields.next()?.parse().ok().filter(|load: &f64| load.is_finite())?;
    let (runnable, _) = fields.nth(2)?.split_once('/')?;
    Some(Load { one_minute, runnable: runnable.parse().ok()? })
}
