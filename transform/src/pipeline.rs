//! A transform whose steps were checked: they follow each other, and every sample yields a row of one size.

mod canonical;
mod check;

use serde::{Deserialize, Serialize};

use crate::{
    container::Container,
    geometry::Size,
    output::{Output, OwnShape, Prepared, PreparedShape},
    pipeline_file::PipelineFile,
    steps::{Dct, Limits, Scaling, Work},
};

/// The steps of a transform. Made from a [`PipelineFile`], which is also its serialised form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "PipelineFile", into = "PipelineFile")]
pub struct Pipeline {
    work: Work,
    limits: Limits,
    output: Output,
    prepared: Option<Prepared>,
    field: Option<String>,
    container: Option<Container>,
}

/// No number in a pipeline is NaN: the check refuses it.
impl Eq for Pipeline {}

impl Pipeline {
    /// Checks the steps.
    ///
    /// # Errors
    ///
    /// At the first step that is wrong, or that does not fit to those before it.
    pub fn try_new(file: &PipelineFile) -> Result<Self, PipelineError> {
        check::pipeline(file)
    }

    pub fn work(&self) -> &Work {
        &self.work
    }

    pub fn limits(&self) -> Limits {
        self.limits
    }

    pub fn output(&self) -> &Output {
        &self.output
    }

    pub fn row_bytes(&self) -> u64 {
        self.output.row_bytes()
    }

    /// Bytes from the start of a row to that of the next, a multiple of 64.
    pub fn row_stride(&self) -> u64 {
        self.output.row_stride()
    }

    /// The form after the last step before the first that draws; `None` if it does not give the rows of the
    /// stored one, or if the sample has other fields, which trainers get from its stored bytes.
    pub fn prepared(&self) -> Option<&Prepared> {
        self.prepared.as_ref().filter(|_| self.container.is_none())
    }

    /// The name of the field that is transformed; `None` if it is the only image of the sample.
    pub fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    /// `None` if the whole sample is transformed.
    pub fn container(&self) -> Option<&Container> {
        self.container.as_ref()
    }

    /// The same steps for one field of each sample.
    #[must_use]
    pub fn inside(self, container: Container) -> Self {
        Self { container: Some(container), ..self }
    }

    /// Bytes of the prepared form of an image of this size; `None` if it has none, or one beyond the limits.
    /// An orientation in its metadata changes nothing about them.
    pub fn prepared_bytes(&self, image: Size) -> Option<u64> {
        let (prepared, Work::Images(images)) = (self.prepared()?, &self.work) else {
            return None;
        };
        let is_within = |size: &Size| (1..=self.limits.pixels).contains(&size.pixels());
        let steps = images.steps.iter().take(prepared.steps_done);
        let done = steps.fold(Some(image).filter(is_within), |size, step| {
            step.size_after(Some(size?)).filter(is_within)
        });
        let bytes = match prepared.shape {
            PreparedShape::Fixed(_) => prepared.bytes()?,
            PreparedShape::Own { channels } => OwnShape { size: done?, channels }.bytes(),
        };
        done.map(|_| bytes).filter(|bytes| *bytes <= check::ROW_BYTES_MAX)
    }

    pub fn is_random(&self) -> bool {
        match &self.work {
            Work::Images(images) => images.steps.iter().any(crate::Step::is_random),
            Work::Arrays(_) | Work::Tokens(_) => false,
        }
    }

    /// The names of the modes that are quicker than exact, for reports.
    pub fn quick_modes(&self) -> Vec<&'static str> {
        let Work::Images(images) = &self.work else { return Vec::new() };
        let fast = (images.decode.dct == Dct::Fast).then_some("dct: fast");
        let scaled = (images.decode.scaling == Scaling::Reduced).then_some("scaled: true");
        fast.into_iter().chain(scaled).collect()
    }

    /// The canonical mapping: every key that has an effect, with its value.
    pub fn to_file(&self) -> PipelineFile {
        canonical::file(self)
    }
}

impl TryFrom<PipelineFile> for Pipeline {
    type Error = PipelineError;

    fn try_from(file: PipelineFile) -> Result<Self, PipelineError> {
        Self::try_new(&file)
    }
}

impl From<Pipeline> for PipelineFile {
    fn from(pipeline: Pipeline) -> Self {
        pipeline.to_file()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is `{value}`; {reason}", self.key())]
pub struct PipelineError {
    /// The path of the key below the mapping of the pipeline, such as `steps`, `0`, `resize`.
    pub path: Vec<String>,
    pub value: String,
    pub reason: Reason,
}

impl PipelineError {
    /// The path of the key as text, such as `steps[0].resize`.
    pub fn key(&self) -> String {
        let mut key = String::new();
        for name in &self.path {
            if name.bytes().all(|byte| byte.is_ascii_digit()) {
                key.extend(["[", name, "]"]);
            } else {
                key.extend([if key.is_empty() { "" } else { "." }, name]);
            }
        }
        key
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    #[error("a transform has at least one step, for example `{{ random_resized_crop: 224 }}`")]
    NoSteps,
    #[error("a transform has at most {max} steps")]
    TooManySteps { max: usize },
    #[error(
        "each step is a mapping with one key, the name of the step, for example `{{ center_crop: 224 }}`"
    )]
    NotOneStep,
    #[error("it says what the samples are, so it is the first step")]
    NotFirst,
    #[error("this step may stand once")]
    Repeated,
    #[error("steps of geometry stand before normalize, dtype and layout")]
    GeometryAfterElements,
    #[error("this step is for images; the samples are {0}")]
    OfImagesOnly(&'static str),
    #[error(
        "the size of a row would depend on the image; end the geometry with center_crop, random_crop, \
         random_resized_crop or `resize: [height, width]`, for example `{{ center_crop: 224 }}`"
    )]
    NoFixedSize,
    #[error("it must be between {min} and {max}")]
    OutOfRange { min: u64, max: u64 },
    #[error("it must be between 0 and 1")]
    NotAProbability,
    #[error(
        "expected two shares above 0 and at most 1, the smaller first, for example `[0.08, 1]`"
    )]
    NotAScale,
    #[error(
        "expected two ratios between 0.001 and 1000, the smaller first, for example `[0.75, 1.333]`"
    )]
    NotARatio,
    #[error("expected {0} numbers, one for each channel")]
    NotAChannelEach(u32),
    #[error("expected finite numbers")]
    NotFinite,
    #[error("a deviation must be above 0")]
    NoDeviation,
    #[error("the rows of images are uint8, float32 or bfloat16")]
    NotAnImageType,
    #[error("normalize yields fractions: use float32 or bfloat16, or leave normalize out")]
    WholeNormalized,
    #[error("tokens are stored as uint8, uint16, uint32, int32 or int64")]
    NotATokenType,
    #[error("it does not hold every {stored}; use {stored}, or int64")]
    TooNarrow { stored: &'static str },
    #[error("arrays are handed out in the type in which they are stored, which `array` states")]
    ArraysAsStored,
    #[error("a step makes {height} x {width} pixels of each image")]
    StepTooLarge { height: u32, width: u32 },
    #[error("a row has at most {max} bytes, and so has what tiers keep of a sample")]
    RowTooLong { max: u64 },
}

#[cfg(test)]
mod tests;
