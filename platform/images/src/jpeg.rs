//! JPEG, by libjpeg-turbo: the region of an image, with the pixels that the whole image has there.
//!
//! Rows above the region are entropy-decoded but not transformed, columns beside it are not transformed,
//! and below it only markers are looked for. Huffman codes of baseline images are decoded by [`scan`], all
//! else by the library; of lossless images it decodes all.
//!
//! Pixels are those of torchvision and Pillow: inverse DCT and upsampling are the accurate ones, CMYK and
//! YCCK become RGB as they convert it, and damaged data is decoded as far as the library can. What it
//! refuses of a whole image is refused for each region of it, and so is a truncated file.

#[cfg(test)]
mod random_image;
mod scan;
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

/// What decodes the Huffman codes of baseline images; both give the same pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Entropy {
    /// The code of this crate, and the library's where the data is damaged.
    #[default]
    Quick,
    /// The library's, which is slower.
    Library,
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
        let (width, height) = self.shim()?.measure(bytes).map_err(failed)?;
        Ok(Size { width, height })
    }

    /// Decodes a region, in pixels of the scaled image.
    pub(crate) fn decode(
        &mut self,
        bytes: &[u8],
        region: Region,
        (channels, dct, scale, entropy): (Channels, Dct, Scale, Entropy),
        image: &mut Image,
    ) -> Result<(), DecodeError> {
        let mut request = shim::Request {
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
            has_library_entropy: u32::from(entropy == Entropy::Library),
        };
        loop {
            let running = self.shim()?.begin(bytes, &request).map_err(failed)?;
            let rows = running.rows();
            let size = Size { width: rows.width, height: region.height };
            let (pixels, _) = image.reset(size, channels);
            match running.read(pixels) {
                Ok(()) => {
                    image.crop(Region { left: rows.left, top: 0, ..region });
                    return Ok(());
                }
                Err(shim::Failure::Message(message)) => return Err(failed(message)),
                Err(shim::Failure::Unsound) => request.has_library_entropy = 1,
            }
        }
    }

    fn shim(&mut self) -> Result<&mut shim::Decompressor, DecodeError> {
        if self.shim.is_none() {
            self.shim = shim::Decompressor::try_new();
        }
        self.shim.as_mut().ok_or(DecodeError::NoMemory)
    }
}

/// The error for what the library says.
fn failed(message: String) -> DecodeError {
    // JERR_OUT_OF_MEMORY
    if message.starts_with("Insufficient memory") {
        return DecodeError::NoMemory;
    }
    DecodeError::Jpeg { message }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The pixels of the upper left corner.
    fn corner(bytes: &[u8], has_library_entropy: u32) -> Result<Vec<u8>, shim::Failure> {
        let corner = Region { left: 0, top: 0, width: 9, height: 50 };
        pixels(bytes, corner, has_library_entropy)
    }

    /// The pixels of a region.
    fn pixels(
        bytes: &[u8],
        region: Region,
        has_library_entropy: u32,
    ) -> Result<Vec<u8>, shim::Failure> {
        let mut decompressor = shim::Decompressor::try_new().expect("memory");
        let request = shim::Request {
            left: region.left,
            top: region.top,
            width: region.width,
            height: region.height,
            eighths: 8,
            colour: shim::COLOUR_RGB,
            has_fast_dct: 0,
            scans_max: SCANS_MAX,
            has_library_entropy,
        };
        let running = decompressor.begin(bytes, &request).expect("sound headers");
        let mut pixels = vec![0; (running.rows().width * region.height) as usize * 3];
        running.read(&mut pixels).map(|()| pixels)
    }

    fn baseline_images() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
        ["baseline-2x2", "baseline-4x1", "restart-2x2", "grey", "ycck"]
            .map(|it| (it, fs::read(format!("{folder}/{it}.jpeg")).expect("a fixture")))
            .into_iter()
    }

    #[test]
    fn the_codes_of_sound_baseline_images_are_decoded_here() {
        for (name, bytes) in baseline_images() {
            assert!(corner(&bytes, 0).is_ok(), "{name}");
            let start = bytes.windows(2).position(|it| it == [0xFF, 0xDA]).expect("a scan");
            let without_data = [&bytes[..start + 16], &[0xFF, 0xD9]].concat();
            let outcome = corner(&without_data, 0);
            assert!(matches!(outcome, Err(shim::Failure::Unsound)), "{name} is the library's");
            assert!(corner(&without_data, 1).is_ok(), "{name} is not the library's");
        }
    }

    #[test]
    fn large_scans_are_decoded_here_and_have_the_pixels_of_the_library() {
        const FOUR_TO_ONE: random_image::Components<'_> = &[(2, 2), (1, 1), (1, 1)];
        for (components, side) in [(&[(1, 1)][..], 8), (FOUR_TO_ONE, 16)] {
            for restart_interval in [0, 1, 700] {
                let bytes = random_image::encode(components, (60, 60), restart_interval);
                assert!(bytes.len() > 1 << 16, "{}", bytes.len());
                let length = 60 * side;
                let whole = Region { left: 0, top: 0, width: length, height: length };
                let inner = Region { left: 100, top: 150, width: 77, height: 120 };
                for region in [whole, inner] {
                    let ours = pixels(&bytes, region, 0).ok();
                    assert!(ours.is_some(), "{components:?} {restart_interval} {region:?}");
                    let is_same = ours == pixels(&bytes, region, 1).ok();
                    assert!(is_same, "{components:?} {restart_interval} {region:?}");
                }
            }
        }
    }

    /// No encoder writes symbols that have a run of less than 15 zeros and no value, but for that of no run.
    #[test]
    fn each_symbol_without_a_value_ends_a_block_as_it_does_in_the_library() {
        for (name, bytes) in baseline_images() {
            for symbol in [0x10, 0x50, 0xE0] {
                let mut changed = bytes.clone();
                let mut at = 2;
                while bytes[at..at + 2] != [0xFF, 0xDA] {
                    let length = usize::from(u16::from_be_bytes([bytes[at + 2], bytes[at + 3]]));
                    if bytes[at + 1] == 0xC4 && bytes[at + 4] >= 0x10 {
                        let ends = (at + 21..at + 2 + length).filter(|it| bytes[*it] == 0);
                        ends.for_each(|it| changed[it] = symbol);
                    }
                    at += 2 + length;
                }
                assert_ne!(changed, bytes, "{name} has no code of that class");
                let [ours, library] = [0, 1].map(|it| corner(&changed, it).ok());
                assert_eq!(ours, library, "{name} with {symbol:#x}");
            }
        }
    }

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
