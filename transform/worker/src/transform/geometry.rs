//! Finds the pixels of an image that the steps of a pipeline need, computed from the end.

use tierfeed_images::{Region, Section, Size};
use tierfeed_transform::{self as transform, Operation};

use super::TransformError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Black pixels are added, so that the image begins at this column and row.
    Pad {
        left: u32,
        top: u32,
    },
    /// A region stays.
    Crop(Region),
    Resize,
    Flip,
}

/// A change, the sizes of the whole image before and after it, and the parts of it that are computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stage {
    pub(super) change: Change,
    pub(super) before: Size,
    pub(super) after: Size,
    /// The part of the image before that the wanted part depends on.
    pub(super) needed: Region,
    /// The part of the image after.
    pub(super) wanted: Region,
}

impl Stage {
    pub(super) fn section(&self) -> Section {
        Section { from: self.before, to: self.after, wanted: self.wanted }
    }

    /// The column and row of the wanted part at which the needed part of a framed image lies.
    pub(super) fn place_in_frame(&self, left: u32, top: u32) -> Option<(u32, u32)> {
        let place = |frame: u32, needed: u32, wanted: u32, length: u32| {
            (frame + needed).checked_sub(wanted).filter(|it| *it < length)
        };
        let Self { needed, wanted, .. } = self;
        let column = place(left, needed.left, wanted.left, wanted.width)?;
        Some((column, place(top, needed.top, wanted.top, wanted.height)?))
    }

    fn need(&mut self, wanted: Region) -> Region {
        self.wanted = wanted;
        self.needed = match self.change {
            Change::Pad { left, top } => uncovered(self.before, (left, top), wanted),
            Change::Crop(region) => wanted.moved_by(region),
            Change::Resize => self.section().needed(),
            Change::Flip => {
                Region { left: self.before.width - wanted.left - wanted.width, ..wanted }
            }
        };
        self.needed
    }
}

/// The stages of operations on an image of this size, and the part of it that the result needs.
///
/// # Errors
///
/// An image between them has more pixels than `pixels_max`.
pub(super) fn stages(
    size: Size,
    operations: &[Operation],
    pixels_max: u64,
) -> Result<(Vec<Stage>, Region), TransformError> {
    let mut stages = Vec::with_capacity(operations.len());
    let mut before = size;
    for operation in operations {
        let (change, after) = change(*operation, before);
        if after.pixels() > pixels_max {
            let Size { width, height } = after;
            return Err(TransformError::TooLarge { width, height, pixels_max });
        }
        let (needed, wanted) = (Region::whole(before), Region::whole(after));
        stages.push(Stage { change, before, after, needed, wanted });
        before = after;
    }
    let wanted = Region::whole(before);
    let needed = stages.iter_mut().rev().fold(wanted, |wanted, stage| stage.need(wanted));
    Ok((stages, needed))
}

fn change(operation: Operation, before: Size) -> (Change, Size) {
    match operation {
        Operation::Pad { top, left, size } => (Change::Pad { left, top }, size_of(size)),
        Operation::Crop(region) => (Change::Crop(region_of(region)), size_of(region.size)),
        Operation::Resize(size) => (Change::Resize, size_of(size)),
        Operation::FlipHorizontal => (Change::Flip, before),
    }
}

pub(super) fn size_of(size: transform::Size) -> Size {
    Size { width: size.width, height: size.height }
}

pub(super) fn region_of(region: transform::Region) -> Region {
    let transform::Region { top, left, size: transform::Size { height, width } } = region;
    Region { left, top, width, height }
}

/// The part of an image that shows in a part of it with a frame. One pixel, if none shows.
fn uncovered(size: Size, (left, top): (u32, u32), wanted: Region) -> Region {
    let (left, width) = overlap(size.width, left, wanted.columns());
    let (top, height) = overlap(size.height, top, wanted.rows());
    Region { left, top, width, height }
}

fn overlap(length: u32, frame: u32, wanted: std::ops::Range<u32>) -> (u32, u32) {
    let first = wanted.start.saturating_sub(frame).min(length - 1);
    let last = wanted.end.saturating_sub(frame).clamp(first + 1, length);
    (first, last - first)
}
