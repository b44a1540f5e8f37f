//! Resizes as PyTorch does for `uint8`: bilinear, antialiased, in whole numbers.
//!
//! Each pixel of the result is a weighted mean of the pixels below a triangle that is as wide as two
//! pixels of the smaller of both images. Weights are computed in `f64` and rounded to 16 bits, with as
//! many fractional bits as the largest of them allows. Rows are resized first, into bytes, then columns.
//! The result equals that of `torch.nn.functional.interpolate(mode="bilinear", antialias=True)` on a
//! processor with AVX2, where torchvision's v2 transforms use it.
//!
//! **Source**: PyTorch, `aten/src/ATen/native/cpu/UpSampleKernel.cpp`
//! (`compute_index_ranges_int16_weights`), which follows Pillow-SIMD.

use crate::{
    Channels, Image, Region, Size, View, kernels,
    weights::{self, Weights},
};
use std::ops::Range;

/// A part of a resized image, from a part of the image.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// The size of the whole image.
    pub from: Size,
    /// The size of the whole result.
    pub to: Size,
    /// The part of the result that is wanted.
    pub wanted: Region,
}

impl Section {
    /// The part of the image that the wanted part of the result depends on.
    ///
    /// # Panics
    ///
    /// If a size is 0, or the wanted part is not within the result.
    #[must_use]
    pub fn needed(&self) -> Region {
        assert!(self.wanted.is_within(self.to), "{:?} is not within {:?}", self.wanted, self.to);
        let columns = weights::needed(self.from.width, self.to.width, self.wanted.columns());
        let rows = weights::needed(self.from.height, self.to.height, self.wanted.rows());
        let length = |range: &Range<u32>| range.end - range.start;
        Region {
            left: columns.start,
            top: rows.start,
            width: length(&columns),
            height: length(&rows),
        }
    }
}

/// Resizes images, one after another.
#[derive(Debug, Default)]
pub struct Resizer {
    horizontal: Weights,
    vertical: Weights,
    /// Rows that have their final width.
    narrowed: Image,
}

impl Resizer {
    /// Resizes a whole image.
    ///
    /// # Panics
    ///
    /// If a size is 0.
    pub fn resize(&mut self, view: View<'_>, to: Size, result: &mut Image) {
        let section = Section { from: view.size(), to, wanted: Region::whole(to) };
        self.section(view, &section, result);
    }

    /// Resizes what is needed for a part of the result. `view` is [`Section::needed`] of the image.
    ///
    /// # Panics
    ///
    /// If a size is 0, the wanted part is not within the result, or `view` has another size.
    pub fn section(&mut self, view: View<'_>, section: &Section, result: &mut Image) {
        let needed = section.needed();
        assert_eq!(view.size(), needed.size(), "not the part of the image that is needed");
        let Section { from, to, wanted } = *section;
        let is_narrower = from.width != to.width;
        let is_lower = from.height != to.height;
        if is_narrower {
            self.horizontal.compute(from.width, to.width, wanted.columns());
        }
        if is_lower {
            self.vertical.compute(from.height, to.height, wanted.rows());
        }
        match (is_narrower, is_lower) {
            (false, false) => result.copy(view),
            (true, false) => {
                narrow(view, &self.horizontal, needed.left, wanted.width, result);
            }
            (false, true) => {
                lower(view, &self.vertical, needed.top, wanted.height, result);
            }
            (true, true) => {
                narrow(view, &self.horizontal, needed.left, wanted.width, &mut self.narrowed);
                let narrowed = self.narrowed.view();
                lower(narrowed, &self.vertical, needed.top, wanted.height, result);
            }
        }
    }
}

/// Resizes each row.
fn narrow(view: View<'_>, weights: &Weights, first: u32, width: u32, result: &mut Image) {
    let channels = view.channels();
    let (pixels, stride) = result.reset(Size { width, ..view.size() }, channels);
    let rows = kernels::Rows { view, first };
    match channels {
        Channels::Rgb => kernels::narrow_rgb(rows, weights, pixels, stride),
        Channels::Grey => kernels::narrow_grey(rows, weights, pixels, stride),
    }
}

/// Resizes each column.
fn lower(view: View<'_>, weights: &Weights, first: u32, height: u32, result: &mut Image) {
    let (pixels, stride) = result.reset(Size { height, ..view.size() }, view.channels());
    for (taps, row) in weights.outputs().zip(pixels.chunks_exact_mut(stride)) {
        kernels::mix_rows(view, first, taps, weights.precision(), row);
    }
}
