//! Writes the rows of image files, with what was done to each, for comparison with other programs.
//!
//! usage: rows PIPELINE SEED < PATHS
//!
//! PIPELINE is JSON as in a job file. The number of a line is that of its sample, in epoch 0. For each
//! there is a line of JSON on standard output, and `bytes` bytes behind it.

use std::{
    env, fs,
    io::{self, BufRead as _, Write as _},
};

use serde_json::{Value, json};
use tierfeed_images::{Channels, Decoder, Image, Orientation, Region, Settings};
use tierfeed_transform::{
    DrawKey, Images, Operation, Pipeline, PipelineFile, Size, Work,
    steps::{self, Mode},
    worker_protocol::InputForm,
};
use tierfeed_transform_worker::{Input, Transform};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = env::args().skip(1);
    let (Some(pipeline), Some(seed)) = (arguments.next(), arguments.next()) else {
        return Err("usage: rows PIPELINE SEED < PATHS".into());
    };
    let file: PipelineFile = serde_json::from_str(&pipeline)?;
    let pipeline = Pipeline::try_new(&file)?;
    let seed = seed.parse()?;
    let mut transform = Transform::new(pipeline.clone(), seed);
    let mut output = io::stdout().lock();
    for (sample, path) in (0..).zip(io::stdin().lock().lines()) {
        let bytes = fs::read(path?)?;
        let mut row = vec![0; usize::try_from(pipeline.row_bytes())?];
        let input = Input { sample, epoch: 0, form: InputForm::Stored, bytes: &bytes };
        let said = match transform.apply(&input, &mut row, None) {
            Ok(()) => json!({ "operations": operations(&pipeline, seed, &input)? }),
            Err(error) => {
                row.clear();
                json!({ "error": error.to_string() })
            }
        };
        let whole = whole(&pipeline, &bytes).unwrap_or_default();
        let line = json!({ "said": said, "row": row.len(), "whole": whole.len() });
        writeln!(output, "{line}")?;
        output.write_all(&row)?;
        output.write_all(&whole)?;
    }
    Ok(())
}

fn images(pipeline: &Pipeline) -> Result<&Images, Failure> {
    match pipeline.work() {
        Work::Images(images) => Ok(images),
        Work::Arrays(_) | Work::Tokens(_) => Err("a pipeline for images is meant".into()),
    }
}

fn orientation(images: &Images, decoder: &Decoder, bytes: &[u8]) -> Orientation {
    let format = Decoder::default().header(bytes, u64::MAX).map(|it| it.format);
    match (images.decode.orientation, format) {
        (steps::Orientation::Apply, Ok(format)) => decoder.orientation(bytes, format),
        _ => Orientation::Upright,
    }
}

/// All pixels of the image, upright.
fn whole(pipeline: &Pipeline, bytes: &[u8]) -> Result<Vec<u8>, Failure> {
    let images = images(pipeline)?;
    let mut decoder = Decoder::default();
    let header = decoder.header(bytes, u64::MAX)?;
    let channels = match images.decode.mode {
        Mode::Rgb => Channels::Rgb,
        Mode::Grey => Channels::Grey,
    };
    let settings = Settings { channels, ..Settings::default() };
    let (mut stored, mut upright) = (Image::default(), Image::default());
    decoder.decode(bytes, header, Region::whole(header.size), &settings, &mut stored)?;
    orientation(images, &decoder, bytes).apply(stored.view(), &mut upright);
    let view = upright.view();
    Ok((0..view.size().height).flat_map(|row| view.row(row).to_vec()).collect())
}

fn operations(pipeline: &Pipeline, seed: u64, input: &Input<'_>) -> Result<Value, Failure> {
    let images = images(pipeline)?;
    let mut decoder = Decoder::default();
    let stored = decoder.header(input.bytes, u64::MAX)?.size;
    let size = orientation(images, &decoder, input.bytes).size(stored);
    let key = DrawKey { seed, epoch: input.epoch, sample: input.sample };
    let size = Size { height: size.height, width: size.width };
    Ok(images.operations(key, size, 0)?.into_iter().map(operation).collect())
}

fn operation(operation: Operation) -> Value {
    match operation {
        Operation::Pad { top, left, size } => json!(["pad", top, left, size.height, size.width]),
        Operation::Crop(region) => {
            json!(["crop", region.top, region.left, region.size.height, region.size.width])
        }
        Operation::Resize(size) => json!(["resize", size.height, size.width]),
        Operation::FlipHorizontal => json!(["flip"]),
    }
}
