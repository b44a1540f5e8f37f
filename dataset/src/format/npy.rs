//! Reads `.npy` files: an array whose samples are the rows along its first axis.
//!
//! A header, written as a Python literal, names the type of the elements, the order of the axes and
//! the shape; only the elements follow. A sample is the bytes of one row, as `array[i].tobytes()`
//! returns them, in the byte order of the file.
//!
//! Deliberately absent: arrays of Python objects, which are pickles and may run code.
//!
//! # Source
//!
//! `numpy/lib/format.py`, versions 1.0, 2.0 and 3.0 of the format.

mod dtype;
mod literal;

pub use dtype::code;

#[cfg(test)]
mod tests;

use self::literal::Literal;
use super::{
    DatasetFormat, Elements, Format, FormatError, Found, Kind, Parsed, ReadAt, Records, Stated,
    piece::{Window, end_of, malformed, read, read_array},
};
use crate::source::{Opened, names::ends_in};

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// The longest header that is read; NumPy's own are below 10,000 bytes unless told otherwise.
const HEADER_BYTES_MAX: u32 = 1 << 20;

/// Bytes that are read at once: NumPy pads its headers to multiples of 64, and most have 128.
const HEADER_BYTES_EXPECTED: u32 = 512;

/// NumPy's `MAXDIMS` of version 2.
const AXES_MAX: usize = 64;

pub(super) static KIND: Kind = Kind {
    alike: Some(".npy"),
    ..Kind::by_name("npy", |_| Ok(Format::Npy), |name| ends_in(name, &[".npy"]), ".npy")
};

pub(super) struct Npy;

impl DatasetFormat for Npy {
    fn parse(&self, object: &dyn Opened, _index: Option<&[u8]>) -> Result<Parsed, FormatError> {
        let array = records(object)?;
        Ok(Parsed::new(Found::Records(array.records), Some(array.stated())))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    pub records: Records,
    /// The type of the elements, in the spelling of the file.
    pub dtype: String,
    /// Number of elements of each axis; never empty.
    pub shape: Vec<u64>,
}

impl Array {
    #[must_use]
    pub fn stated(&self) -> Stated {
        let (dtype, shape) = (self.dtype.clone(), Some(self.shape[1..].to_vec()));
        Stated::Elements(Elements { dtype, shape, filters: Vec::new() })
    }
}

/// Reads the header of `object`.
///
/// # Errors
///
/// [`FormatError::Unsupported`] for arrays without rows to read: in Fortran order, of Python
/// objects, without axes, of rows without bytes. [`FormatError::Truncated`] and
/// [`FormatError::Malformed`] if the object does not match its header, including its length.
pub fn records(object: &dyn ReadAt) -> Result<Array, FormatError> {
    let Header { text, at, end } = header(object)?;
    let Literal::Dict(entries) = literal::parse(&text, at)? else {
        return Err(malformed("the header", at, "no dictionary", HEADER));
    };
    let [descr, order, shape] = ["descr", "fortran_order", "shape"].map(|key| {
        let mut found = entries.iter().filter(|entry| entry.key == key);
        found.next().filter(|_| found.next().is_none() && entries.len() == 3)
    });
    let (Some(descr), Some(order), Some(shape)) = (descr, order, shape) else {
        return Err(malformed("the header", at, "without one of its keys", HEADER));
    };
    let dtype = match &descr.value {
        Literal::Str(code) => dtype::code(code).into_owned(),
        _ => text[descr.span.clone()].to_owned(),
    };
    let item_bytes = dtype::item_bytes(&descr.value, at)?;
    let shape = axes(&shape.value, at)?;
    match order.value {
        Literal::Bool(false) => {}
        // With one axis that is longer than one, both orders are the same.
        Literal::Bool(true) if shape.iter().filter(|axis| **axis != 1).count() <= 1 => {}
        Literal::Bool(true) => return Err(in_fortran_order()),
        _ => return Err(malformed("the order of the axes", at, "no truth value", HEADER)),
    }
    let records = rows(object, end, item_bytes, &shape)?;
    Ok(Array { records, dtype, shape })
}

const HEADER: &str = "a header is a dictionary of `descr`, `fortran_order` and `shape`";

/// The text of the header, and the offsets of its start and end.
struct Header {
    text: String,
    at: u64,
    end: u64,
}

fn header(object: &dyn ReadAt) -> Result<Header, FormatError> {
    let object = &Window::head(object, HEADER_BYTES_EXPECTED)?;
    let start: [u8; 8] = read_array(object, "the start of the file", 0)?;
    if !start.starts_with(MAGIC) {
        return Err(malformed("the start of the file", 0, "no .npy magic", "it is \\x93NUMPY"));
    }
    let (len, at) = match (start[6], start[7]) {
        (1, 0) => (u64::from(u16::from_le_bytes(read_array(object, "the header", 8)?)), 10),
        (2 | 3, 0) => (u64::from(u32::from_le_bytes(read_array(object, "the header", 8)?)), 12),
        (major, minor) => {
            let found = format!("{major}.{minor}");
            return Err(malformed("the version", 6, found, "versions 1.0, 2.0 and 3.0 are read"));
        }
    };
    let bytes = read(object, "the header", at, len, HEADER_BYTES_MAX)?;
    let end = at + len;
    // Latin-1 before version 3.0: each byte is the character of its number.
    let text = match start[6] {
        3 => String::from_utf8(bytes)
            .map_err(|_| malformed("the header", at, "no UTF-8", "version 3.0 is UTF-8"))?,
        _ => bytes.into_iter().map(char::from).collect(),
    };
    Ok(Header { text, at, end })
}

fn in_fortran_order() -> FormatError {
    FormatError::Unsupported {
        what: "an array in Fortran order: its rows do not lie together".to_owned(),
        instead: "save numpy.ascontiguousarray(array)",
    }
}

fn axes(shape: &Literal, at: u64) -> Result<Vec<u64>, FormatError> {
    let right = "a tuple of at most 64 numbers that are not negative";
    let Literal::Tuple(axes) = shape else {
        return Err(malformed("the shape", at, "no tuple", right));
    };
    if axes.is_empty() {
        return Err(FormatError::Unsupported {
            what: "an array without axes, so without rows".to_owned(),
            instead: "save array.reshape(1, -1), or keep one file for each sample",
        });
    }
    let len = |axis: &Literal| match axis {
        Literal::Int(len) => Ok(*len),
        _ => Err(malformed("the shape", at, "no tuple of numbers", right)),
    };
    if axes.len() > AXES_MAX {
        return Err(malformed("the shape", at, format!("of {} axes", axes.len()), right));
    }
    axes.iter().map(len).collect()
}

fn rows(
    object: &dyn ReadAt,
    offset: u64,
    item_bytes: u64,
    shape: &[u64],
) -> Result<Records, FormatError> {
    let product =
        |axes: &[u64]| axes.iter().try_fold(item_bytes, |bytes, &axis| bytes.checked_mul(axis));
    let (Some(record_bytes), Some(bytes)) = (product(&shape[1..]), product(shape)) else {
        let right = "an array has fewer than 2^64 bytes";
        return Err(malformed("the shape", offset, format!("{shape:?}"), right));
    };
    if record_bytes == 0 {
        return Err(FormatError::Unsupported {
            what: format!("an array of shape {shape:?}, whose rows have no bytes"),
            instead: "leave it out, there is nothing to read",
        });
    }
    let end = end_of(object, "the array", offset, bytes)?;
    if end != object.len() {
        let found = format!("{} bytes longer than its header says", object.len() - end);
        return Err(malformed("the array", offset, found, "keep one array in each file"));
    }
    Ok(Records { offset, record_bytes, count: shape[0] })
}
