//! Reads how many tasks want a CPU.

use serde::{Deserialize, Serialize};

use crate::sysroot::{Sysroot, optional};

/// The tasks of the host that run or wait for a CPU or a disk.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Load {
    pub one_minute: f64,
    /// Tasks that want a CPU right now, including the one that asks.
    #[serde(rename = "runnable_tasks")]
    pub runnable: u32,
}

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
