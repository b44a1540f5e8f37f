//! `tierfeed transform-worker`: transforms samples for an agent or `tierfeed read`, in a process that may crash.

use std::{io, os::fd::AsFd as _};

use anyhow::Context as _;
use tierfeed_transform::worker_protocol::DatasetPipeline;
use tierfeed_transform_worker::{Transforms, serve};

use crate::failure::Failure;

pub(crate) fn run() -> Result<(), Failure> {
    // The socket that the starter made; a copy, because standard input belongs to the library.
    let socket = io::stdin().as_fd().try_clone_to_owned().context("no standard input")?;
    let served = serve(socket, |setup| {
        let pipelines: Vec<DatasetPipeline> =
            serde_json::from_str(&setup.pipeline).map_err(|error| error.to_string())?;
        Ok(Transforms::new(pipelines, setup.seed))
    });
    served.map_err(Failure::work)
}
