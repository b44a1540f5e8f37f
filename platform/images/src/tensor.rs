//! Writes pixels as a tensor: with a type, an order of dimensions, normalised and mirrored.

use crate::{Channels, Size, View, kernels};

/// The order of the dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Channels, rows, columns.
    Planes,
    /// Rows, columns, channels.
    Interleaved,
}

/// Which way the columns run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Columns {
    /// As in the image.
    Kept,
    /// From the last to the first.
    Reversed,
}

/// What each level of each channel becomes: one table a channel.
#[derive(Clone, Debug, PartialEq)]
pub enum Levels {
    /// Itself.
    Bytes,
    /// A `float32`.
    Floats(Vec<[f32; 256]>),
    /// A `bfloat16`, by its bits.
    Halves(Vec<[u16; 256]>),
}

impl Levels {
    /// The levels from 0 to 1 as `float32`, then less the mean and divided by the deviation of the
    /// channel, each step rounded as PyTorch rounds it.
    #[must_use]
    pub fn floats(channels: impl IntoIterator<Item = (f32, f32)>) -> Self {
        Self::Floats(channels.into_iter().map(table).collect())
    }

    /// The same, rounded to `bfloat16` at the end.
    #[must_use]
    pub fn halves(channels: impl IntoIterator<Item = (f32, f32)>) -> Self {
        Self::Halves(channels.into_iter().map(|it| table(it).map(bfloat16)).collect())
    }

    /// Bytes of an element.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Bytes => 1,
            Self::Floats(_) => 4,
            Self::Halves(_) => 2,
        }
    }
}

/// What a channel becomes, of which the mean and the deviation are given.
///
/// **Source**: torchvision, `to_dtype_image`, which multiplies by the inverse, and `normalize_image`.
fn table((mean, deviation): (f32, f32)) -> [f32; 256] {
    const INVERSE: f32 = 1.0 / 255.0;
    std::array::from_fn(|level| {
        let level = f32::from(u8::try_from(level).expect("there are 256"));
        (level * INVERSE - mean) / deviation
    })
}

/// The nearest `bfloat16`, halves to even.
fn bfloat16(value: f32) -> u16 {
    if value.is_nan() {
        return 0x7FC0;
    }
    let bits = value.to_bits();
    let rounding = 0x7FFF + ((bits >> 16) & 1);
    u16::try_from((bits + rounding) >> 16).expect("16 bits are left")
}

/// Writes an image.
///
/// # Panics
///
/// If `result` has another size than the image as this tensor, or there is not a table for each channel.
pub fn write(view: View<'_>, levels: &Levels, layout: Layout, columns: Columns, result: &mut [u8]) {
    let channels = view.channels().count();
    let elements = usize::try_from(view.size().pixels()).expect("it lies in memory") * channels;
    assert_eq!(result.len(), elements * levels.bytes(), "bytes of the tensor");
    match levels {
        Levels::Bytes if layout == Layout::Planes && view.channels() == Channels::Rgb => {
            planes_of_bytes(view, columns, result);
        }
        Levels::Bytes => each(view, layout, columns, result, |_, level| [level]),
        Levels::Floats(tables) => each(view, layout, columns, result, |channel, level| {
            tables[channel][usize::from(level)].to_ne_bytes()
        }),
        Levels::Halves(tables) => each(view, layout, columns, result, |channel, level| {
            tables[channel][usize::from(level)].to_ne_bytes()
        }),
    }
}

fn planes_of_bytes(view: View<'_>, columns: Columns, result: &mut [u8]) {
    let Size { width, height } = view.size();
    let plane = width as usize * height as usize;
    let (red, rest) = result.split_at_mut(plane);
    let (green, blue) = rest.split_at_mut(plane);
    let rows = [red, green, blue].map(|it| it.chunks_exact_mut(width as usize));
    let [red, green, blue] = rows;
    for (number, ((red, green), blue)) in (0..height).zip(red.zip(green).zip(blue)) {
        kernels::split(view.row(number), [&mut *red, &mut *green, &mut *blue]);
        if columns == Columns::Reversed {
            [red, green, blue].into_iter().for_each(<[u8]>::reverse);
        }
    }
}

/// Writes each level of an image as `N` bytes.
fn each<const N: usize>(
    view: View<'_>,
    layout: Layout,
    columns: Columns,
    result: &mut [u8],
    element: impl Fn(usize, u8) -> [u8; N],
) {
    let Size { width, height } = view.size();
    let channels = view.channels().count();
    let (width, plane) = (width as usize, width as usize * height as usize);
    let (result, _) = result.as_chunks_mut::<N>();
    for row in 0..height {
        let start = row as usize * width;
        for channel in 0..channels {
            let levels = view.row(row)[channel..].iter().step_by(channels);
            let (first, step) = match layout {
                Layout::Planes => (channel * plane + start, 1),
                Layout::Interleaved => (start * channels + channel, channels),
            };
            let places = result[first..].iter_mut().step_by(step).take(width);
            match columns {
                Columns::Kept => places.zip(levels).for_each(|it| *it.0 = element(channel, *it.1)),
                Columns::Reversed => {
                    places.zip(levels.rev()).for_each(|it| *it.0 = element(channel, *it.1));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(levels: &Levels, layout: Layout, columns: Columns) -> Vec<u8> {
        let bytes: Vec<u8> = (0..12).collect();
        let view = View::of(&bytes, Size { width: 2, height: 2 }, Channels::Rgb);
        let mut result = vec![0; 12 * levels.bytes()];
        write(view.expect("as many bytes"), levels, layout, columns, &mut result);
        result
    }

    #[test]
    fn planes_and_pixels_have_the_levels_at_their_places() {
        let check = |layout, columns, expected: [u8; 12]| {
            assert_eq!(written(&Levels::Bytes, layout, columns), expected);
            let floats = Levels::floats([(0.0, 1.0); 3]);
            let levels = written(&floats, layout, columns);
            let levels = levels.as_chunks::<4>().0.iter().map(|it| f32::from_ne_bytes(*it));
            assert!(levels.eq(expected.map(|it| f32::from(it) * (1.0 / 255.0))));
        };
        check(Layout::Planes, Columns::Kept, [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11]);
        check(Layout::Planes, Columns::Reversed, [3, 0, 9, 6, 4, 1, 10, 7, 5, 2, 11, 8]);
        check(Layout::Interleaved, Columns::Kept, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
        check(Layout::Interleaved, Columns::Reversed, [3, 4, 5, 0, 1, 2, 9, 10, 11, 6, 7, 8]);
    }

    #[test]
    fn bfloat16_rounds_halves_to_even() {
        for (value, bits) in
            [(1.0, 0x3F80), (-2.5, 0xC020), (1.003_906_2, 0x3F80), (1.011_718_8, 0x3F82)]
        {
            assert_eq!(bfloat16(value), bits, "{value}");
        }
    }
}
