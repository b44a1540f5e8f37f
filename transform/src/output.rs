//! What a pipeline yields: one row of a dense tensor a sample.

use serde::{Deserialize, Serialize};

/// Rows start at multiples of this many bytes, as cache lines do.
pub const ROW_ALIGNMENT: u64 = 64;

/// The type of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// One byte, 0 or 1.
    Bool,
    /// 8 bits.
    Uint8,
    /// 8 bits, signed.
    Int8,
    /// 16 bits.
    Uint16,
    /// 16 bits, signed.
    Int16,
    /// 32 bits.
    Uint32,
    /// 32 bits, signed.
    Int32,
    /// 64 bits.
    Uint64,
    /// 64 bits, signed.
    Int64,
    /// IEEE half precision.
    Float16,
    /// The upper half of a `float32`.
    Bfloat16,
    /// IEEE single precision.
    Float32,
    /// IEEE double precision.
    Float64,
}

impl Dtype {
    /// All of them.
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

    /// The word for it, as in NumPy.
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

    /// Bytes of an element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Bool | Self::Uint8 | Self::Int8 => 1,
            Self::Uint16 | Self::Int16 | Self::Float16 | Self::Bfloat16 => 2,
            Self::Uint32 | Self::Int32 | Self::Float32 => 4,
            Self::Uint64 | Self::Int64 | Self::Float64 => 8,
        }
    }
}

/// The order of an image's dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Channels, rows, columns, as in PyTorch.
    Chw,
    /// Rows, columns, channels, as in TensorFlow.
    Hwc,
}

impl Layout {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chw => "chw",
            Self::Hwc => "hwc",
        }
    }
}

/// What one sample becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The dimensions of a row. None is 0.
    pub shape: Vec<u32>,
    /// The type of its elements.
    pub dtype: Dtype,
    /// The order of the dimensions; `None` for what is no image.
    pub layout: Option<Layout>,
}

impl Output {
    /// Bytes of a row.
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
    /// Its dimensions: of an image on which steps are left, rows, columns and channels.
    pub shape: Vec<u32>,
    /// The type of its elements.
    pub dtype: Dtype,
    /// How many of the steps have been done. What follows starts with the step of this number.
    pub steps_done: usize,
    /// Whether something is left to do.
    pub rest: Rest,
}

impl Prepared {
    /// Bytes of it.
    pub fn bytes(&self) -> u64 {
        self.shape.iter().map(|len| u64::from(*len)).product::<u64>() * self.dtype.bytes()
    }
}

/// What is left to do to a prepared sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Nothing: the prepared form is the row.
    Nothing,
    /// Steps that draw, then type and layout.
    Steps,
}
