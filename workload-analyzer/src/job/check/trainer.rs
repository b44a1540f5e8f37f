//! Checks the keys of the trainer.

use tierfeed_core::units::{Bytes, Nanoseconds};

use super::{BATCH_SIZE_MAX, Check, EPOCHS_MAX};
use crate::{
    job::{
        JobError, KeyConflict, Reason,
        trainer::{
            Checkpoint, Device, Element, Interval, Loader, Model, NativeCache, Optimizer, Pass,
            Pause, Trainer, Validation,
        },
    },
    job_file::{
        CheckpointFile, DecodedFile, ElementFile, JobFile, LoaderFile, ModelFile, PauseFile, Text,
        ValidationFile, Whole,
    },
};

const WORKERS_MAX: u32 = 4_096;
const SIDE_MAX: u32 = 1 << 20;
const BYTES_PER_NUMBER_MAX: u32 = 16;
/// A thousand times the largest model of 2026.
const PARAMETERS_MAX: u64 = 1 << 50;
const ELEMENTS_MAX: usize = 256;

impl Check<'_> {
    pub(super) fn trainer(&self, typed: &JobFile) -> Result<Trainer, JobError> {
        let decoded = typed.decoded.as_ref();
        Ok(Trainer {
            loader: typed.loader.as_ref().map_or(Ok(Loader::default()), |it| self.loader(it))?,
            decoded: decoded.map_or(Ok(Vec::new()), |it| self.decoded(it))?,
            validation: typed.validation.as_ref().map(|it| self.validation(it)).transpose()?,
            evaluation: match &typed.evaluation {
                None => None,
                Some(it) => Some(self.pass(
                    "evaluation",
                    it.samples,
                    (it.sample_bytes.as_ref(), it.batch_size, it.step_time.as_ref()),
                )?),
            },
            model: typed.model.as_ref().map(|it| self.model(it)).transpose()?,
            checkpoint: match &typed.checkpoint {
                None => None,
                Some(it) => Some(self.checkpoint(it, typed.model.is_some())?),
            },
            pause: typed.pause.as_ref().map(|it| self.pause(it)).transpose()?,
            cache: self.native_cache(typed.cache.as_ref())?,
        })
    }

    fn loader(&self, typed: &LoaderFile) -> Result<Loader, JobError> {
        let workers = typed.workers.unwrap_or(Whole(0));
        Ok(Loader {
            workers: self.whole(&["loader", "workers"], workers, 0..=WORKERS_MAX)?,
            preprocessing: self.time(&["loader", "preprocessing"], typed.preprocessing.as_ref())?,
        })
    }

    fn decoded(&self, typed: &DecodedFile) -> Result<Vec<Element>, JobError> {
        let sides = [typed.width, typed.height, typed.channels, typed.bytes_per_element];
        let Some(elements) = &typed.elements else {
            if sides.iter().all(Option::is_none) {
                return Err(self.conflict(&["decoded"], KeyConflict::NoElement));
            }
            let names = ["width", "height", "channels", "bytes_per_element"];
            return Ok(vec![self.element(&["decoded"], names, sides)?]);
        };
        if sides.iter().any(Option::is_some) {
            let conflict = KeyConflict::Beside { other: "width, height and channels" };
            return Err(self.conflict(&["decoded", "elements"], conflict));
        }
        if elements.is_empty() || elements.len() > ELEMENTS_MAX {
            return Err(self.conflict(&["decoded", "elements"], KeyConflict::NoElement));
        }
        let element = |it: &ElementFile| {
            let names = ["width", "height", "depth", "bytes_per_element"];
            let sides = [it.width, it.height, it.depth, it.bytes_per_element];
            self.element(&["decoded", "elements"], names, sides)
        };
        elements.iter().map(element).collect()
    }

    /// An array. A missing dimension is 1, so a vector needs only a width.
    fn element(
        &self,
        keys: &[&str],
        names: [&str; 4],
        sides: [Option<Whole>; 4],
    ) -> Result<Element, JobError> {
        let side = |number: usize, max| {
            let typed = sides[number].unwrap_or(Whole(1));
            self.whole(&[keys, &[names[number]]].concat(), typed, 1..=max)
        };
        Ok(Element {
            width: side(0, SIDE_MAX)?,
            height: side(1, SIDE_MAX)?,
            depth: side(2, SIDE_MAX)?,
            bytes_per_element: side(3, BYTES_PER_NUMBER_MAX)?,
        })
    }

    fn validation(&self, typed: &ValidationFile) -> Result<Validation, JobError> {
        let keys = (typed.sample_bytes.as_ref(), typed.batch_size, typed.step_time.as_ref());
        let every_epochs = match &typed.every {
            None => 1,
            Some(text) => match self.interval(&["validation", "every"], text)? {
                Interval::Epochs(count) => count,
                Interval::Steps(_) => {
                    let reason = Reason::NotEpochs;
                    return Err(self.invalid(&["validation", "every"], &text.0, reason));
                }
            },
        };
        Ok(Validation { pass: self.pass("validation", typed.samples, keys)?, every_epochs })
    }

    fn pass(
        &self,
        phase: &str,
        samples: Whole,
        (sample_bytes, batch_size, step_time): (Option<&Text>, Option<Whole>, Option<&Text>),
    ) -> Result<Pass, JobError> {
        let batch_size = batch_size
            .map(|it| self.whole(&[phase, "batch_size"], it, 1..=BATCH_SIZE_MAX))
            .transpose()?;
        Ok(Pass {
            samples: self.whole(&[phase, "samples"], samples, 1..=u32::MAX)?,
            sample_bytes: self.bytes(&[phase, "sample_bytes"], sample_bytes)?,
            batch_size,
            step_time: self.time(&[phase, "step_time"], step_time)?,
        })
    }

    fn model(&self, typed: &ModelFile) -> Result<Model, JobError> {
        let optimizers = "sgd, sgd-momentum, adam, adamw, adagrad, rmsprop, lamb";
        let keys = ["model", "optimizer"];
        let optimizer =
            self.one_of(&keys, &typed.optimizer, &Optimizer::ALL, Optimizer::name, optimizers);
        let device = match &typed.device {
            None => Device::Cpu,
            Some(text) => {
                self.one_of(&["model", "device"], text, &Device::ALL, Device::name, "cpu, gpu")?
            }
        };
        let bytes = typed.bytes_per_parameter.unwrap_or(Whole(4));
        Ok(Model {
            parameters: self.parameters(&typed.parameters)?,
            bytes_per_parameter: self.whole(
                &["model", "bytes_per_parameter"],
                bytes,
                1..=BYTES_PER_NUMBER_MAX,
            )?,
            optimizer: optimizer?,
            device,
        })
    }

    /// The number of parameters. YAML turns `25.6e6` into `25600000`.
    fn parameters(&self, typed: &Text) -> Result<u64, JobError> {
        let count = typed.0.replace('_', "").parse().ok();
        let reason = Reason::OutOfRange { min: 1, max: PARAMETERS_MAX };
        let invalid = || self.invalid(&["model", "parameters"], &typed.0, reason);
        count.filter(|count| (1..=PARAMETERS_MAX).contains(count)).ok_or_else(invalid)
    }

    fn pause(&self, typed: &PauseFile) -> Result<Pause, JobError> {
        Ok(Pause {
            every: self.interval(&["pause", "every"], &typed.every)?,
            time: self.quantity::<Nanoseconds>(&["pause", "time"], &typed.time, "120 ms")?,
        })
    }

    fn checkpoint(&self, typed: &CheckpointFile, has_model: bool) -> Result<Checkpoint, JobError> {
        if typed.bytes.is_none() && !has_model {
            return Err(self.conflict(&["checkpoint"], KeyConflict::NoCheckpointBytes));
        }
        Ok(Checkpoint {
            every: self.interval(&["checkpoint", "every"], &typed.every)?,
            bytes: self.bytes(&["checkpoint", "bytes"], typed.bytes.as_ref())?,
        })
    }

    pub(super) fn interval(&self, keys: &[&str], typed: &Text) -> Result<Interval, JobError> {
        let invalid = || self.invalid(keys, &typed.0, Reason::NotAnInterval);
        let (count, unit) = typed.0.split_once(' ').ok_or_else(invalid)?;
        let count = count.parse().ok().filter(|it| (1..=EPOCHS_MAX).contains(it));
        let count = count.ok_or_else(invalid)?;
        match unit.trim() {
            "epoch" | "epochs" => Ok(Interval::Epochs(count)),
            "step" | "steps" => Ok(Interval::Steps(count)),
            _ => Err(invalid()),
        }
    }

    fn native_cache(&self, typed: Option<&Text>) -> Result<NativeCache, JobError> {
        match typed {
            None => Ok(NativeCache::None),
            Some(text) if text.0 == "none" => Ok(NativeCache::None),
            Some(text) if text.0 == "memory" => Ok(NativeCache::Memory),
            Some(text) => Ok(NativeCache::Path(self.path(&["cache"], text)?)),
        }
    }

    fn time(&self, keys: &[&str], typed: Option<&Text>) -> Result<Option<Nanoseconds>, JobError> {
        typed.map(|text| self.quantity::<Nanoseconds>(keys, text, "120 ms")).transpose()
    }

    fn bytes(&self, keys: &[&str], typed: Option<&Text>) -> Result<Option<Bytes>, JobError> {
        typed.map(|text| self.positive_bytes(keys, text)).transpose()
    }
}
