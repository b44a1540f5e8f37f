//! The work of the trainer besides reading batches: used by predictions. Of a run it decides how much room
//! its first schedule has for samples to come.

use std::{num::NonZeroU32, path::PathBuf};

use tierfeed_core::{
    simulator,
    units::{Bytes, Nanoseconds},
};

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

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loader {
    /// Worker processes or threads of each rank; 0 if the training process does it between steps.
    pub workers: u32,
    /// The time in which one worker decodes and transforms one sample; `None` if unknown.
    pub preprocessing: Option<Nanoseconds>,
}

/// An array in a decoded sample.
///
/// # Source
///
/// DeepMemoryDL, section 3.3.3: an element of width x, height y and depth z whose objects have d bytes
/// takes x y z d bytes, and a batch the sum over its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element {
    /// Elements in the first dimension, at least 1.
    pub width: u32,
    /// Elements in the second dimension, at least 1.
    pub height: u32,
    /// Channels of an image, or the third dimension of a volume; at least 1.
    pub depth: u32,
    /// Bytes of one number; at least 1.
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

/// One pass over samples other than those of the training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// Number of samples, of all ranks together.
    pub samples: u32,
    /// The mean size of a sample; `None` if as in training.
    pub sample_bytes: Option<Bytes>,
    /// Samples per rank and step; `None` if as in training.
    pub batch_size: Option<u32>,
    /// The duration of a step; `None` if unknown.
    pub step_time: Option<Nanoseconds>,
}

/// The passes between epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validation {
    pub pass: Pass,
    /// Number of epochs between two passes, at least 1.
    pub every_epochs: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Model {
    /// Number of trained parameters.
    pub parameters: u64,
    /// Bytes of a parameter, of its gradient and of each optimizer state.
    pub bytes_per_parameter: u32,
    pub optimizer: Optimizer,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Optimizer {
    /// Gradient descent without momentum: no state.
    Sgd,
    /// Gradient descent with momentum: one state.
    SgdMomentum,
    Adam,
    AdamW,
    Adagrad,
    RmsProp,
    Lamb,
}

impl Optimizer {
    pub const ALL: [Self; 7] = [
        Self::Sgd,
        Self::SgdMomentum,
        Self::Adam,
        Self::AdamW,
        Self::Adagrad,
        Self::RmsProp,
        Self::Lamb,
    ];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sgd => "sgd",
            Self::SgdMomentum => "sgd-momentum",
            Self::Adam => "adam",
            Self::AdamW => "adamw",
            Self::Adagrad => "adagrad",
            Self::RmsProp => "rmsprop",
            Self::Lamb => "lamb",
        }
    }

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

/// The memory that holds the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    Cpu,
    Gpu,
}

impl Device {
    pub const ALL: [Self; 2] = [Self::Cpu, Self::Gpu];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    pub every: Interval,
    /// The size of one; `None` to compute it from the model.
    pub bytes: Option<Bytes>,
}

/// Idle phases: evaluations, checkpoints, and all else that the trainer does without reading batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    pub every: Interval,
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
