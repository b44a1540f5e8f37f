//! The mapping of a pipeline, as it is typed in job files and in Python, and passed between processes.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, SeqAccess, Visitor, value},
    ser::SerializeSeq as _,
};

use crate::{
    container::Container,
    output::{Dtype, Layout},
};

/// The mapping of a pipeline, with only the types of its values checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ steps: [{ random_resized_crop: 224 }] }`")]
pub struct PipelineFile {
    pub steps: Vec<StepFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsFile>,
    /// The name of the field that is transformed, of samples that have several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// How the fields lie in a sample. A job file does not have this key: the parser of the job derives it
    /// from the format of the dataset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Container>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ pixels: 100000000 }`")]
pub struct LimitsFile {
    /// Pixels of an image as its header states them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pixels: Option<u64>,
}

/// One step: a mapping with one key, the name of the step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping with the name of one step, such as `{ center_crop: 224 }`")]
pub struct StepFile {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decode: Option<DecodeFile>,
    /// The samples are arrays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArrayFile>,
    /// The samples are tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokensFile>,
    /// The length of the shorter side, or height and width.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize: Option<SizeFile>,
    /// Height and width, or one length for both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub center_crop: Option<SizeFile>,
    /// Height and width, or one length for both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random_crop: Option<SizeFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random_resized_crop: Option<RandomResizedCropFile>,
    /// A probability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random_horizontal_flip: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normalize: Option<NormalizeFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<Dtype>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<Layout>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ mode: grey }`")]
pub struct DecodeFile {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orientation: Option<OrientationFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dct: Option<DctFile>,
    /// Whether JPEG may be decoded at a smaller scale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ModeFile>,
}

/// The effect of the EXIF orientation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OrientationFile {
    Ignore,
    /// The image is turned.
    Apply,
}

/// The inverse transform of JPEG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DctFile {
    Exact,
    Fast,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModeFile {
    Rgb,
    Grey,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ shape: [3, 128, 128], dtype: float32 }`")]
pub struct ArrayFile {
    pub shape: Vec<u64>,
    pub dtype: Dtype,
    /// The name of the array in an npz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A window of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ length: 1024, dtype: uint16 }`")]
pub struct TokensFile {
    pub length: u64,
    /// The type in which the tokens are stored.
    pub dtype: Dtype,
}

/// A crop of random area and ratio.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RandomResizedCropFile {
    /// The size after it.
    pub size: SizeFile,
    /// The area of the crop, as a share of that of the image: from and to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<[f64; 2]>,
    /// The width divided by the height: from and to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<[f64; 2]>,
}

/// A shift and a scale for each channel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(
    expecting = "a mapping such as `{ mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] }`"
)]
pub struct NormalizeFile {
    /// The mean of each channel, as a part of 1.
    pub mean: Vec<f64>,
    /// The standard deviation of each channel, as a part of 1.
    pub std: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeFile {
    One(u64),
    /// Height and width.
    Both([u64; 2]),
}

impl Serialize for SizeFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::One(length) => serializer.serialize_u64(*length),
            Self::Both([height, width]) => {
                let mut both = serializer.serialize_seq(Some(2))?;
                both.serialize_element(height)?;
                both.serialize_element(width)?;
                both.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for SizeFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

struct SizeVisitor;

impl<'de> Visitor<'de> for SizeVisitor {
    type Value = SizeFile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a length such as `224`, or height and width such as `[224, 256]`")
    }

    fn visit_u64<E: de::Error>(self, length: u64) -> Result<SizeFile, E> {
        Ok(SizeFile::One(length))
    }

    fn visit_i64<E: de::Error>(self, length: i64) -> Result<SizeFile, E> {
        let unexpected = || E::invalid_value(de::Unexpected::Signed(length), &self);
        u64::try_from(length).map(SizeFile::One).map_err(|_| unexpected())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, both: A) -> Result<SizeFile, A::Error> {
        <[u64; 2]>::deserialize(value::SeqAccessDeserializer::new(both)).map(SizeFile::Both)
    }
}

impl<'de> Deserialize<'de> for RandomResizedCropFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RandomResizedCropVisitor)
    }
}

struct RandomResizedCropVisitor;

impl<'de> Visitor<'de> for RandomResizedCropVisitor {
    type Value = RandomResizedCropFile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size such as `224`, or a mapping such as `{ size: 224, scale: [0.08, 1] }`")
    }

    fn visit_u64<E: de::Error>(self, length: u64) -> Result<Self::Value, E> {
        Ok(sized(SizeFile::One(length)))
    }

    fn visit_i64<E: de::Error>(self, length: i64) -> Result<Self::Value, E> {
        SizeVisitor.visit_i64(length).map(sized)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, both: A) -> Result<Self::Value, A::Error> {
        SizeVisitor.visit_seq(both).map(sized)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Keys {
            size: SizeFile,
            scale: Option<[f64; 2]>,
            ratio: Option<[f64; 2]>,
        }

        let Keys { size, scale, ratio } =
            Keys::deserialize(value::MapAccessDeserializer::new(map))?;
        Ok(RandomResizedCropFile { size, scale, ratio })
    }
}

fn sized(size: SizeFile) -> RandomResizedCropFile {
    RandomResizedCropFile { size, scale: None, ratio: None }
}
