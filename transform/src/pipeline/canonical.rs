//! The mapping of a checked pipeline, with every default written out.

use crate::{
    geometry::Size,
    pipeline::Pipeline,
    pipeline_file::{
        ArrayFile, DctFile, DecodeFile, LimitsFile, ModeFile, NormalizeFile, OrientationFile,
        PipelineFile, RandomResizedCropFile, SizeFile, StepFile, TokensFile,
    },
    steps::{Dct, Decode, Images, Mode, Orientation, Resize, Scaling, Step, Work},
};

pub(super) fn file(pipeline: &Pipeline) -> PipelineFile {
    let steps = match pipeline.work() {
        Work::Images(images) => image_steps(images),
        Work::Arrays(arrays) => vec![StepFile {
            array: Some(ArrayFile {
                shape: arrays.shape.iter().map(|len| u64::from(*len)).collect(),
                dtype: arrays.dtype,
                key: arrays.key.clone(),
            }),
            ..StepFile::default()
        }],
        Work::Tokens(tokens) => vec![
            StepFile {
                tokens: Some(TokensFile { length: tokens.length.into(), dtype: tokens.stored }),
                ..StepFile::default()
            },
            StepFile { dtype: Some(tokens.dtype), ..StepFile::default() },
        ],
    };
    PipelineFile {
        steps,
        limits: Some(LimitsFile { pixels: Some(pipeline.limits().pixels) }),
        field: pipeline.field().map(str::to_owned),
        container: pipeline.container().cloned(),
    }
}

fn image_steps(images: &Images) -> Vec<StepFile> {
    let mut steps = vec![StepFile { decode: Some(decode(images.decode)), ..StepFile::default() }];
    steps.extend(images.steps.iter().map(step));
    if let Some(normalize) = &images.normalize {
        let (mean, std) = (normalize.mean.clone(), normalize.std.clone());
        let normalize = Some(NormalizeFile { mean, std });
        steps.push(StepFile { normalize, ..StepFile::default() });
    }
    steps.push(StepFile { dtype: Some(images.dtype), ..StepFile::default() });
    steps.push(StepFile { layout: Some(images.layout), ..StepFile::default() });
    steps
}

fn decode(decode: Decode) -> DecodeFile {
    DecodeFile {
        orientation: Some(match decode.orientation {
            Orientation::Ignore => OrientationFile::Ignore,
            Orientation::Apply => OrientationFile::Apply,
        }),
        dct: Some(match decode.dct {
            Dct::Exact => DctFile::Exact,
            Dct::Fast => DctFile::Fast,
        }),
        scaled: Some(decode.scaling == Scaling::Reduced),
        mode: Some(match decode.mode {
            Mode::Rgb => ModeFile::Rgb,
            Mode::Grey => ModeFile::Grey,
        }),
    }
}

fn step(step: &Step) -> StepFile {
    let none = StepFile::default();
    match step {
        Step::Resize(Resize::ShortSide(short)) => {
            StepFile { resize: Some(SizeFile::One((*short).into())), ..none }
        }
        Step::Resize(Resize::Exact(size)) => StepFile { resize: Some(both(*size)), ..none },
        Step::CenterCrop(size) => StepFile { center_crop: Some(both(*size)), ..none },
        Step::RandomCrop(size) => StepFile { random_crop: Some(both(*size)), ..none },
        Step::RandomResizedCrop(crop) => StepFile {
            random_resized_crop: Some(RandomResizedCropFile {
                size: both(crop.size),
                scale: Some(crop.scale),
                ratio: Some(crop.ratio),
            }),
            ..none
        },
        Step::RandomHorizontalFlip(probability) => {
            StepFile { random_horizontal_flip: Some(*probability), ..none }
        }
    }
}

fn both(size: Size) -> SizeFile {
    SizeFile::Both([size.height.into(), size.width.into()])
}
