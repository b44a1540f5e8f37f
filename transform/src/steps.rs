//! The steps of a checked pipeline.

use crate::{geometry::Size, output::Dtype, output::Layout};

#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    Images(Images),
    Arrays(Arrays),
    Tokens(Tokens),
}

/// The steps for an image: decode it, change its geometry step by step, then write it as a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Images {
    pub decode: Decode,
    /// The steps of geometry, in order. The number of a step is its index here.
    pub steps: Vec<Step>,
    pub normalize: Option<Normalize>,
    /// The type of the elements of a row: `uint8`, `float32` or `bfloat16`. Without `normalize`, a float is
    /// the level divided by 255.
    pub dtype: Dtype,
    pub layout: Layout,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decode {
    pub orientation: Orientation,
    pub dct: Dct,
    pub scaling: Scaling,
    pub mode: Mode,
}

impl Decode {
    /// The settings of torchvision's decoder by default, in RGB.
    pub const EXACT: Self = Self {
        orientation: Orientation::Ignore,
        dct: Dct::Exact,
        scaling: Scaling::Full,
        mode: Mode::Rgb,
    };
}

/// The effect of the EXIF orientation of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orientation {
    Ignore,
    /// The image is turned by it.
    Apply,
}

/// The inverse discrete cosine transform of JPEG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dct {
    /// libjpeg's accurate integer transform (`JDCT_ISLOW`), as torchvision and Pillow use it.
    Exact,
    /// Its quick one (`JDCT_IFAST`), and quick upsampling of chroma.
    Fast,
}

/// The scale at which JPEG is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scaling {
    Full,
    /// The smallest of 1/1, 1/2, 1/4 and 1/8 at which the region is no smaller than what it is resized to.
    Reduced,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Rgb,
    /// One, the luminance.
    Grey,
}

impl Mode {
    pub fn channels(self) -> u32 {
        match self {
            Self::Rgb => 3,
            Self::Grey => 1,
        }
    }
}

/// A step of geometry.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Resizes, bilinear with antialias.
    Resize(Resize),
    /// Cuts the middle out; a smaller image gets a black frame first.
    CenterCrop(Size),
    /// Cuts a region at a random place out. An image that is smaller cannot be transformed.
    RandomCrop(Size),
    /// Cuts a region of random area and ratio out and resizes it.
    RandomResizedCrop(RandomResizedCrop),
    /// Mirrors left and right, with this probability.
    RandomHorizontalFlip(f64),
}

impl Step {
    pub fn is_random(&self) -> bool {
        match self {
            Self::Resize(_) | Self::CenterCrop(_) => false,
            Self::RandomCrop(_) | Self::RandomResizedCrop(_) | Self::RandomHorizontalFlip(_) => {
                true
            }
        }
    }

    /// The size after the step of an image whose size before it is `before`, where that is known.
    pub fn size_after(&self, before: Option<Size>) -> Option<Size> {
        match self {
            Self::Resize(resize) => resize.size_after(before),
            Self::CenterCrop(size) | Self::RandomCrop(size) => Some(*size),
            Self::RandomResizedCrop(crop) => Some(crop.size),
            Self::RandomHorizontalFlip(_) => before,
        }
    }
}

/// The size to which an image is resized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resize {
    /// The shorter side gets this length; the longer one keeps the ratio, rounded down.
    ShortSide(u32),
    /// Both sides.
    Exact(Size),
}

impl Resize {
    /// **Source**: torchvision, `_compute_resized_output_size`.
    pub fn size_after(self, before: Option<Size>) -> Option<Size> {
        let short = match self {
            Self::Exact(size) => return Some(size),
            Self::ShortSide(short) => short,
        };
        let before = before?;
        let long = |long: u32, over: u32| {
            let long = u64::from(short) * u64::from(long) / u64::from(over);
            u32::try_from(long).unwrap_or(u32::MAX)
        };
        Some(if before.width <= before.height {
            Size { height: long(before.height, before.width), width: short }
        } else {
            Size { height: short, width: long(before.width, before.height) }
        })
    }
}

/// A crop of random area and ratio, which is then resized.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomResizedCrop {
    /// The size after it.
    pub size: Size,
    /// The area of the crop, as a share of that of the image: from and to.
    pub scale: [f64; 2],
    /// The width of the crop divided by its height: from and to.
    pub ratio: [f64; 2],
}

/// A shift and a scale for each channel: `(level / 255 - mean) / std`, computed in `float32`.
#[derive(Debug, Clone, PartialEq)]
pub struct Normalize {
    /// The mean of each channel, as a part of 1.
    pub mean: Vec<f64>,
    /// The standard deviation of each channel, as a part of 1.
    pub std: Vec<f64>,
}

/// An array in a file of NumPy: npy, or npz with deflated members or without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrays {
    pub shape: Vec<u32>,
    pub dtype: Dtype,
    /// The name of the array in an npz; `None` for npy, or for the only array of an npz.
    pub key: Option<String>,
}

/// A window of tokens, which a sample holds as integers without a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tokens {
    pub length: u32,
    /// The type in which they are stored: `uint8`, `uint16`, `uint32`, `int32`, `int64`.
    pub stored: Dtype,
    /// The type in which they are handed out: that in which they are stored, or a wider one.
    pub dtype: Dtype,
}

/// The limits on what a sample may claim of the machine that decodes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Pixels of an image as its header states them, before a crop.
    pub pixels: u64,
}

impl Limits {
    /// Ten thousand by ten thousand.
    pub const DEFAULT: Self = Self { pixels: 100_000_000 };
}
