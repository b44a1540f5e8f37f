//! Assigns events to tracks.

use std::collections::BTreeMap;

use tierfeed_core::units::Nanoseconds;

#[derive(Debug, Default)]
pub(super) struct Tracks {
    names: Vec<String>,
    shared: BTreeMap<String, u32>,
    /// The tracks of each group, with the end of the last slice on each.
    lanes: BTreeMap<String, Vec<(u32, Nanoseconds)>>,
}

impl Tracks {
    pub(super) fn shared(&mut self, name: &str) -> u32 {
        if let Some(tid) = self.shared.get(name) {
            return *tid;
        }
        let tid = self.open(name.to_owned());
        self.shared.insert(name.to_owned(), tid);
        tid
    }

    /// A track of a group that is free from `at` to `end`; slices come in the order of their starts.
    pub(super) fn free(&mut self, group: &str, at: Nanoseconds, end: Nanoseconds) -> u32 {
        let lanes = self.lanes.entry(group.to_owned()).or_default();
        if let Some((tid, free_at)) = lanes.iter_mut().find(|(_, free_at)| *free_at <= at) {
            *free_at = end;
            return *tid;
        }
        let number = lanes.len() + 1;
        let tid = self.open(format!("{group} {number}"));
        self.lanes.entry(group.to_owned()).or_default().push((tid, end));
        tid
    }

    pub(super) fn names(&self) -> impl Iterator<Item = (u32, &str)> {
        (1..).zip(self.names.iter().map(String::as_str))
    }

    fn open(&mut self, name: String) -> u32 {
        self.names.push(name);
        u32::try_from(self.names.len()).unwrap_or(u32::MAX)
    }
}
