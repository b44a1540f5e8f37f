//! Pixels in memory: bytes, interleaved, in rows.

use crate::{Region, Size};

/// What each pixel consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Channels {
    /// One byte: brightness.
    Grey,
    /// Three bytes: red, green, blue.
    #[default]
    Rgb,
}

impl Channels {
    /// Bytes of a pixel.
    #[must_use]
    pub fn count(self) -> usize {
        match self {
            Self::Grey => 1,
            Self::Rgb => 3,
        }
    }
}

/// A larger buffer is given back by the first image that needs no more than this.
const KEPT_MAX: usize = 64 << 20;

/// Makes `bytes` at least `length` long, with any content. The memory of a buffer above [`KEPT_MAX`] is given back
/// first, unless `length` needs as much.
pub(crate) fn make_room(bytes: &mut Vec<u8>, length: usize) {
    if bytes.len() > KEPT_MAX && length <= KEPT_MAX {
        *bytes = Vec::new();
    }
    if bytes.len() < length {
        bytes.resize(length, 0);
    }
}

/// Bytes behind the last row, so that kernels can load whole vectors there.
const SLACK: usize = 32;

/// Pixels that this value owns, with room for the next image.
#[derive(Debug)]
pub struct Image {
    /// At least what the rows need, and [`SLACK`].
    bytes: Vec<u8>,
    /// Where the first pixel lies.
    start: usize,
    stride: usize,
    size: Size,
    channels: Channels,
}

impl Default for Image {
    fn default() -> Self {
        Self {
            bytes: vec![0; SLACK],
            start: 0,
            stride: 0,
            size: Size { width: 0, height: 0 },
            channels: Channels::Rgb,
        }
    }
}

impl Image {
    /// The pixels.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View {
            bytes: &self.bytes[self.start..],
            stride: self.stride,
            size: self.size,
            channels: self.channels,
        }
    }

    /// Makes room for an image of this size, and returns it with the length of a row in bytes. What
    /// it holds is that of earlier images.
    pub(crate) fn reset(&mut self, size: Size, channels: Channels) -> (&mut [u8], usize) {
        let stride = size.width as usize * channels.count();
        let length = stride * size.height as usize;
        *self = Self { bytes: std::mem::take(&mut self.bytes), start: 0, stride, size, channels };
        make_room(&mut self.bytes, length + SLACK);
        (&mut self.bytes[..length], stride)
    }

    /// Cuts off what lies outside of a region.
    pub(crate) fn crop(&mut self, region: Region) {
        assert!(region.is_within(self.size), "{region:?} is not within {:?}", self.size);
        self.start +=
            region.top as usize * self.stride + region.left as usize * self.channels.count();
        self.size = region.size();
    }

    /// Becomes a copy of an image.
    pub fn copy(&mut self, view: View<'_>) {
        self.reset(view.size(), view.channels());
        self.paste(view, 0, 0);
    }

    /// Becomes a black image.
    pub fn blacken(&mut self, size: Size, channels: Channels) {
        self.reset(size, channels).0.fill(0);
    }

    /// Replaces the pixels from this column and row on by those of another image.
    ///
    /// # Panics
    ///
    /// If that does not fit, or has other channels.
    pub fn paste(&mut self, view: View<'_>, left: u32, top: u32) {
        let Size { width, height } = view.size();
        let region = Region { left, top, width, height };
        assert!(region.is_within(self.size), "{region:?} is not within {:?}", self.size);
        assert_eq!(view.channels(), self.channels, "channels");
        let first = self.start + left as usize * self.channels.count();
        for row in 0..height {
            let at = first + (top + row) as usize * self.stride;
            let pixels = view.row(row);
            self.bytes[at..at + pixels.len()].copy_from_slice(pixels);
        }
    }
}

/// Pixels that another value owns.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// From the first pixel on, and beyond the last one.
    pub(crate) bytes: &'a [u8],
    /// Bytes from one row to the next.
    pub(crate) stride: usize,
    pub(crate) size: Size,
    pub(crate) channels: Channels,
}

impl<'a> View<'a> {
    /// Pixels in bytes of the caller, row after row without gaps, or `None` if they are too few.
    #[must_use]
    pub fn of(bytes: &'a [u8], size: Size, channels: Channels) -> Option<Self> {
        let stride = size.width as usize * channels.count();
        let needed = stride.checked_mul(size.height as usize)?;
        (needed <= bytes.len()).then_some(Self { bytes, stride, size, channels })
    }

    /// The size in pixels.
    #[must_use]
    pub fn size(&self) -> Size {
        self.size
    }

    /// What each pixel consists of.
    #[must_use]
    pub fn channels(&self) -> Channels {
        self.channels
    }

    /// The bytes of a row.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    #[must_use]
    pub fn row(&self, row: u32) -> &'a [u8] {
        assert!(row < self.size.height, "row {row} of {}", self.size.height);
        let start = row as usize * self.stride;
        &self.bytes[start..start + self.size.width as usize * self.channels.count()]
    }

    /// A part of the image.
    ///
    /// # Panics
    ///
    /// If the region is not within it.
    #[must_use]
    pub fn cropped(&self, region: Region) -> Self {
        assert!(region.is_within(self.size), "{region:?} is not within {:?}", self.size);
        let start =
            region.top as usize * self.stride + region.left as usize * self.channels.count();
        Self { bytes: &self.bytes[start..], size: region.size(), ..*self }
    }
}

/// Converts a pixel of one to four channels, the second or fourth of which is opacity and dropped.
///
/// **Source**: the weights of brightness are those of Pillow and torchvision, ITU-R 601 in 16 bits.
pub(crate) fn store_pixel(pixel: &[u8], result: &mut [u8]) {
    match (pixel, result) {
        ([level] | [level, _], result) => result.fill(*level),
        ([red, green, blue, ..], [grey]) => {
            let [red, green, blue] = [*red, *green, *blue].map(u32::from);
            let level = (19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16;
            *grey = u8::try_from(level).expect("the weights are 1 together");
        }
        ([red, green, blue, ..], result) => result.copy_from_slice(&[*red, *green, *blue]),
        ([], _) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_huge_image_is_given_back_by_the_next_one() {
        let mut image = Image::default();
        let size = |height| Size { width: 1 << 13, height };
        image.blacken(size(1 << 12), Channels::Rgb);
        assert!(image.bytes.capacity() > KEPT_MAX);
        image.blacken(size(1 << 11), Channels::Rgb);
        let kept = image.bytes.capacity();
        assert!(kept <= KEPT_MAX + SLACK, "{kept}");
        image.blacken(size(1), Channels::Rgb);
        assert_eq!(image.bytes.capacity(), kept, "memory of usual images is used again");
    }
}
