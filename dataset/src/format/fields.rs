//! Takes a sample of several fields apart: the field that a transform makes a row of, and the others.
//!
//! For any bytes it terminates, does not panic, and takes memory in proportion to them.

mod typed;

pub use typed::FieldType;

use tierfeed_transform::{Container, container::Column};

use super::{
    FormatError, mds,
    tfrecord::{self, Feature},
    webdataset,
};

#[derive(Debug, Clone, PartialEq)]
pub struct Field<'a> {
    /// The extension of its member, or the key of its feature or column.
    pub name: String,
    pub value: Value<'a>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    /// The content of a member, whose name says what it is.
    Member(&'a [u8]),
    /// A column in an encoding of MDS.
    Encoded {
        encoding: String,
        bytes: &'a [u8],
    },
    Feature(Feature<'a>),
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FieldError {
    #[error("its fields cannot be read")]
    Format(#[from] FormatError),
    #[error(
        "{images} of its fields are images; name one of {} as `transform.field`", listed(.fields)
    )]
    Unclear { images: usize, fields: Vec<String> },
    #[error("it has no field `{named}` (`transform.field`); it has {}", listed(.fields))]
    Missing { named: String, fields: Vec<String> },
    #[error("its field `{named}` (`transform.field`) is not one piece of bytes")]
    NoBytes { named: String },
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

pub fn split<'a>(container: &Container, sample: &'a [u8]) -> Result<Vec<Field<'a>>, FormatError> {
    match container {
        Container::WebDataset => {
            let parts = webdataset::parts(sample)?.into_iter();
            let field = |part: webdataset::Part<'a>| Field {
                name: String::from_utf8_lossy(&part.extension).into_owned(),
                value: Value::Member(part.bytes),
            };
            Ok(parts.map(field).collect())
        }
        Container::TfRecord => {
            let features = tfrecord::features(sample)?.into_iter();
            Ok(features.map(|(name, it)| Field { name, value: Value::Feature(it) }).collect())
        }
        Container::Columns { columns } => {
            let bytes = mds::columns(sample, columns)?;
            let field = |(column, bytes): (&Column, &'a [u8])| Field {
                name: column.name.clone(),
                value: Value::Encoded { encoding: column.encoding.clone(), bytes },
            };
            Ok(columns.iter().zip(bytes).map(field).collect())
        }
    }
}

/// The index of the field that is transformed: the one of this name, or the only image. If the name or the
/// type of a field says that it is an image, the first bytes of the others are not looked at.
///
/// # Errors
///
/// [`FieldError`] if there is none, or several.
pub fn chosen(fields: &[Field<'_>], named: Option<&str>) -> Result<usize, FieldError> {
    let all = || fields.iter().map(|field| field.name.clone()).collect();
    if let Some(named) = named {
        let found = fields.iter().position(|field| field.name == named);
        return found.ok_or_else(|| FieldError::Missing { named: named.to_owned(), fields: all() });
    }
    let declared = which(fields, Field::is_declared_image);
    let images = if declared.is_empty() { which(fields, Field::begins_as_image) } else { declared };
    match images[..] {
        [image] => Ok(image),
        _ => Err(FieldError::Unclear { images: images.len(), fields: all() }),
    }
}

fn which<'a>(fields: &[Field<'a>], is_image: impl Fn(&Field<'a>) -> bool) -> Vec<usize> {
    (0..fields.len()).filter(|at| is_image(&fields[*at])).collect()
}

pub fn transformed<'a>(
    container: &Container,
    sample: &'a [u8],
    named: Option<&str>,
) -> Result<&'a [u8], FieldError> {
    let fields = split(container, sample)?;
    let field = &fields[chosen(&fields, named)?];
    field.bytes().ok_or_else(|| FieldError::NoBytes { named: field.name.clone() })
}

impl<'a> Field<'a> {
    fn bytes(&self) -> Option<&'a [u8]> {
        match &self.value {
            Value::Member(bytes) | Value::Encoded { bytes, .. } => Some(bytes),
            Value::Feature(Feature::Bytes(pieces)) => match pieces[..] {
                [bytes] => Some(bytes),
                _ => None,
            },
            Value::Feature(Feature::Integers(_) | Feature::Floats(_)) => None,
        }
    }

    /// Whether it is an image by its name or its type.
    fn is_declared_image(&self) -> bool {
        match &self.value {
            Value::Member(_) => ["jpg", "jpeg", "png", "webp"].contains(&self.name.as_str()),
            Value::Encoded { encoding, .. } => matches!(encoding.as_str(), "jpeg" | "png"),
            Value::Feature(_) => self.name == "image/encoded",
        }
    }

    /// Whether its first bytes are those of an image, where its name and type leave that open.
    fn begins_as_image(&self) -> bool {
        match &self.value {
            Value::Member(_) => false,
            Value::Encoded { encoding, bytes } => encoding == "bytes" && begins_as_image(bytes),
            Value::Feature(_) => self.bytes().is_some_and(begins_as_image),
        }
    }
}

fn begins_as_image(bytes: &[u8]) -> bool {
    let is_webp = bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP");
    is_webp || bytes.starts_with(b"\xff\xd8\xff") || bytes.starts_with(b"\x89PNG\r\n\x1a\n")
}
