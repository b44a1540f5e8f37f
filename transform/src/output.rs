//! What a pipeline yields: one row of a dense tensor a sample.

use serde::{Deserialize, Serialize};

use crate::geometry::Size;

/// Rows start at multiples of this many bytes, as cache lines do.
pub const ROW_ALIGNMENT: u64 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// One byte, 0 or 1.
    Bool,
    Uint8,
    Int8,
    Uint16,
    Int16,
    Uint32,
    Int32,
    Uint64,
    Int64,
    Float16,
    /// The upper half of a `float32`.
    Bfloat16,
    Float32,
    Float64,
}

impl Dtype {
    pub const ALL: [Self; 13] = [
        Self::Bool,
        Self::Uint8,
        Self::Int8,
        Self::Uint16,
        Self::Int16,
        Self::Uint32,
        Self::Int32,
        Self::Uint64,
        Self::Int64,
        Self::Float16,
        Self::Bfloat16,
        Self::Float32,
        Self::Float64,
    ];

    /// The name, as in NumPy.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Uint8 => "uint8",
            Self::Int8 => "int8",
            Self::Uint16 => "uint16",
            Self::Int16 => "int16",
            Self::Uint32 => "uint32",
            Self::Int32 => "int32",
            Self::Uint64 => "uint64",
            Self::Int64 => "int64",
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
            Self::Float32 => "float32",
            Self::Float64 => "float64",
        }
    }

    /// The byte order of elements of this type in a file that names it in NumPy's spelling, such as `<f4`;
    /// `None` if the file names another type.
    pub fn byte_order_in(self, named: &str) -> Option<ByteOrder> {
        let (order, code) = match named.split_at_checked(1)? {
            (order @ ("<" | ">" | "|" | "="), code) => (order, code),
            _ => ("=", named),
        };
        // NumPy has no bfloat16: libraries that add it write two bytes without a meaning.
        let expected = match self {
            Self::Bool => "b1",
            Self::Uint8 => "u1",
            Self::Int8 => "i1",
            Self::Uint16 => "u2",
            Self::Int16 => "i2",
            Self::Uint32 => "u4",
            Self::Int32 => "i4",
            Self::Uint64 => "u8",
            Self::Int64 => "i8",
            Self::Float16 => "f2",
            Self::Bfloat16 => "V2",
            Self::Float32 => "f4",
            Self::Float64 => "f8",
        };
        let other = if cfg!(target_endian = "little") { ">" } else { "<" };
        let is_reversed = order == other && self.bytes() > 1;
        let order = if is_reversed { ByteOrder::Reversed } else { ByteOrder::OfThisMachine };
        (code == expected).then_some(order)
    }

    pub fn bytes(self) -> u64 {
        match self {
            Self::Bool | Self::Uint8 | Self::Int8 => 1,
            Self::Uint16 | Self::Int16 | Self::Float16 | Self::Bfloat16 => 2,
            Self::Uint32 | Self::Int32 | Self::Float32 => 4,
            Self::Uint64 | Self::Int64 | Self::Float64 => 8,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteOrder {
    OfThisMachine,
    Reversed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Channels, rows, columns, as in PyTorch.
    Chw,
    /// Rows, columns, channels, as in TensorFlow.
    Hwc,
}

impl Layout {
    pub fn name(self) -> &'static str {
        match self {
            Self::Chw => "chw",
            Self::Hwc => "hwc",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// No dimension is 0.
    pub shape: Vec<u32>,
    pub dtype: Dtype,
    /// `None` unless the row is an image.
    pub layout: Option<Layout>,
}

impl Output {
    pub fn row_bytes(&self) -> u64 {
        self.shape.iter().map(|len| u64::from(*len)).product::<u64>() * self.dtype.bytes()
    }

    /// Bytes from the start of a row to that of the next.
    pub fn row_stride(&self) -> u64 {
        self.row_bytes().next_multiple_of(ROW_ALIGNMENT)
    }
}

/// The form of a sample after the last step that draws nothing: it may be kept in place of the stored form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    pub shape: PreparedShape,
    pub dtype: Dtype,
    /// Number of steps that have been done; the next step has this number.
    pub steps_done: usize,
    pub rest: Rest,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreparedShape {
    /// The same for each sample: of an image on which steps are left, rows, columns and channels.
    Fixed(Vec<u32>),
    /// Those of the image after the steps that have been done. [`OwnShape`] stands before its pixels.
    Own { channels: u32 },
}

impl Prepared {
    /// `None` if the number depends on the sample ([`crate::Pipeline::prepared_bytes`]).
    pub fn bytes(&self) -> Option<u64> {
        let PreparedShape::Fixed(shape) = &self.shape else { return None };
        Some(shape.iter().map(|len| u64::from(*len)).product::<u64>() * self.dtype.bytes())
    }
}

/// The header before the pixels of a prepared image that has a size of its own: rows, columns and channels,
/// each a little-endian number of 32 bits. The pixels follow row by row, the channels of each together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnShape {
    pub size: Size,
    pub channels: u32,
}

impl OwnShape {
    pub const BYTES: usize = 12;

    /// Bytes of header and pixels.
    pub fn bytes(self) -> u64 {
        let pixels = self.size.pixels().saturating_mul(self.channels.into());
        pixels.saturating_add(Self::BYTES as u64)
    }

    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let numbers = [self.size.height, self.size.width, self.channels];
        for (place, number) in bytes.chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Splits the header off; `None` unless exactly its pixels follow.
    pub fn split(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, pixels) = bytes.split_first_chunk::<{ Self::BYTES }>()?;
        let mut numbers =
            head.chunks_exact(4).map(|it| u32::from_le_bytes([it[0], it[1], it[2], it[3]]));
        let (height, width, channels) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let found = Self { size: Size { height, width }, channels };
        (found.bytes() == bytes.len() as u64).then_some((found, pixels))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Nothing: the prepared form is the row.
    Nothing,
    /// Steps that draw, then type and layout.
    Steps,
}
