//! The log of all schedules of a run, `schedules.jsonl`: a line of JSON for each generation, with what asked
//! for it, and for each epoch in which a node applied the next one.
//!
//! The simulator repeats the decisions of a run with it.

use std::{
    fs::OpenOptions,
    io::{self, BufRead, BufReader, Write},
    path::Path,
};

use serde::{Deserialize, Serialize};
use tierfeed_core::retention::form::Form;

use crate::observe::{observed::ObservedEntry, schedule::ScheduleEntry};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum ScheduleRecord {
    Scheduled {
        node: u32,
        /// The number of processes that worked as this node before.
        process: u32,
        schedule: Box<ScheduleEntry>,
        /// The observations that asked for it; `None` for the first.
        observed: Option<ObservedEntry>,
    },
    Applied {
        node: u32,
        generation: u32,
        epoch: u32,
    },
    /// The caches of a node may hold more or less than before, because free memory changed, memory was lent, or an
    /// allocation was refused.
    Resized {
        node: u32,
        /// The batches that it had handed over by then.
        batches: u64,
        /// The bytes that each cache may hold now, in the order of the tiers of the schedule.
        cache_bytes: Vec<u64>,
    },
}

impl ScheduleRecord {
    /// Appends it to the log at `path`.
    pub(crate) fn append(&self, path: &Path) -> io::Result<()> {
        let line = serde_json::to_string(self)? + "\n";
        OpenOptions::new().create(true).append(true).open(path)?.write_all(line.as_bytes())
    }
}

/// The form in which tiers hold samples by the log at `path`, if it says so. A line that cannot be read does not
/// count: the manager that wrote it may have been killed.
pub(crate) fn held_form(path: &Path) -> Option<Form> {
    let lines = BufReader::new(std::fs::File::open(path).ok()?).lines();
    let forms =
        lines.map_while(Result::ok).filter_map(|line| match serde_json::from_str(&line).ok()? {
            ScheduleRecord::Scheduled { schedule, .. } => schedule.transform.map(|it| it.form),
            ScheduleRecord::Applied { .. } | ScheduleRecord::Resized { .. } => None,
        });
    forms.last()
}

/// Reads the log at `path`.
///
/// # Errors
///
/// If the file cannot be read; with [`io::ErrorKind::InvalidData`] if a line is none of a log.
pub fn read(path: &Path) -> io::Result<Vec<ScheduleRecord>> {
    let lines = BufReader::new(std::fs::File::open(path)?).lines();
    lines.map(|line| Ok(serde_json::from_str(&line?)?)).collect()
}

#[cfg(test)]
mod tests {
    use tierfeed_core::fleet::first_schedule;

    use super::*;

    #[test]
    fn what_is_logged_is_read_back_also_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("schedules.jsonl");
        let offer = crate::schedule::tests::offer(200);
        let schedule = first_schedule::of(&crate::schedule::tests::inputs(), &offer).unwrap();
        let schedule = Box::new(ScheduleEntry::of(&schedule, &offer));
        let scheduled = ScheduleRecord::Scheduled { node: 3, process: 0, schedule, observed: None };
        let applied = ScheduleRecord::Applied { node: 3, generation: 0, epoch: 7 };
        let cache_bytes = vec![33 << 20, 0];
        let resized = ScheduleRecord::Resized { node: 3, batches: 12, cache_bytes };
        for record in [&scheduled, &applied, &resized] {
            record.append(&path).unwrap();
        }
        assert_eq!(read(&path).unwrap(), [scheduled, applied, resized]);
        std::fs::write(&path, "{}\n").unwrap();
        assert_eq!(read(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
