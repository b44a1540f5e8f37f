//! Keeps a used sample if and only if its next use on this node is near enough.

use super::{Policy, Read, Setting};
use crate::{
    books::Books,
    horizon::Horizon,
    id::{SampleId, TierId},
};

/// Pins what fits, in the fastest tier that has room.
#[derive(Debug)]
pub(super) struct Gap {
    epochs: u32,
}

impl Gap {
    pub(super) fn new(setting: &Setting) -> Self {
        Self { epochs: setting.order.epochs }
    }
}

impl Policy for Gap {
    fn read(&mut self, read: Read, _: &Horizon, books: &mut Books) {
        if read.at.epoch.0 + 1 >= self.epochs || books.tier_of(read.sample).is_some() {
            return;
        }
        let len = books.len_of(read.sample);
        let room = books.tiers().find(|tier| books.free(*tier) >= len);
        if let Some(tier) = room {
            // There is room: the tier was chosen for it.
            _ = books.put(read.sample, tier);
        }
    }

    fn displaced(&mut self, _: SampleId, _: TierId, _: Option<TierId>) {}
}
