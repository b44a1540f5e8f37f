//! JPEG, by libjpeg-turbo: the region of an image, with the pixels that the whole image has there.
//!
//! Rows above the region are entropy-decoded but not transformed, columns beside it are not transformed,
//! and nothing is decoded below it. Inverse DCT and upsampling are the accurate ones, which torchvision
//! and Pillow use too. CMYK and YCCK become RGB as they convert it. Damaged data is decoded as far as the
//! library can, as they do; a truncated file is an error.

#[expect(unsafe_code, reason = "calls of C")]
mod shim;

use crate::{Channels, DecodeError, Image, Region, Size};

/// More scans than any encoder makes of a progressive image; each costs time for all its pixels.
const SCANS_MAX: u32 = 100;

/// How the inverse DCT is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dct {
    /// As torchvision and Pillow compute it.
    #[default]
    Exact,
    /// With less precision: pixels differ by some levels.
    Fast,
}

/// At which size an image is decoded, in eighths of its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    eighths: u32,
}

impl Scale {
    /// The image as it is.
    pub const WHOLE: Self = Self { eighths: 8 };

    /// The smallest scale of one, two or four eighths, or one, that keeps `region` at least as large
    /// as `target` in both directions.
    #[must_use]
    pub fn for_target(region: Size, target: Size) -> Self {
        let keeps = |eighths: u64| {
            u64::from(region.width) * eighths >= u64::from(target.width) * 8
                && u64::from(region.height) * eighths >= u64::from(target.height) * 8
        };
        let eighths = [1, 2, 4].into_iter().find(|it| keeps(u64::from(*it))).unwrap_or(8);
        Self { eighths }
    }

    /// The size of the scaled image.
    #[must_use]
    pub fn size(self, whole: Size) -> Size {
        let scaled = |length: u32| {
            let (blocks, rest) = (length / 8, length % 8);
            blocks * self.eighths + (rest * self.eighths).div_ceil(8)
        };
        Size { width: scaled(whole.width), height: scaled(whole.height) }
    }

    /// The pixels of the scaled image that show a region of the whole image, rounded to full pixels.
    #[must_use]
    pub fn region(self, whole: Size, region: Region) -> Region {
        let size = self.size(whole);
        let at = |it: u32| it / 8 * self.eighths + (it % 8 * self.eighths + 4) / 8;
        let scaled = |start: u32, length: u32, end: u32| {
            let first = at(start).min(end - 1);
            (first, at(start + length).clamp(first + 1, end) - first)
        };
        let (left, width) = scaled(region.left, region.width, size.width);
        let (top, height) = scaled(region.top, region.height, size.height);
        Region { left, top, width, height }
    }
}

impl Default for Scale {
    fn default() -> Self {
        Self::WHOLE
    }
}

/// Decodes JPEG images, one after another.
#[derive(Default)]
pub(crate) struct Decompressor {
    shim: Option<shim::Decompressor>,
}

impl Decompressor {
    pub(crate) fn size(&mut self, bytes: &[u8]) -> Result<Size, DecodeError> {
        let (width, height) =
            self.shim()?.measure(bytes).map_err(|message| DecodeError::Jpeg { message })?;
        Ok(Size { width, height })
    }

    /// Decodes a region, in pixels of the scaled image.
    pub(crate) fn decode(
        &mut self,
        bytes: &[u8],
        region: Region,
        (channels, dct, scale): (Channels, Dct, Scale),
        image: &mut Image,
    ) -> Result<(), DecodeError> {
        let request = shim::Request {
            left: region.left,
            top: region.top,
            width: region.width,
            height: region.height,
            eighths: scale.eighths,
            colour: match channels {
                Channels::Rgb => shim::COLOUR_RGB,
                Channels::Grey => shim::COLOUR_GREY,
            },
            has_fast_dct: u32::from(dct == Dct::Fast),
            scans_max: SCANS_MAX,
        };
        let failed = |message| DecodeError::Jpeg { message };
        let running = self.shim()?.begin(bytes, &request).map_err(failed)?;
        let rows = running.rows();
        let size = Size { width: rows.width, height: region.height };
        let (pixels, _) = image.reset(size, channels);
        running.read(pixels).map_err(failed)?;
        image.crop(Region { left: rows.left, top: 0, ..region });
        Ok(())
    }

    fn shim(&mut self) -> Result<&mut shim::Decompressor, DecodeError> {
        if self.shim.is_none() {
            self.shim = shim::Decompressor::try_new();
        }
        self.shim.as_mut().ok_or(DecodeError::NoMemory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scaled_region_is_never_smaller_than_its_target() {
        for (region, target, eighths) in
            [((500, 375), (224, 224), 8), ((1000, 900), (224, 224), 2), ((223, 4000), (224, 10), 8)]
        {
            let size = |(width, height)| Size { width, height };
            let scale = Scale::for_target(size(region), size(target));
            assert_eq!(scale.eighths, eighths, "{region:?} to {target:?}");
        }
    }

    #[test]
    fn a_scaled_region_lies_in_the_scaled_image() {
        let whole = Size { width: 17, height: 1 };
        for eighths in [1, 2, 4, 8] {
            for left in 0..17 {
                let scale = Scale { eighths };
                let region = Region { left, top: 0, width: 17 - left, height: 1 };
                assert!(scale.region(whole, region).is_within(scale.size(whole)));
            }
        }
    }
}
