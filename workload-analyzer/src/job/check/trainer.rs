//! Checks the keys of the trainer that depend on each other.

use tierfeed_dataset::keys;

use super::Check;
use crate::{
    job::{
        JobError, KeyConflict,
        file::JobFile,
        trainer::{DecodedFile, Element, Trainer},
    },
    yaml::scalar::Checked,
};

const ELEMENTS_MAX: usize = 256;

impl Check<'_> {
    pub(super) fn trainer(&self, typed: &mut JobFile) -> Result<Trainer, JobError> {
        if let (Some(checkpoint), None) = (typed.checkpoint, typed.model)
            && checkpoint.bytes.is_none()
        {
            return Err(self.conflict(&["checkpoint"], KeyConflict::NoCheckpointBytes));
        }
        let Checked(cache) = typed.cache.take().unwrap_or_default();
        Ok(Trainer {
            loader: typed.loader.unwrap_or_default(),
            decoded: typed.decoded.take().map_or(Ok(Vec::new()), |it| self.decoded(it))?,
            validation: typed.validation,
            evaluation: typed.evaluation,
            model: typed.model,
            checkpoint: typed.checkpoint,
            pause: typed.pause,
            cache: cache.below(self.directory),
        })
    }

    fn decoded(&self, typed: DecodedFile) -> Result<Vec<Element>, JobError> {
        let DecodedFile { width, height, channels, bytes_per_element, elements } = typed;
        let has_sides = width.is_some() || height.is_some() || channels.is_some();
        let is_array = has_sides || bytes_per_element.is_some();
        match elements {
            None if !is_array => Err(self.conflict(&["decoded"], KeyConflict::NoElement)),
            None => Ok(vec![Element {
                width: width.map_or(1, |it| it.0),
                height: height.map_or(1, |it| it.0),
                depth: channels.map_or(1, |it| it.0),
                bytes_per_element: bytes_per_element.map_or(1, |it| it.0),
            }]),
            Some(_) if is_array => {
                let other = "width, height and channels";
                let conflict = keys::KeyConflict::Beside { other };
                Err(self.conflict(&["decoded", "elements"], conflict))
            }
            Some(elements) if (1..=ELEMENTS_MAX).contains(&elements.len()) => Ok(elements),
            Some(_) => Err(self.conflict(&["decoded", "elements"], KeyConflict::NoElement)),
        }
    }
}
