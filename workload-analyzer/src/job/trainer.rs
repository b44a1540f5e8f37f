//! The work of the trainer besides reading batches: used by predictions. Of a run it decides how much room
//! its first schedule has for samples to come.

use std::{
    num::NonZeroU32,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Deserializer};
use tierfeed_core::{
    simulator,
    units::{Bytes, Nanoseconds},
};
use tierfeed_dataset::keys::Reason;

use super::{BATCH_SIZE_MAX, EPOCHS_MAX, node_path::NodePath};
use crate::yaml::scalar::{
    Checked, Count, Scalar, count, count_or, optional, optional_count, or_default, required,
};

const WORKERS_MAX: u32 = 4_096;
const SIDE_MAX: u32 = 1 << 20;
const BYTES_PER_NUMBER_MAX: u32 = 16;
/// A thousand times the largest model of 2026.
const PARAMETERS_MAX: u64 = 1 << 50;
const SAMPLES_MAX: u32 = u32::MAX;
/// Of parameters, gradients and states: 32 bits.
const BYTES_PER_PARAMETER: u32 = 4;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trainer {
    pub loader: Loader,
    /// The arrays that a sample is decoded to; empty if unknown.
    pub decoded: Vec<Element>,
    /// The passes between epochs.
    pub validation: Option<Validation>,
    /// The pass after the last epoch.
    pub evaluation: Option<Pass>,
    pub model: Option<Model>,
    pub checkpoint: Option<Checkpoint>,
    pub pause: Option<Pause>,
    pub cache: NativeCache,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ workers: 8, preprocessing: 6 ms }`")]
pub struct Loader {
    /// Worker processes or threads of each rank; 0 if the training process does it between steps.
    #[serde(default, deserialize_with = "count_or::<_, 0, WORKERS_MAX, 0>")]
    pub workers: u32,
    /// The time in which one worker decodes and transforms one sample; `None` if unknown.
    #[serde(default, deserialize_with = "optional")]
    pub preprocessing: Option<Nanoseconds>,
}

/// An array in a decoded sample.
///
/// # Source
///
/// DeepMemoryDL, section 3.3.3: an element of width x, height y and depth z whose objects have d bytes
/// takes x y z d bytes, and a batch the sum over its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ width: 128, height: 128, depth: 128 }`")]
pub struct Element {
    /// Elements in the first dimension, at least 1.
    #[serde(default = "one", deserialize_with = "count_or::<_, 1, SIDE_MAX, 1>")]
    pub width: u32,
    /// Elements in the second dimension, at least 1.
    #[serde(default = "one", deserialize_with = "count_or::<_, 1, SIDE_MAX, 1>")]
    pub height: u32,
    /// Channels of an image, or the third dimension of a volume; at least 1.
    #[serde(default = "one", deserialize_with = "count_or::<_, 1, SIDE_MAX, 1>")]
    pub depth: u32,
    /// Bytes of one number; at least 1.
    #[serde(default = "one", deserialize_with = "count_or::<_, 1, BYTES_PER_NUMBER_MAX, 1>")]
    pub bytes_per_element: u32,
}

impl Element {
    /// The size of the array; saturates.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        let sides = [self.width, self.height, self.depth, self.bytes_per_element];
        Bytes(sides.into_iter().fold(1, |product: u64, side| product.saturating_mul(side.into())))
    }
}

/// Either one array, or a list of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ width: 224, height: 224, channels: 3 }`")]
pub(super) struct DecodedFile {
    pub(super) width: Option<Count<1, SIDE_MAX>>,
    pub(super) height: Option<Count<1, SIDE_MAX>>,
    pub(super) channels: Option<Count<1, SIDE_MAX>>,
    pub(super) bytes_per_element: Option<Count<1, BYTES_PER_NUMBER_MAX>>,
    pub(super) elements: Option<Vec<Element>>,
}

/// One pass over samples other than those of the training.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ samples: 50000 }`")]
pub struct Pass {
    /// Number of samples, of all ranks together.
    #[serde(deserialize_with = "count::<_, 1, SAMPLES_MAX>")]
    pub samples: u32,
    /// The mean size of a sample; `None` if as in training.
    #[serde(default, deserialize_with = "optional")]
    pub sample_bytes: Option<Bytes>,
    /// Samples per rank and step; `None` if as in training.
    #[serde(default, deserialize_with = "optional_count::<_, 1, BATCH_SIZE_MAX>")]
    pub batch_size: Option<u32>,
    /// The duration of a step; `None` if unknown.
    #[serde(default, deserialize_with = "optional")]
    pub step_time: Option<Nanoseconds>,
}

/// The passes between epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(from = "ValidationFile")]
pub struct Validation {
    pub pass: Pass,
    /// Number of epochs between two passes, at least 1.
    pub every_epochs: u32,
}

/// The keys of a pass, and its interval: `flatten` would lose the check for unknown keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ samples: 50000, every: 1 epoch }`")]
struct ValidationFile {
    samples: Count<1, SAMPLES_MAX>,
    sample_bytes: Option<Checked<Bytes>>,
    batch_size: Option<Count<1, BATCH_SIZE_MAX>>,
    step_time: Option<Checked<Nanoseconds>>,
    every: Option<Checked<Epochs>>,
}

impl From<ValidationFile> for Validation {
    fn from(typed: ValidationFile) -> Self {
        let pass = Pass {
            samples: typed.samples.0,
            sample_bytes: typed.sample_bytes.map(|it| it.0),
            batch_size: typed.batch_size.map(|it| it.0),
            step_time: typed.step_time.map(|it| it.0),
        };
        Self { pass, every_epochs: typed.every.map_or(1, |it| it.0.0) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ parameters: 25557032, optimizer: sgd-momentum }`")]
pub struct Model {
    /// Number of trained parameters.
    #[serde(deserialize_with = "parameters")]
    pub parameters: u64,
    /// Bytes of a parameter, of its gradient and of each optimizer state.
    #[serde(
        default = "bytes_per_parameter",
        deserialize_with = "count_or::<_, 1, BYTES_PER_NUMBER_MAX, BYTES_PER_PARAMETER>"
    )]
    pub bytes_per_parameter: u32,
    pub optimizer: Optimizer,
    #[serde(default, deserialize_with = "or_default")]
    pub device: Device,
}

impl Model {
    /// The size of parameters and optimizer states, which a checkpoint saves.
    #[must_use]
    pub fn saved_bytes(&self) -> Bytes {
        self.copies(1 + self.optimizer.states())
    }

    /// The size of parameters, gradients and optimizer states.
    #[must_use]
    pub fn trained_bytes(&self) -> Bytes {
        self.copies(2 + self.optimizer.states())
    }

    fn copies(&self, copies: u32) -> Bytes {
        let bytes = self.parameters.saturating_mul(self.bytes_per_parameter.into());
        Bytes(bytes.saturating_mul(copies.into()))
    }
}

/// An optimizer, which determines the states per parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Optimizer {
    /// Gradient descent without momentum: no state.
    Sgd,
    /// Gradient descent with momentum: one state.
    SgdMomentum,
    Adam,
    #[serde(rename = "adamw")]
    AdamW,
    Adagrad,
    #[serde(rename = "rmsprop")]
    RmsProp,
    Lamb,
}

impl Optimizer {
    /// Number of states for each parameter.
    ///
    /// # Source
    ///
    /// The `state` of `torch.optim`: `momentum_buffer`; `exp_avg` and `exp_avg_sq`; `sum`;
    /// `square_avg`.
    #[must_use]
    pub const fn states(self) -> u32 {
        match self {
            Self::Sgd => 0,
            Self::SgdMomentum | Self::Adagrad | Self::RmsProp => 1,
            Self::Adam | Self::AdamW | Self::Lamb => 2,
        }
    }
}

const fn one() -> u32 {
    1
}

const fn bytes_per_parameter() -> u32 {
    BYTES_PER_PARAMETER
}

struct Parameters(u64);

/// YAML turns `25.6e6` into `25600000`.
impl Scalar for Parameters {
    type Reason = Reason;

    fn parse(typed: &str) -> Result<Self, Reason> {
        let count = typed.replace('_', "").parse().ok();
        let reason = Reason::OutOfRange { min: 1, max: PARAMETERS_MAX };
        count.filter(|it| (1..=PARAMETERS_MAX).contains(it)).map(Self).ok_or(reason)
    }
}

fn parameters<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    required::<D, Parameters>(from).map(|it| it.0)
}

/// The memory that holds the model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    #[default]
    Cpu,
    Gpu,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ every: 1 epoch, bytes: 300 MB }`")]
pub struct Checkpoint {
    #[serde(deserialize_with = "required")]
    pub every: Interval,
    /// The size of one; `None` to compute it from the model.
    #[serde(default, deserialize_with = "optional")]
    pub bytes: Option<Bytes>,
}

/// Idle phases: evaluations, checkpoints, and all else that the trainer does without reading batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ every: 500 steps, time: 20 s }`")]
pub struct Pause {
    #[serde(deserialize_with = "required")]
    pub every: Interval,
    #[serde(deserialize_with = "required")]
    pub time: Nanoseconds,
}

impl Pause {
    #[must_use]
    pub fn in_steps(self, steps_per_epoch: u32) -> simulator::Pause {
        let every = match self.every {
            Interval::Steps(steps) => steps,
            Interval::Epochs(epochs) => epochs.saturating_mul(steps_per_epoch),
        };
        let every = NonZeroU32::new(every).unwrap_or(NonZeroU32::MIN);
        simulator::Pause { every, time: self.time }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interval {
    /// A number of epochs, at least 1.
    Epochs(u32),
    /// A number of steps, at least 1.
    Steps(u32),
}

impl Scalar for Interval {
    type Reason = &'static str;

    fn parse(typed: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str =
            "expected a number of epochs or steps, for example `1 epoch` or `500 steps`";
        let (count, unit) = typed.split_once(' ').ok_or(EXPECTED)?;
        let count = count.parse().ok().filter(|it| (1..=EPOCHS_MAX).contains(it));
        let count = count.ok_or(EXPECTED)?;
        match unit.trim() {
            "epoch" | "epochs" => Ok(Self::Epochs(count)),
            "step" | "steps" => Ok(Self::Steps(count)),
            _ => Err(EXPECTED),
        }
    }
}

/// An interval that is given in epochs.
struct Epochs(u32);

impl Scalar for Epochs {
    type Reason = &'static str;

    fn parse(typed: &str) -> Result<Self, &'static str> {
        match Interval::parse(typed)? {
            Interval::Epochs(count) => Ok(Self(count)),
            Interval::Steps(_) => Err("expected a number of epochs, for example `1 epoch`"),
        }
    }
}

/// The cache of the framework itself, such as `Dataset.cache` of TensorFlow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NativeCache {
    #[default]
    None,
    /// In the memory of the training process.
    Memory,
    /// In a file or directory.
    Path(PathBuf),
}

impl Scalar for NativeCache {
    type Reason = Reason;

    fn parse(typed: &str) -> Result<Self, Reason> {
        match typed {
            "none" => Ok(Self::None),
            "memory" => Ok(Self::Memory),
            path => NodePath::parse(path).map(|path| Self::Path(path.below(Path::new("")))),
        }
    }
}

impl NativeCache {
    /// The same cache, whose path starts at `directory`.
    pub(super) fn below(self, directory: &Path) -> Self {
        match self {
            Self::Path(path) => Self::Path(directory.join(path)),
            other => other,
        }
    }
}
