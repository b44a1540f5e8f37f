//! Fields as values of a type that was asked for, as the memory of a tensor has them.

use std::borrow::Cow;

use super::{Feature, Field, Value};
use crate::format::mds::integer;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldType {
    /// One piece of bytes, as stored.
    Bytes,
    /// `i64`.
    Integers,
    /// `f64`.
    Floats,
}

impl FieldType {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Integers => "integers",
            Self::Floats => "numbers",
        }
    }
}

impl<'a> Field<'a> {
    /// The values, behind each other: bytes as stored, numbers of 8 bytes in the byte order of this machine.
    /// `None` if the field has none of that type. A member is read as text; integers can be read as floats
    /// too.
    #[must_use]
    pub fn values(&self, of: FieldType) -> Option<Cow<'a, [u8]>> {
        match of {
            FieldType::Bytes => self.bytes().map(Cow::Borrowed),
            FieldType::Integers => Some(packed(self.integers()?, i64::to_ne_bytes)),
            FieldType::Floats => Some(packed(self.floats()?, f64::to_ne_bytes)),
        }
    }

    fn integers(&self) -> Option<Vec<i64>> {
        match &self.value {
            Value::Member(text) => number(text).map(|it| vec![it]),
            Value::Encoded { encoding, bytes } => integer(encoding, bytes).map(|it| vec![it]),
            Value::Feature(Feature::Integers(them)) => Some(them.clone()),
            Value::Feature(Feature::Bytes(_) | Feature::Floats(_)) => None,
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "an integer that is asked for as a float becomes the nearest float"
    )]
    fn floats(&self) -> Option<Vec<f64>> {
        match &self.value {
            Value::Member(text) => number(text).map(|it| vec![it]),
            Value::Encoded { encoding, bytes } => float(encoding, bytes)
                .or_else(|| integer(encoding, bytes).map(|it| it as f64))
                .map(|it| vec![it]),
            Value::Feature(Feature::Floats(them)) => {
                Some(them.iter().map(|it| f64::from(*it)).collect())
            }
            Value::Feature(Feature::Integers(them)) => {
                Some(them.iter().map(|it| *it as f64).collect())
            }
            Value::Feature(Feature::Bytes(_)) => None,
        }
    }
}

fn packed<'a, T>(numbers: Vec<T>, bytes: fn(T) -> [u8; 8]) -> Cow<'a, [u8]> {
    Cow::Owned(numbers.into_iter().flat_map(bytes).collect())
}

fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    str::from_utf8(text).ok()?.trim().parse().ok()
}

fn float(encoding: &str, bytes: &[u8]) -> Option<f64> {
    match encoding {
        "str_float" => number(bytes),
        "float64" => bytes.try_into().ok().map(f64::from_le_bytes),
        "float32" => bytes.try_into().ok().map(|it| f32::from_le_bytes(it).into()),
        "float16" => bytes.try_into().ok().map(|it| half(u16::from_le_bytes(it))),
        _ => None,
    }
}

/// A float of 16 bits: sign, 5 bits of exponent, 10 bits of fraction.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let magnitude = match exponent {
        0 => fraction * 2_f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2_f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(value: Value<'_>) -> Field<'_> {
        Field { name: "it".to_owned(), value }
    }

    fn integers(value: Value<'_>) -> Option<Vec<i64>> {
        let values = field(value).values(FieldType::Integers)?;
        Some(values.as_chunks::<8>().0.iter().map(|it| i64::from_ne_bytes(*it)).collect())
    }

    fn floats(value: Value<'_>) -> Option<Vec<f64>> {
        let values = field(value).values(FieldType::Floats)?;
        Some(values.as_chunks::<8>().0.iter().map(|it| f64::from_ne_bytes(*it)).collect())
    }

    fn encoded<'a>(encoding: &str, bytes: &'a [u8]) -> Value<'a> {
        Value::Encoded { encoding: encoding.to_owned(), bytes }
    }

    #[test]
    fn a_member_is_a_number_if_its_text_is_one() {
        assert_eq!(integers(Value::Member(b" 7\n")), Some(vec![7]));
        assert_eq!(floats(Value::Member(b"0.5")), Some(vec![0.5]));
        assert_eq!(integers(Value::Member(b"cat")), None);
        assert_eq!(integers(Value::Member(b"\xff")), None);
    }

    #[test]
    fn columns_of_mds_are_numbers_by_their_encoding_if_they_have_its_length() {
        assert_eq!(integers(encoded("int", &(-3_i64).to_le_bytes())), Some(vec![-3]));
        assert_eq!(integers(encoded("int8", &[0xfe])), Some(vec![-2]));
        assert_eq!(integers(encoded("uint16", &[0xff, 0xff])), Some(vec![65535]));
        assert_eq!(integers(encoded("str_int", b"12")), Some(vec![12]));
        assert_eq!(integers(encoded("int", &[1])), None);
        assert_eq!(integers(encoded("float32", &1_f32.to_le_bytes())), None);
        assert_eq!(floats(encoded("float32", &1.5_f32.to_le_bytes())), Some(vec![1.5]));
        assert_eq!(floats(encoded("int", &4_i64.to_le_bytes())), Some(vec![4.0]));
        assert_eq!(floats(encoded("pkl", b"1")), None);
    }

    #[test]
    fn floats_of_16_bits_have_their_values() {
        let of = |bits: u16| floats(encoded("float16", &bits.to_le_bytes())).unwrap()[0];
        let expected = [1.0, -2.0, 0.333_251_953_125, 5.960_464_477_539_063e-8, 65504.0];
        let found = [0x3c00, 0xc000, 0x3555, 0x0001, 0x7bff].map(of);
        assert_eq!(found.map(f64::to_bits), expected.map(f64::to_bits));
        assert!(of(0xfc00).is_infinite() && of(0xfc00).is_sign_negative());
        assert!(of(0x7c01).is_nan());
    }

    #[test]
    fn a_feature_has_all_of_its_numbers_and_one_piece_of_bytes() {
        assert_eq!(integers(Value::Feature(Feature::Integers(vec![1, -2]))), Some(vec![1, -2]));
        assert_eq!(floats(Value::Feature(Feature::Floats(vec![0.25]))), Some(vec![0.25]));
        assert_eq!(integers(Value::Feature(Feature::Floats(vec![1.0]))), None);
        let bytes = |pieces| field(Value::Feature(Feature::Bytes(pieces))).values(FieldType::Bytes);
        assert_eq!(bytes(vec![b"a"]).as_deref(), Some(&b"a"[..]));
        assert_eq!(bytes(vec![b"a", b"b"]), None);
    }
}
