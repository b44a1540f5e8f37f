//! Tries a transform worker: whether it starts here, and makes a row of an image.

use std::num::NonZeroU32;

use tierfeed_prefetcher::transforms::auto_threads;
use tierfeed_resource_gatherer::doctor::facts::TransformWorker;
use tierfeed_transform::{
    BlockingWorkers, Pipeline, PipelineFile, blocking_worker::Sample, worker_process::Program,
};
use tierfeed_transform_worker::has_landlock;

use crate::environment;

/// A PNG of 2 x 2 pixels: red and green above blue and white.
const IMAGE: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52,
    0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x02, 0x08, 0x02, 0x00, 0x00, 0x00, 0xfd, 0xd4, 0x9a,
    0x73, 0x00, 0x00, 0x00, 0x12, 0x49, 0x44, 0x41, 0x54, 0x78, 0xda, 0x63, 0xf8, 0xcf, 0xc0, 0xc0,
    0x00, 0xc2, 0x0c, 0xff, 0x81, 0x00, 0x00, 0x1f, 0xee, 0x05, 0xfb, 0xf1, 0xab, 0xba, 0x77, 0x00,
    0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
];

/// The pixels of [`IMAGE`].
const ROW: [u8; 12] = [255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255];

const STEPS: &str = r#"{ "steps": [{ "resize": [2, 2] }, { "layout": "hwc" }] }"#;

pub(super) fn look() -> TransformWorker {
    TransformWorker {
        made_row: make_row_blocking(),
        has_landlock: has_landlock(),
        threads: auto_threads(NonZeroU32::MIN).get(),
    }
}

fn make_row_blocking() -> Result<(), String> {
    let file: PipelineFile = serde_json::from_str(STEPS).map_err(|error| error.to_string())?;
    let pipeline = Pipeline::try_new(&file).map_err(|error| error.to_string())?;
    let program = environment::exe().map_err(|error| error.to_string())?;
    let workers = BlockingWorkers::new(Program::tierfeed(program), &pipeline, 0);
    let mut row = [0; ROW.len()];
    let sample = Sample { number: 0, epoch: 0, bytes: IMAGE };
    workers
        .transform_blocking(&sample, &mut row, &mut || true)
        .map_err(|error| error.to_string())?;
    if row == ROW { Ok(()) } else { Err(format!("it made {row:?} of an image of {ROW:?}")) }
}
