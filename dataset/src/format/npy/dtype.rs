//! Computes the size of an element of an array.

use std::borrow::Cow;

use super::literal::Literal;
use crate::format::{FormatError, piece::malformed};

/// Bytes of an element of the type that `descr` names; the header that holds it starts at `at`.
///
/// A structure is as long as its fields: `descr` lists its padding too, as fields without a name.
pub(super) fn item_bytes(descr: &Literal, at: u64) -> Result<u64, FormatError> {
    match descr {
        Literal::Str(code) => code_bytes(code, at),
        Literal::List(fields) => fields.iter().try_fold(0_u64, |sum, field| {
            sum.checked_add(field_bytes(field, at)?).ok_or_else(|| too_long(at))
        }),
        _ => Err(unknown("no type", at)),
    }
}

fn field_bytes(field: &Literal, at: u64) -> Result<u64, FormatError> {
    let (item, shape) = match field {
        Literal::Tuple(parts) => match parts.as_slice() {
            [name, item] if is_name(name) => (item, None),
            [name, item, Literal::Tuple(shape)] if is_name(name) => (item, Some(shape)),
            _ => return Err(unknown("no field", at)),
        },
        _ => return Err(unknown("no field", at)),
    };
    shape.into_iter().flatten().try_fold(item_bytes(item, at)?, |bytes, axis| match axis {
        Literal::Int(len) => bytes.checked_mul(*len).ok_or_else(|| too_long(at)),
        _ => Err(unknown("a field without a shape of numbers", at)),
    })
}

/// A field has a name, or a title and a name.
fn is_name(name: &Literal) -> bool {
    match name {
        Literal::Str(_) => true,
        Literal::Tuple(both) => matches!(both.as_slice(), [Literal::Str(_), Literal::Str(_)]),
        _ => false,
    }
}

/// The code of a type that is called by its name, in the byte order of the machine that reads it; else the
/// text itself.
#[must_use]
pub fn code(text: &str) -> Cow<'_, str> {
    let digits = text.find(|it: char| it.is_ascii_digit()).unwrap_or(text.len());
    let (name, bits) = text.split_at(digits);
    let kind = match name {
        "bool" if bits.is_empty() => return "|b1".into(),
        "uint" => 'u',
        "int" => 'i',
        "float" => 'f',
        "complex" => 'c',
        _ => return text.into(),
    };
    let order = if cfg!(target_endian = "little") { '<' } else { '>' };
    match bits.parse::<u16>() {
        Ok(8) => format!("|{kind}1").into(),
        Ok(bits) if bits.is_multiple_of(8) => format!("{order}{kind}{}", bits / 8).into(),
        _ => text.into(),
    }
}

/// A code is a byte order, a kind, a size, and for times a unit.
fn code_bytes(code: &str, at: u64) -> Result<u64, FormatError> {
    let code = &*self::code(code);
    let plain = code.trim_start_matches(['<', '>', '|', '=']);
    let unit_at = plain.find('[').unwrap_or(plain.len());
    let (plain, unit) = plain.split_at(unit_at);
    let mut rest = plain.chars();
    let kind = rest.next().unwrap_or(' ');
    let size = rest.as_str();
    if kind == 'O' {
        return Err(FormatError::Unsupported {
            what: "an array of Python objects: it is a pickle, and a pickle may run code"
                .to_owned(),
            instead: "save it with the dtype of its elements, or one file for each sample",
        });
    }
    let is_size = !size.is_empty() && size.bytes().all(|it| it.is_ascii_digit());
    let size = size.parse::<u64>().ok().filter(|_| is_size).ok_or_else(|| unknown(code, at))?;
    let has_unit = unit.len() > 2 && unit.ends_with(']');
    let is_known = code.len() - plain.len() - unit.len() <= 1
        && match kind {
            'b' => size == 1,
            'i' | 'u' => matches!(size, 1 | 2 | 4 | 8),
            'f' => matches!(size, 2 | 4 | 8 | 12 | 16),
            'c' => matches!(size, 8 | 16 | 24 | 32),
            'm' | 'M' => size == 8 && (unit.is_empty() || has_unit),
            'S' | 'U' | 'V' => true,
            _ => false,
        }
        && (unit.is_empty() || matches!(kind, 'm' | 'M'));
    let character_bytes = if kind == 'U' { 4 } else { 1 };
    match size.checked_mul(character_bytes) {
        Some(bytes) if is_known => Ok(bytes),
        _ => Err(unknown(code, at)),
    }
}

fn unknown(found: &str, at: u64) -> FormatError {
    let right = "a type that NumPy writes, such as `<f4` or a list of fields";
    malformed("the type of the elements", at, format!("`{}`", found.escape_debug()), right)
}

fn too_long(at: u64) -> FormatError {
    malformed("the type of the elements", at, "of more than 2^64 bytes", "fewer")
}
