//! Draws what a random step does to a sample, and resolves the steps for an image of known size.
//!
//! Each draw is a function of the seed, the epoch, the sample and the number of the step, by [`philox`]:
//!
//! - key: the lower and the upper half of the seed;
//! - counter: the lower and the upper half of the sample, the epoch, and `step << 16 | block`.
//!
//! A word `w` of a block becomes a share of `w / 2^32`, and a whole number below `n` of `w * n / 2^32`,
//! rounded down. `random_resized_crop` tries up to ten times; try `k` takes block `k`: its words give the
//! area, the ratio, the top and the left, in this order. `random_crop` takes top and left from the first
//! words of block 0, and `random_horizontal_flip` the first word.
//!
//! All arithmetic is that of IEEE 754 and of `libm`, so every machine draws the same.
//!
//! **Invariants**
//! 1. A region that is cut out lies in the image, and is not empty.
//! 2. What a step draws depends on its own parameters and its number in the list, not on the other steps.

use crate::{
    geometry::{Region, Size},
    philox,
    steps::{Images, RandomResizedCrop, Resize, Step},
};

/// Tries to find a region that lies in the image, as torchvision does.
const ATTEMPTS: u16 = 10;

/// The inputs of a draw, beside the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrawKey {
    pub seed: u64,
    /// The epoch, from 0.
    pub epoch: u32,
    /// The sample in the dataset, from 0.
    pub sample: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Adds black pixels on each side.
    Pad {
        /// Rows above.
        top: u32,
        /// Columns at the left.
        left: u32,
        /// The size after it.
        size: Size,
    },
    /// Keeps this region only.
    Crop(Region),
    /// Resizes, bilinear with antialias.
    Resize(Size),
    FlipHorizontal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the image is {} by {} pixels at random_crop, which cuts {} by {} out of it (height by width); put a \
     `resize` before it",
    .image.height, .image.width, .crop.height, .crop.width
)]
pub struct SmallerThanCrop {
    pub image: Size,
    pub crop: Size,
}

impl Images {
    /// The operations of the steps from number `first` on, for an image of this size.
    ///
    /// # Errors
    ///
    /// If the image is smaller than a `random_crop`.
    pub fn operations(
        &self,
        key: DrawKey,
        image: Size,
        first: usize,
    ) -> Result<Vec<Operation>, SmallerThanCrop> {
        let mut size = image;
        let mut operations = Vec::with_capacity(self.steps.len());
        for (number, step) in self.steps.iter().enumerate().skip(first) {
            let words = Words { key, step: u16::try_from(number).unwrap_or(u16::MAX) };
            match step {
                Step::Resize(resize) => operations.push(resized(*resize, size)),
                Step::CenterCrop(crop) => centered(*crop, size, &mut operations),
                Step::RandomCrop(crop) => {
                    operations.push(Operation::Crop(random_crop(*crop, size, words)?));
                }
                Step::RandomResizedCrop(crop) => {
                    operations.push(Operation::Crop(random_resized_crop(crop, size, words)));
                    operations.push(Operation::Resize(crop.size));
                }
                Step::RandomHorizontalFlip(probability) => {
                    if share(words.block(0)[0]) < *probability {
                        operations.push(Operation::FlipHorizontal);
                    }
                }
            }
            size = step.size_after(Some(size)).unwrap_or(size);
        }
        Ok(operations)
    }
}

/// The random words of one step for one sample.
#[derive(Clone, Copy)]
struct Words {
    key: DrawKey,
    step: u16,
}

impl Words {
    #[expect(clippy::cast_possible_truncation, reason = "the halves of 64 bits are separate words")]
    fn block(self, block: u16) -> [u32; 4] {
        let DrawKey { seed, epoch, sample } = self.key;
        let last = u32::from(self.step) << 16 | u32::from(block);
        philox::block(
            [sample as u32, (sample >> 32) as u32, epoch, last],
            [seed as u32, (seed >> 32) as u32],
        )
    }
}

/// At least 0 and less than 1.
fn share(word: u32) -> f64 {
    f64::from(word) / 4_294_967_296.0
}

/// At least 0 and less than `count`, which is not 0.
fn below(word: u32, count: u32) -> u32 {
    ((u64::from(word) * u64::from(count)) >> 32) as u32
}

fn between([from, to]: [f64; 2], word: u32) -> f64 {
    from + (to - from) * share(word)
}

fn resized(resize: Resize, image: Size) -> Operation {
    Operation::Resize(resize.size_after(Some(image)).unwrap_or(image))
}

/// **Source**: torchvision, `center_crop`; the offset is half of the difference, rounded to even.
fn centered(crop: Size, image: Size, operations: &mut Vec<Operation>) {
    let padded = Size { height: image.height.max(crop.height), width: image.width.max(crop.width) };
    if padded != image {
        let top = (padded.height - image.height) / 2;
        let left = (padded.width - image.width) / 2;
        operations.push(Operation::Pad { top, left, size: padded });
    }
    if padded != crop {
        let top = half_to_even(padded.height - crop.height);
        let left = half_to_even(padded.width - crop.width);
        operations.push(Operation::Crop(Region { top, left, size: crop }));
    }
}

fn half_to_even(whole: u32) -> u32 {
    let half = whole / 2;
    if whole % 2 == 1 && half % 2 == 1 { half + 1 } else { half }
}

fn random_crop(crop: Size, image: Size, words: Words) -> Result<Region, SmallerThanCrop> {
    let fits = crop.height <= image.height && crop.width <= image.width;
    if !fits {
        return Err(SmallerThanCrop { image, crop });
    }
    let [top, left, ..] = words.block(0);
    Ok(place(crop, image, top, left))
}

/// A region of this size that lies in the image.
fn place(size: Size, image: Size, top: u32, left: u32) -> Region {
    Region {
        top: below(top, image.height - size.height + 1),
        left: below(left, image.width - size.width + 1),
        size,
    }
}

/// **Source**: torchvision, `RandomResizedCrop`: up to ten draws of an area and a ratio, then the largest
/// region in the middle whose ratio is allowed.
fn random_resized_crop(crop: &RandomResizedCrop, image: Size, words: Words) -> Region {
    let area = f64::from(image.height) * f64::from(image.width);
    let log_ratio = crop.ratio.map(libm::log);
    for attempt in 0..ATTEMPTS {
        let [area_word, ratio_word, top, left] = words.block(attempt);
        let target = area * between(crop.scale, area_word);
        let ratio = libm::exp(between(log_ratio, ratio_word));
        let width = rounded(libm::sqrt(target * ratio));
        let height = rounded(libm::sqrt(target / ratio));
        if (1..=image.width).contains(&width) && (1..=image.height).contains(&height) {
            return place(Size { height, width }, image, top, left);
        }
    }
    largest_in_the_middle(crop.ratio, image)
}

fn largest_in_the_middle([narrowest, widest]: [f64; 2], image: Size) -> Region {
    let (height, width) = (f64::from(image.height), f64::from(image.width));
    let ratio = width / height;
    let size = if ratio < narrowest {
        Size { height: rounded(width / narrowest), width: image.width }
    } else if ratio > widest {
        Size { height: image.height, width: rounded(height * widest) }
    } else {
        image
    };
    let size = Size {
        height: size.height.clamp(1, image.height),
        width: size.width.clamp(1, image.width),
    };
    Region { top: (image.height - size.height) / 2, left: (image.width - size.width) / 2, size }
}

/// The nearest whole number, halves to the even one, as Python's `round` does.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "no caller has a negative number, and what is too large for an image saturates"
)]
fn rounded(value: f64) -> u32 {
    value.round_ties_even() as u32
}

#[cfg(test)]
mod tests;
