//! The eight ways in which a camera was held.

use crate::{Image, Region, Size, View};

/// How an upright image comes from the stored one.
///
/// **Source**: Exif 2.32, tag 0x0112, as torchvision's `exif_orientation_transform` applies it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Orientation {
    /// It is the stored one.
    #[default]
    Upright,
    /// Columns in reverse.
    Mirrored,
    /// Rows and columns in reverse.
    UpsideDown,
    /// Rows in reverse.
    MirroredUpsideDown,
    /// Rows and columns exchanged.
    Transposed,
    /// Rows and columns exchanged, then columns in reverse.
    Right,
    /// Rows and columns exchanged, then both in reverse.
    TransposedUpsideDown,
    /// Rows and columns exchanged, then rows in reverse.
    Left,
}

impl Orientation {
    /// The orientation with this number in Exif.
    #[must_use]
    pub fn of_exif(number: u16) -> Option<Self> {
        Some(match number {
            1 => Self::Upright,
            2 => Self::Mirrored,
            3 => Self::UpsideDown,
            4 => Self::MirroredUpsideDown,
            5 => Self::Transposed,
            6 => Self::Right,
            7 => Self::TransposedUpsideDown,
            8 => Self::Left,
            _ => return None,
        })
    }

    fn is_transposed(self) -> bool {
        matches!(self, Self::Transposed | Self::Right | Self::TransposedUpsideDown | Self::Left)
    }

    fn has_columns_reversed(self) -> bool {
        use Orientation::{Mirrored, Right, TransposedUpsideDown, UpsideDown};
        matches!(self, Mirrored | UpsideDown | Right | TransposedUpsideDown)
    }

    fn has_rows_reversed(self) -> bool {
        use Orientation::{Left, MirroredUpsideDown, TransposedUpsideDown, UpsideDown};
        matches!(self, UpsideDown | MirroredUpsideDown | TransposedUpsideDown | Left)
    }

    /// The size of the upright image.
    #[must_use]
    pub fn size(self, stored: Size) -> Size {
        if self.is_transposed() { stored.transposed() } else { stored }
    }

    /// The region of the stored image that a region of the upright one shows.
    #[must_use]
    pub fn stored_region(self, stored: Size, upright: Region) -> Region {
        let size = self.size(stored);
        let mut region = upright;
        if self.has_columns_reversed() {
            region.left = size.width - region.left - region.width;
        }
        if self.has_rows_reversed() {
            region.top = size.height - region.top - region.height;
        }
        if !self.is_transposed() {
            return region;
        }
        let Region { left, top, width, height } = region;
        Region { left: top, top: left, width: height, height: width }
    }

    /// Makes a stored image upright.
    pub fn apply(self, view: View<'_>, result: &mut Image) {
        let size = self.size(view.size());
        let channels = view.channels().count();
        let (pixels, stride) = result.reset(size, view.channels());
        for (row, pixels) in (0..size.height).zip(pixels.chunks_exact_mut(stride)) {
            let row = if self.has_rows_reversed() { size.height - 1 - row } else { row };
            for (column, pixel) in (0..size.width).zip(pixels.chunks_exact_mut(channels)) {
                let column =
                    if self.has_columns_reversed() { size.width - 1 - column } else { column };
                let (row, column) =
                    if self.is_transposed() { (column, row) } else { (row, column) };
                let at = row as usize * view.stride + column as usize * channels;
                pixel.copy_from_slice(&view.bytes[at..at + channels]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Channels;

    fn upright(orientation: Orientation, stored: &[u8], size: Size) -> (Vec<u8>, Size) {
        let view = View::of(stored, size, Channels::Grey).expect("as many bytes");
        let mut result = Image::default();
        orientation.apply(view, &mut result);
        let view = result.view();
        let rows = (0..view.size().height).flat_map(|it| view.row(it).to_vec());
        (rows.collect(), view.size())
    }

    #[test]
    fn each_orientation_moves_the_corners_as_exif_says() {
        // 0 1 2
        // 3 4 5
        let size = Size { width: 3, height: 2 };
        let expected: [&[u8]; 8] = [
            &[0, 1, 2, 3, 4, 5],
            &[2, 1, 0, 5, 4, 3],
            &[5, 4, 3, 2, 1, 0],
            &[3, 4, 5, 0, 1, 2],
            &[0, 3, 1, 4, 2, 5],
            &[3, 0, 4, 1, 5, 2],
            &[5, 2, 4, 1, 3, 0],
            &[2, 5, 1, 4, 0, 3],
        ];
        for (number, expected) in (1..).zip(expected) {
            let orientation = Orientation::of_exif(number).expect("there are eight");
            assert_eq!(upright(orientation, &[0, 1, 2, 3, 4, 5], size).0, expected, "{number}");
        }
    }

    #[test]
    fn a_region_of_the_stored_image_shows_the_region_of_the_upright_one() {
        let size = Size { width: 4, height: 3 };
        let stored: Vec<u8> = (0..12).collect();
        let view = View::of(&stored, size, Channels::Grey).expect("as many bytes");
        for number in 1..=8 {
            let orientation = Orientation::of_exif(number).expect("there are eight");
            let (whole, upright) = upright(orientation, &stored, size);
            let region = Region { left: 1, top: 1, width: upright.width - 2, height: 1 };
            let mut result = Image::default();
            orientation.apply(view.cropped(orientation.stored_region(size, region)), &mut result);
            let start = (upright.width + 1) as usize;
            let expected = &whole[start..start + region.width as usize];
            assert_eq!(result.view().row(0), expected, "{number}");
        }
    }
}
