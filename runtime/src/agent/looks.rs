//! Looks at memory, disks and scratch beside the loop, for each of them may take long or never answer.
//!
//! 1. The loop never waits for a look.
//! 2. Of each place at most one look is open at a time, so a place that does not answer holds one thread,
//!    and delays nothing but its own next look.

use std::{panic, path::PathBuf, sync::Arc};

use tierfeed_core::units::Bytes;
use tierfeed_resource_gatherer::{Available, DiskSpace, Watch};
use tokio::task::{JoinError, JoinSet};

use super::scratch::Scratch;

/// What the node has left, and the limit of its control group.
#[derive(Debug)]
pub(super) struct Room {
    /// `None` if it could not be read.
    pub(super) available: Option<Available>,
    /// `None` if it could not be read.
    #[expect(clippy::option_option, reason = "not looked at, or looked at and without a limit")]
    pub(super) group_limit: Option<Option<Bytes>>,
}

/// What a look brought.
enum Seen {
    Room(Room),
    Disk(usize, Option<DiskSpace>),
    Scratch(Scratch),
}

/// A directory of a tier.
#[derive(Debug)]
struct Disk {
    path: PathBuf,
    /// What it had when it was looked at last; `None` while it does not answer.
    space: Option<DiskSpace>,
    is_open: bool,
}

/// The looks of an agent, open ones and results.
#[derive(Debug)]
pub(super) struct Looks {
    watch: Arc<Watch>,
    is_room_open: bool,
    disks: Vec<Disk>,
    /// `None` while it is looked at, and without one.
    scratch: Option<Scratch>,
    open: JoinSet<Seen>,
}

impl Looks {
    /// Nothing is looked at before [`Self::begin`].
    pub(super) fn new(watch: Watch, directories: Vec<PathBuf>, scratch: Option<Scratch>) -> Self {
        let disk = |path| Disk { path, space: None, is_open: false };
        Self {
            watch: Arc::new(watch),
            is_room_open: false,
            disks: directories.into_iter().map(disk).collect(),
            scratch,
            open: JoinSet::new(),
        }
    }

    /// Looks at everything once more that has answered the last look.
    pub(super) fn begin(&mut self) {
        for (at, disk) in self.disks.iter_mut().enumerate() {
            if disk.is_open {
                if disk.space.take().is_some() {
                    tracing::warn!(path = %disk.path.display(), "a disk does not answer");
                }
                continue;
            }
            disk.is_open = true;
            let path = disk.path.clone();
            self.open.spawn_blocking(move || Seen::Disk(at, DiskSpace::read(&path)));
        }
        if let Some(mut scratch) = self.scratch.take() {
            self.open.spawn_blocking(move || {
                scratch.look();
                Seen::Scratch(scratch)
            });
        }
        if !self.is_room_open {
            self.is_room_open = true;
            let watch = Arc::clone(&self.watch);
            self.open.spawn_blocking(move || Seen::Room(room(&watch)));
        }
    }

    /// The next answer about the node, with what the disks last said; `None` if nothing is looked at.
    /// Nothing is lost if the wait is given up.
    pub(super) async fn next(&mut self) -> Option<Room> {
        loop {
            let seen = self.open.join_next().await?;
            if let Some(room) = self.note(seen) {
                return Some(room);
            }
        }
    }

    /// The scratch of the job once no look is open there; `None` if there is none.
    pub(super) async fn end(mut self) -> Option<Scratch> {
        while self.scratch.is_none() {
            let seen = self.open.join_next().await?;
            self.note(seen);
        }
        self.scratch
    }

    fn note(&mut self, seen: Result<Seen, JoinError>) -> Option<Room> {
        match seen {
            Ok(Seen::Disk(at, space)) => {
                let disk = &mut self.disks[at];
                (disk.space, disk.is_open) = (space, false);
            }
            Ok(Seen::Scratch(scratch)) => self.scratch = Some(scratch),
            Ok(Seen::Room(mut room)) => {
                self.is_room_open = false;
                let disks = self.disks.iter().filter_map(|disk| disk.space.clone());
                room.available.iter_mut().for_each(|it| it.disks = disks.clone().collect());
                return Some(room);
            }
            // A watch that is lost would never be missed: better no agent than one that is blind.
            Err(error) => panic::resume_unwind(error.into_panic()),
        }
        None
    }
}

fn room(watch: &Watch) -> Room {
    let unread = |error: &dyn std::error::Error| {
        tracing::warn!(%error, "free memory cannot be read; tiers stay as they are");
    };
    Room {
        available: watch.read().inspect_err(|error| unread(error)).ok(),
        group_limit: watch.group_limit().inspect_err(|error| unread(error)).ok(),
    }
}

#[cfg(test)]
mod tests;
