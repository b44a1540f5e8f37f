//! Measurements of transforms by agents, kept beside the cached indexes: plans choose the form of samples by
//! the times that the last agent of the host offered.
//!
//! A record that is damaged, or of another host, dataset or pipeline, counts as none.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tierfeed_core::fleet::schedule::{OwnLengths, TransformOffer};
use tierfeed_dataset::{Dataset, Index};
use tierfeed_transform::Pipeline;
use xxhash_rust::xxh3::xxh3_64;

use crate::whole_file;

pub const RECORDS_MAX: usize = 64;

#[derive(Debug, Clone)]
pub struct MeasuredTransforms {
    folder: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Subject {
    host: String,
    index: String,
    pipeline: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    of: Subject,
    measured: TransformOffer,
}

impl Subject {
    fn new(host: &str, index: &Index, pipeline: &Pipeline) -> Option<Self> {
        Some(Self {
            host: host.to_owned(),
            index: format!("{:016x}", index.fingerprint()),
            pipeline: serde_json::to_string(pipeline).ok()?,
        })
    }
}

impl MeasuredTransforms {
    /// `folder` need not exist yet.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// `offer` with what the last agent on this host measured for the samples of an index, if it did.
    #[must_use]
    pub fn complete(
        &self,
        offer: TransformOffer,
        host: &str,
        index: &Index,
        pipeline: &Pipeline,
    ) -> TransformOffer {
        let read = || {
            let of = Subject::new(host, index, pipeline)?;
            let text = fs::read_to_string(self.path_of(&of)).ok()?;
            let record: Record = serde_json::from_str(&text).ok()?;
            (record.of == of).then_some(record)
        };
        let Some(Record { measured: TransformOffer { each, own, from, .. }, .. }) = read() else {
            return offer;
        };
        // Only agents that run compare what they found.
        let own = own.map(|own| OwnLengths { fingerprint: None, ..own });
        TransformOffer { each, own, from, ..offer }
    }

    /// Keeps what an agent measured, unless the folder is a part of the dataset.
    ///
    /// # Errors
    ///
    /// If the folder cannot be written; then plans do not know it.
    pub fn keep(
        &self,
        offer: &TransformOffer,
        host: &str,
        (dataset, index): (&Dataset, &Index),
        pipeline: &Pipeline,
    ) -> io::Result<()> {
        let Some(of) = Subject::new(host, index, pipeline) else { return Ok(()) };
        let path = self.path_of(&of);
        if Index::check_place(dataset, &path).is_err() {
            return Ok(());
        }
        let record = Record { of, measured: offer.clone() };
        fs::create_dir_all(&self.folder)?;
        let text = serde_json::to_string(&record)?;
        whole_file::write(&path, text)?;
        super::remove_oldest(&self.folder, "transform", RECORDS_MAX)
    }

    /// The name is a hash of what the record is of.
    fn path_of(&self, Subject { host, index, pipeline }: &Subject) -> PathBuf {
        let name = xxh3_64(format!("{host}\n{index}\n{pipeline}").as_bytes());
        self.folder.join(format!("{name:016x}.transform"))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use tierfeed_core::{
        retention::form::SampleTime,
        units::{Bytes, Nanoseconds},
    };
    use tierfeed_dataset::{Format, source::Location};
    use tierfeed_transform::PipelineFile;

    use super::*;

    fn pipeline(text: &str) -> Pipeline {
        let file: PipelineFile = serde_json::from_str(text).unwrap();
        Pipeline::try_new(&file).unwrap()
    }

    #[test]
    fn what_was_measured_is_found_again_for_the_same_host_dataset_and_steps_only() {
        let folder = tempfile::tempdir().unwrap();
        let class = folder.path().join("data/class");
        fs::create_dir_all(&class).unwrap();
        fs::write(class.join("a.jpg"), "a").unwrap();
        let dataset = Dataset::new(Location::Path(folder.path().join("data")), Format::ImageFolder);
        let index = Index::build(&dataset, None, &mut |_| ()).unwrap();
        let crop = pipeline(r#"{"steps": [{"random_resized_crop": 8}]}"#);
        let bare = TransformOffer::of_threads(NonZeroU32::MIN);
        let measured = TransformOffer {
            each: Some(SampleTime { prepare: Nanoseconds(7), rest: Nanoseconds(3) }),
            from: "32 samples".to_owned(),
            own: Some(OwnLengths {
                fingerprint: None,
                mean: Bytes(9),
                deviation: Bytes(2),
                scan: None,
            }),
            ..bare.clone()
        };
        let records = MeasuredTransforms::new(&folder.path().join("cache"));
        let found = |host, pipeline| records.complete(bare.clone(), host, &index, pipeline);
        assert_eq!(found("here", &crop), bare);
        records.keep(&measured, "here", (&dataset, &index), &crop).unwrap();
        assert_eq!(found("here", &crop), measured);
        assert_eq!(found("there", &crop), bare);
        let other = pipeline(r#"{"steps": [{"random_resized_crop": 9}]}"#);
        assert_eq!(found("here", &other), bare);
        let path = records.path_of(&Subject::new("here", &index, &crop).unwrap());
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[1..]).unwrap();
        assert_eq!(found("here", &crop), bare);
    }
}
