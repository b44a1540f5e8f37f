//! Draws the few elements of SVG that tierfeed's charts need, and axes with round values.
//!
//! Colours follow the reader's scheme, light or dark, by a media query; a renderer without media
//! queries draws on white. Equal inputs give equal files, byte for byte. Deliberately absent: the
//! content of charts, which the caller decides.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod axis;
mod markup;
mod svg;

pub use axis::{Axis, label};
pub use markup::escape;
pub use svg::{Fill, Point, Stroke, Svg};

/// Colours that colour-blind readers can distinguish, on white and on black.
///
/// # Source
///
/// Okabe and Ito, "Color Universal Design", 2008, without black and yellow.
pub const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// Lengths of dashes and gaps that distinguish curves without colours. The first is a solid line.
pub const DASHES: [&str; 4] = ["", "7 4", "2 3", "9 3 2 3"];
