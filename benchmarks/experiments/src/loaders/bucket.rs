//! The photographs in a bucket that is far away, as each loader likes to read them there.
//!
//! There are fewer of them: a loader that asks for one object after the other needs long.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::ensure;
use tierfeed_core::units::{Bytes, BytesPerSecond, Nanoseconds};

use super::Loader;
use crate::{
    bucket::{Bucket, Pace},
    machine::Machine,
    stage::{BATCH, STAGING, Stage, job},
    training::{Times, Trained, Training},
};

/// The most photographs in the bucket.
const PHOTOGRAPHS: u32 = 160;
/// A bucket of a cloud, seen from the same region.
const PACE: Pace = Pace {
    latency: Nanoseconds(20_000_000),
    connection: Some(BytesPerSecond(50_000_000)),
    together: Some(BytesPerSecond(80_000_000)),
};

pub(super) fn described() -> String {
    let rate = |rate: Option<BytesPerSecond>| rate.map_or_else(String::new, |it| it.to_string());
    format!(
        "{} to the first byte, {} a connection, {} together",
        PACE.latency,
        rate(PACE.connection),
        rate(PACE.together)
    )
}

/// A bucket with the photographs, and with the formats that loaders bring along.
pub(super) struct Far {
    bucket: Bucket,
    pub(super) photographs: u32,
    /// Bytes a second that a stopwatch read with one connection and with sixteen.
    rates: [f64; 2],
}

const FILES: &str = "photographs";

impl Far {
    /// Writes what the loaders read, below `folder`, and serves it. Loaders whose format cannot be written get a
    /// reason in `absent`.
    ///
    /// # Errors
    ///
    /// If the photographs cannot be copied, or the server does not start.
    pub(super) fn start(
        stage: &Stage<'_>,
        folder: &Path,
        loaders: &[Loader],
        absent: &mut BTreeMap<String, String>,
    ) -> anyhow::Result<Self> {
        let photographs = stage.settings.photographs.min(PHOTOGRAPHS);
        copy(&stage.made, &folder.join(FILES), photographs)?;
        for loader in loaders.iter().filter(|it| it.converts) {
            let to = folder.join(loader.script);
            if let Err(error) = stage.trainer.convert(loader.script, &folder.join(FILES), &to) {
                absent.insert(absence(loader), format!("{error:#}"));
            }
        }
        let bucket = Bucket::start(&stage.settings.s3_server, folder, PACE)?;
        let all = bucket.at(FILES);
        let rate =
            |threads| stage.trainer.times(&Machine::default(), &all, threads).map(Times::rate);
        let rates = [rate(1)?, rate(16)?];
        Ok(Self { bucket, photographs, rates })
    }

    pub(super) fn checked(&self) -> String {
        let rate = |rate: f64| format!("{:.1} MB/s", rate / 1e6);
        format!(
            "the bucket is an S3 server on loopback with {} photographs ({}); a stopwatch read {} by one thread and {} \
             by 16",
            self.photographs,
            described(),
            rate(self.rates[0]),
            rate(self.rates[1])
        )
    }

    /// # Errors
    ///
    /// If the training fails, or lacks photographs.
    pub(super) fn train(
        &self,
        stage: &Stage<'_>,
        loader: &Loader,
        decode: bool,
    ) -> anyhow::Result<Trained> {
        let folder = if loader.converts { loader.script } else { FILES };
        let training = Training {
            loader: loader.script.to_owned(),
            data: self.bucket.at(folder),
            batch_size: BATCH,
            epochs: 1,
            step_s: 0.0,
            workers: loader.workers,
            decode,
            job: job(Bytes(2 * STAGING.0)),
        };
        let trained = stage.trainer.train(&Machine::default(), &training)?;
        let all = u64::from(self.photographs);
        ensure!(trained.images.iter().all(|it| *it >= all), "an epoch of {:?}", trained.images);
        Ok(trained)
    }
}

/// The reason why a loader is not compared with a bucket, if it is known before it tries.
pub(super) fn reason(loader: &Loader) -> Option<&'static str> {
    match (loader.script, loader.workers) {
        ("tf.data", _) => Some("tensorflow-cpu has no file system for s3 or http"),
        ("dataloader", 0 | 2) => {
            Some("with 4 workers only: it reads as many objects at once as it has workers")
        }
        _ => None,
    }
}

/// The key in `Outcome::absent` for a loader that is not compared with a bucket.
pub(super) fn absence(loader: &Loader) -> String {
    format!("{} (bucket)", loader.name)
}

/// Copies the first `count` photographs, by their numbers.
fn copy(from: &Path, to: &Path, count: u32) -> anyhow::Result<()> {
    for class in fs::read_dir(from)? {
        let class = class?;
        let target = to.join(class.file_name());
        fs::create_dir_all(&target)?;
        for photograph in fs::read_dir(class.path())? {
            let photograph: PathBuf = photograph?.path();
            let name = photograph.file_stem().and_then(|it| it.to_str());
            let number: Option<u32> = name.and_then(|it| it.parse().ok());
            if number.is_some_and(|it| it < count) {
                fs::copy(&photograph, target.join(photograph.file_name().unwrap_or_default()))?;
            }
        }
    }
    Ok(())
}
