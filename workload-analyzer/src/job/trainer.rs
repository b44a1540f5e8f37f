//! What the trainer does besides reading its batches: known to the analysis, of no effect on a run.

use std::path::PathBuf;

use tierfeed_core::units::{Bytes, Nanoseconds};

/// What the trainer does besides reading its batches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trainer {
    /// How it turns samples into tensors.
    pub loader: Loader,
    /// The arrays that a sample is decoded to; empty if unknown.
    pub decoded: Vec<Element>,
    /// What is read between epochs.
    pub validation: Option<Validation>,
    /// What is read after the last epoch.
    pub evaluation: Option<Pass>,
    /// What is trained.
    pub model: Option<Model>,
    /// What is written meanwhile.
    pub checkpoint: Option<Checkpoint>,
    /// Whether the framework caches samples itself.
    pub cache: NativeCache,
}

/// How samples become tensors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loader {
    /// Worker processes or threads of each rank; 0 if the training process does it between steps.
    pub workers: u32,
    /// What one of them takes to decode and transform one sample, or `None` if unknown.
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
    /// At least 1.
    pub width: u32,
    /// At least 1.
    pub height: u32,
    /// Channels of an image, or the third dimension of a volume; at least 1.
    pub depth: u32,
    /// Bytes of one number; at least 1.
    pub bytes_per_element: u32,
}

impl Element {
    /// What the array takes, or the largest number if that is more.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        let sides = [self.width, self.height, self.depth, self.bytes_per_element];
        Bytes(sides.into_iter().fold(1, |product: u64, side| product.saturating_mul(side.into())))
    }
}

/// One pass over other samples than those of the training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// How many, all ranks together.
    pub samples: u32,
    /// Their mean size, or `None` if they are as those of the training.
    pub sample_bytes: Option<Bytes>,
    /// Samples per rank and step, or `None` if as in training.
    pub batch_size: Option<u32>,
    /// What a step takes, or `None` if unknown.
    pub step_time: Option<Nanoseconds>,
}

/// A pass between epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validation {
    /// What is read.
    pub pass: Pass,
    /// After how many epochs each time, at least 1.
    pub every_epochs: u32,
}

/// What is trained, as far as memory goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Model {
    /// Numbers that are trained.
    pub parameters: u64,
    /// Bytes of one of them, and of its gradient and of each state of the optimizer.
    pub bytes_per_parameter: u32,
    /// What moves the parameters.
    pub optimizer: Optimizer,
    /// Whose memory holds them.
    pub device: Device,
}

impl Model {
    /// Parameters and the states of the optimizer: what has to be saved to go on later.
    #[must_use]
    pub fn saved_bytes(&self) -> Bytes {
        self.copies(1 + self.optimizer.states())
    }

    /// Parameters, gradients and the states of the optimizer.
    #[must_use]
    pub fn trained_bytes(&self) -> Bytes {
        self.copies(2 + self.optimizer.states())
    }

    fn copies(&self, copies: u32) -> Bytes {
        let bytes = self.parameters.saturating_mul(self.bytes_per_parameter.into());
        Bytes(bytes.saturating_mul(copies.into()))
    }
}

/// A rule that moves parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Optimizer {
    /// Plain gradient descent.
    Sgd,
    /// Gradient descent with momentum.
    SgdMomentum,
    /// `Adam`.
    Adam,
    /// `AdamW`.
    AdamW,
    /// `Adagrad`.
    Adagrad,
    /// `RMSprop`.
    RmsProp,
    /// `LAMB`.
    Lamb,
}

impl Optimizer {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Sgd,
        Self::SgdMomentum,
        Self::Adam,
        Self::AdamW,
        Self::Adagrad,
        Self::RmsProp,
        Self::Lamb,
    ];

    /// The name in job files.
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

    /// Numbers that it keeps for each parameter.
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

/// Whose memory holds the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// The main memory of the node.
    Cpu,
    /// An accelerator's own.
    Gpu,
}

impl Device {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Cpu, Self::Gpu];

    /// The name in job files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
        }
    }
}

/// What is written to be able to go on later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    /// How often.
    pub every: Every,
    /// What one takes, or `None` if that follows from the model.
    pub bytes: Option<Bytes>,
}

/// A distance in the training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Every {
    /// So many epochs, at least 1.
    Epochs(u32),
    /// So many steps, at least 1.
    Steps(u32),
}

/// Where the framework keeps samples for later epochs itself, as `Dataset.cache` of TensorFlow does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NativeCache {
    /// Nowhere.
    #[default]
    None,
    /// In the memory of the training process.
    Memory,
    /// In a file or directory.
    Path(PathBuf),
}
