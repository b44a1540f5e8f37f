//! What training, validation and evaluation look like, and who says how long they last.

use super::spec::{Parameter, Spec, at, named};
use crate::script::finding::Kind::Epochs;

/// Packages that a training is written with.
pub(in crate::script) const FRAMEWORKS: [&str; 28] = [
    "torch",
    "torchvision",
    "torchdata",
    "tensorflow",
    "keras",
    "jax",
    "flax",
    "optax",
    "lightning",
    "transformers",
    "datasets",
    "accelerate",
    "deepspeed",
    "horovod",
    "composer",
    "streaming",
    "litdata",
    "webdataset",
    "ffcv",
    "grain",
    "monai",
    "nvidia",
    "tensorflow_datasets",
    "torch_geometric",
    "megatron",
    "mxnet",
    "paddle",
    "ray",
];

/// What a part of a script is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::script) enum Phase {
    Training,
    Validation,
    Evaluation,
}

impl Phase {
    pub(in crate::script) const fn name(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::Validation => "validation",
            Self::Evaluation => "evaluation",
        }
    }

    /// The phase that a name speaks of, by its words: `val_loader`, `/data/test`, `trainSet`.
    pub(in crate::script) fn of_name(name: &str) -> Option<Self> {
        let mut spaced = String::new();
        let mut was_lower = false;
        for letter in name.chars() {
            if letter.is_uppercase() && was_lower {
                spaced.push(' ');
            }
            was_lower = letter.is_lowercase();
            spaced.extend(if letter.is_alphabetic() {
                letter.to_lowercase().next()
            } else {
                Some(' ')
            });
        }
        spaced.split_whitespace().find_map(Self::of_word)
    }

    fn of_word(word: &str) -> Option<Self> {
        match word {
            "train" | "training" | "trn" | "trainloader" | "trainset" | "fit" => {
                Some(Self::Training)
            }
            "val" | "valid" | "validate" | "validation" | "dev" | "valloader" | "valset" => {
                Some(Self::Validation)
            }
            "test" | "testing" | "eval" | "evaluate" | "evaluation" | "predict" | "prediction"
            | "inference" | "infer" | "testloader" | "testset" => Some(Self::Evaluation),
            _ => None,
        }
    }
}

/// Methods that only one phase calls.
pub(in crate::script) const TRAINING: [(&str, Phase); 18] = [
    ("backward", Phase::Training),
    ("apply_gradients", Phase::Training),
    ("GradientTape", Phase::Training),
    ("value_and_grad", Phase::Training),
    ("train_on_batch", Phase::Training),
    ("train_batch", Phase::Training),
    ("zero_grad", Phase::Training),
    ("train", Phase::Training),
    ("fit", Phase::Training),
    ("eval", Phase::Evaluation),
    ("no_grad", Phase::Evaluation),
    ("inference_mode", Phase::Evaluation),
    ("evaluate", Phase::Evaluation),
    ("validate", Phase::Validation),
    ("test", Phase::Evaluation),
    ("test_on_batch", Phase::Evaluation),
    ("predict", Phase::Evaluation),
    ("predict_on_batch", Phase::Evaluation),
];

const FIT: &[Parameter] =
    &[named("epochs"), named("steps_per_epoch"), named("validation_freq"), named("initial_epoch")];

/// Calls that say for how long a training lasts.
pub(in crate::script) const EPOCHS: &[Spec] = &[
    Spec::new(
        Epochs,
        "lightning.Trainer",
        "",
        &[named("max_epochs"), named("max_steps"), named("check_val_every_n_epoch")],
    ),
    Spec::new(
        Epochs,
        "transformers.TrainingArguments",
        "",
        &[named("num_train_epochs"), named("max_steps")],
    ),
    Spec::new(
        Epochs,
        "transformers.Seq2SeqTrainingArguments",
        "",
        &[named("num_train_epochs"), named("max_steps")],
    ),
    Spec::new(Epochs, "composer.Trainer", "", &[named("max_duration"), named("eval_interval")]),
    Spec::new(Epochs, "grain.IndexSampler", "", &[named("num_epochs")]),
    Spec::new(Epochs, "tensorflow.data.Dataset.repeat", "", &[at(0, "count")]),
    Spec::new(Epochs, "grain.MapDataset.repeat", "", &[at(0, "num_epochs")]),
    Spec::new(Epochs, "*.fit", "", FIT),
];
