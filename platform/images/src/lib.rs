//! Decodes regions of images, and resizes them, with the pixels of torchvision.
//!
//! A [`Decoder`] reads JPEG, PNG and WebP. Of a JPEG image it decodes no more than a region needs, and
//! the pixels of the region are those of the whole image. [`Resizer`] resizes with the arithmetic of
//! PyTorch's `interpolate` for `uint8`, bilinear with antialiasing, and also only what a region of the
//! result needs. [`tensor`] flips, normalises and lays out the result.
//!
//! Unsafe code stands where libjpeg-turbo is called (`jpeg/shim.rs`) and where code for AVX2 is chosen
//! (`kernels.rs`). libjpeg-turbo is C: a program that decodes bytes of others should do so in a process
//! that it can lose.
//!
//! # Example
//!
//! ```
//! use tierfeed_images::{Decoder, Image, Region, Resizer, Settings, Size};
//!
//! # fn upper_half(bytes: &[u8]) -> Result<Image, tierfeed_images::DecodeError> {
//! let mut decoder = Decoder::default();
//! let header = decoder.header(bytes, 100_000_000)?;
//! let half = Region { height: header.size.height.div_ceil(2), ..Region::whole(header.size) };
//! let mut decoded = Image::default();
//! decoder.decode(bytes, header, half, &Settings::default(), &mut decoded)?;
//!
//! let mut small = Image::default();
//! Resizer::default().resize(decoded.view(), Size { width: 224, height: 112 }, &mut small);
//! # Ok(small)
//! # }
//! ```

#![deny(unsafe_code)]
#![warn(missing_docs)]

mod decoder;
mod error;
mod exif;
mod geometry;
mod image;
mod jpeg;
#[expect(unsafe_code, reason = "code for AVX2 runs where the processor has it")]
mod kernels;
mod orientation;
mod other_formats;
mod png;
mod resize;
mod size_reader;
pub mod tensor;
mod webp;
mod weights;

pub use decoder::{Decoder, Format, Header, Settings};
pub use error::DecodeError;
pub use geometry::{Region, Size};
pub use image::{Channels, Image, View};
pub use jpeg::{Dct, Entropy, Scale};
pub use orientation::Orientation;
pub use resize::{Resizer, Section};
pub use size_reader::{SizeReader, SizeSearch};
