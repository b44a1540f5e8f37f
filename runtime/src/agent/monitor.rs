//! Measures free memory, disks and scratch beside the loop, because each call may take long or hang.
//!
//! 1. The loop never waits for a measurement.
//! 2. At most one measurement of each subject runs at a time, so a subject that hangs holds one thread and
//!    delays its own next measurement only.

use std::{panic, path::PathBuf, sync::Arc};

use tierfeed_core::units::Bytes;
use tierfeed_resource_gatherer::{Available, DiskSpace, Watch};
use tokio::task::{JoinError, JoinSet};

use super::scratch::Scratch;

#[derive(Debug)]
pub(super) struct Availability {
    /// `None` if it could not be read.
    pub(super) available: Option<Available>,
    /// `None` if it could not be read.
    #[expect(clippy::option_option, reason = "not measured, or measured and without a limit")]
    pub(super) group_limit: Option<Option<Bytes>>,
}

enum Observation {
    /// With the processes of the job that it found or was given.
    Availability(Availability, Vec<u32>),
    Disk(usize, Option<DiskSpace>),
    Scratch(Scratch),
}

#[derive(Debug)]
struct Disk {
    path: PathBuf,
    /// Its last result; `None` while it does not answer.
    space: Option<DiskSpace>,
    is_open: bool,
}

#[derive(Debug)]
pub(super) struct Monitor {
    watch: Arc<Watch>,
    is_availability_open: bool,
    /// The processes of the job, if they need not be looked for again.
    job_processes: Option<Vec<u32>>,
    disks: Vec<Disk>,
    /// `None` while it is measured, and if the job has none.
    scratch: Option<Scratch>,
    open: JoinSet<Observation>,
}

impl Monitor {
    /// Nothing is measured before [`Self::measure`].
    pub(super) fn new(watch: Watch, directories: Vec<PathBuf>, scratch: Option<Scratch>) -> Self {
        let disk = |path| Disk { path, space: None, is_open: false };
        Self {
            watch: Arc::new(watch),
            is_availability_open: false,
            job_processes: None,
            disks: directories.into_iter().map(disk).collect(),
            scratch,
            open: JoinSet::new(),
        }
    }

    /// Starts a measurement of every subject whose last one has ended, and looks for new processes of the job.
    pub(super) fn measure(&mut self) {
        for (at, disk) in self.disks.iter_mut().enumerate() {
            if disk.is_open {
                if disk.space.take().is_some() {
                    tracing::warn!(path = %disk.path.display(), "a disk does not answer");
                }
                continue;
            }
            disk.is_open = true;
            let path = disk.path.clone();
            self.open.spawn_blocking(move || Observation::Disk(at, DiskSpace::read(&path)));
        }
        if let Some(mut scratch) = self.scratch.take() {
            self.open.spawn_blocking(move || {
                scratch.look();
                Observation::Scratch(scratch)
            });
        }
        self.job_processes = None;
        self.measure_memory();
    }

    /// Starts a measurement of free memory, if the last one has ended. It reads what the known processes of the job
    /// hold: looking for others reads all processes of the host, too much for twenty times a second.
    pub(super) fn measure_memory(&mut self) {
        if !self.is_availability_open {
            self.is_availability_open = true;
            let (watch, known) = (Arc::clone(&self.watch), self.job_processes.take());
            self.open.spawn_blocking(move || {
                let processes = known.unwrap_or_else(|| watch.job_processes());
                Observation::Availability(availability(&watch, &processes), processes)
            });
        }
    }

    /// The next result for the node, with the last ones of the disks; `None` if nothing is measured.
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Availability> {
        loop {
            let observation = self.open.join_next().await?;
            if let Some(availability) = self.note(observation) {
                return Some(availability);
            }
        }
    }

    /// The scratch of the job once no measurement of it runs; `None` if there is none.
    pub(super) async fn end(mut self) -> Option<Scratch> {
        while self.scratch.is_none() {
            let observation = self.open.join_next().await?;
            self.note(observation);
        }
        self.scratch
    }

    fn note(&mut self, observation: Result<Observation, JoinError>) -> Option<Availability> {
        match observation {
            Ok(Observation::Disk(at, space)) => {
                let disk = &mut self.disks[at];
                (disk.space, disk.is_open) = (space, false);
            }
            Ok(Observation::Scratch(scratch)) => self.scratch = Some(scratch),
            Ok(Observation::Availability(mut availability, processes)) => {
                self.is_availability_open = false;
                self.job_processes = Some(processes);
                let disks = self.disks.iter().filter_map(|disk| disk.space.clone());
                availability.available.iter_mut().for_each(|it| it.disks = disks.clone().collect());
                return Some(availability);
            }
            // Without it memory pressure would go unnoticed: the agent ends instead.
            Err(error) => panic::resume_unwind(error.into_panic()),
        }
        None
    }
}

fn availability(watch: &Watch, job_processes: &[u32]) -> Availability {
    let unread = |error: &dyn std::error::Error| {
        tracing::warn!(%error, "free memory cannot be read; tiers stay as they are");
    };
    Availability {
        available: watch.read_with(job_processes).inspect_err(|error| unread(error)).ok(),
        group_limit: watch.group_limit().inspect_err(|error| unread(error)).ok(),
    }
}

#[cfg(test)]
mod tests;
