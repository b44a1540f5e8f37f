//! Checks the steps of a pipeline in their order. All defaults are in this module.

use std::fmt;

use crate::{
    geometry::Size,
    output::{Dtype, Layout, Output, Prepared, PreparedShape, Rest},
    pipeline::{Pipeline, PipelineError, Reason},
    pipeline_file::{
        ArrayFile, DctFile, DecodeFile, LimitsFile, ModeFile, NormalizeFile, OrientationFile,
        PipelineFile, RandomResizedCropFile, SizeFile, StepFile, TokensFile,
    },
    steps::{
        Arrays, Dct, Decode, Images, Limits, Mode, Normalize, Orientation, RandomResizedCrop,
        Resize, Scaling, Step, Tokens, Work,
    },
};

const STEPS_MAX: usize = 32;

/// The longest side of what a step yields: that of JPEG and WebP.
const SIDE_MAX: u64 = 65_500;

const DIMENSIONS_MAX: u64 = 16;

/// The longest row, and the longest prepared form: staging holds some batches of them.
pub(super) const ROW_BYTES_MAX: u64 = 1 << 30;

/// A million by a million pixels; no machine holds them.
const PIXELS_MAX: u64 = 1_000_000_000_000;

const RATIO_MIN: f64 = 0.001;
const RATIO_MAX: f64 = 1000.0;

/// torchvision's defaults of `RandomResizedCrop`.
const SCALE: [f64; 2] = [0.08, 1.0];
const RATIO: [f64; 2] = [3.0 / 4.0, 4.0 / 3.0];

pub(super) fn pipeline(file: &PipelineFile) -> Result<Pipeline, PipelineError> {
    let whole = |reason| Err(error(vec!["steps".into()], &file.steps.len(), reason));
    if file.steps.is_empty() {
        return whole(Reason::NoSteps);
    }
    if file.steps.len() > STEPS_MAX {
        return whole(Reason::TooManySteps { max: STEPS_MAX });
    }
    let limits = limits(file.limits.as_ref())?;
    let (work, output, prepared) = match work_of(file)? {
        Work::Images(images) => images_output(images, limits)?,
        Work::Arrays(arrays) => {
            let output = Output { shape: arrays.shape.clone(), dtype: arrays.dtype, layout: None };
            let prepared = whole_output(&output, 0);
            (Work::Arrays(arrays), output, Some(prepared))
        }
        Work::Tokens(tokens) => {
            let output = Output { shape: vec![tokens.length], dtype: tokens.dtype, layout: None };
            let prepared = whole_output(&output, 0);
            (Work::Tokens(tokens), output, Some(prepared))
        }
    };
    let kept_bytes = match &prepared {
        Some(Prepared { shape: PreparedShape::Fixed(shape), dtype, .. }) => bytes_of(shape, *dtype),
        Some(Prepared { shape: PreparedShape::Own { .. }, .. }) | None => 0,
    };
    let bytes = bytes_of(&output.shape, output.dtype).max(kept_bytes);
    if bytes > ROW_BYTES_MAX.into() {
        let reason = Reason::RowTooLong { max: ROW_BYTES_MAX };
        return Err(error(vec!["steps".into()], &format_args!("{bytes} bytes"), reason));
    }
    let (field, container) = (file.field.clone(), file.container.clone());
    Ok(Pipeline { work, limits, output, prepared, field, container })
}

/// In 128 bits, and saturated: an array may state any dimensions.
fn bytes_of(shape: &[u32], dtype: Dtype) -> u128 {
    let elements = shape.iter().fold(1, |all: u128, len| all.saturating_mul((*len).into()));
    elements.saturating_mul(dtype.bytes().into())
}

fn error(path: Vec<String>, value: &dyn fmt::Display, reason: Reason) -> PipelineError {
    PipelineError { path, value: value.to_string(), reason }
}

fn limits(file: Option<&LimitsFile>) -> Result<Limits, PipelineError> {
    let Some(pixels) = file.and_then(|file| file.pixels) else { return Ok(Limits::DEFAULT) };
    if (1..=PIXELS_MAX).contains(&pixels) {
        return Ok(Limits { pixels });
    }
    let reason = Reason::OutOfRange { min: 1, max: PIXELS_MAX };
    Err(error(vec!["limits".into(), "pixels".into()], &pixels, reason))
}

/// The steps as they are read, before the whole is known.
fn work_of(file: &PipelineFile) -> Result<Work, PipelineError> {
    let first = &file.steps[0];
    let at = At { step: 0 };
    match (&first.array, &first.tokens) {
        (Some(array), None) if keys(first).len() == 1 => arrays(at, array, &file.steps[1..]),
        (None, Some(typed)) if keys(first).len() == 1 => tokens(at, *typed, &file.steps[1..]),
        _ => images(&file.steps).map(Work::Images),
    }
}

/// The place of a step, for errors.
#[derive(Clone, Copy)]
struct At {
    step: usize,
}

impl At {
    fn path(self, keys: &[&str]) -> Vec<String> {
        let head = ["steps".to_owned(), self.step.to_string()];
        head.into_iter().chain(keys.iter().map(|key| (*key).to_owned())).collect()
    }

    fn error(self, keys: &[&str], value: &dyn fmt::Display, reason: Reason) -> PipelineError {
        error(self.path(keys), value, reason)
    }

    /// A length of at least 1.
    fn side(self, keys: &[&str], length: u64) -> Result<u32, PipelineError> {
        let side = u32::try_from(length).ok().filter(|_| (1..=SIDE_MAX).contains(&length));
        let reason = Reason::OutOfRange { min: 1, max: SIDE_MAX };
        side.ok_or_else(|| self.error(keys, &length, reason))
    }

    fn size(self, keys: &[&str], file: SizeFile) -> Result<Size, PipelineError> {
        let [height, width] = match file {
            SizeFile::One(length) => [length; 2],
            SizeFile::Both(both) => both,
        };
        Ok(Size { height: self.side(keys, height)?, width: self.side(keys, width)? })
    }
}

/// The names of the steps in the mapping: one, if it is right.
fn keys(step: &StepFile) -> Vec<&'static str> {
    let StepFile {
        decode,
        array,
        tokens,
        resize,
        center_crop,
        random_crop,
        random_resized_crop,
        random_horizontal_flip,
        normalize,
        dtype,
        layout,
    } = step;
    let all = [
        ("decode", decode.is_some()),
        ("array", array.is_some()),
        ("tokens", tokens.is_some()),
        ("resize", resize.is_some()),
        ("center_crop", center_crop.is_some()),
        ("random_crop", random_crop.is_some()),
        ("random_resized_crop", random_resized_crop.is_some()),
        ("random_horizontal_flip", random_horizontal_flip.is_some()),
        ("normalize", normalize.is_some()),
        ("dtype", dtype.is_some()),
        ("layout", layout.is_some()),
    ];
    all.into_iter().filter_map(|(key, is_typed)| is_typed.then_some(key)).collect()
}

fn key(at: At, step: &StepFile) -> Result<&'static str, PipelineError> {
    match keys(step)[..] {
        [key] => Ok(key),
        [] => Err(at.error(&[], &"{}", Reason::NotOneStep)),
        ref several => Err(at.error(&[], &several.join(", "), Reason::NotOneStep)),
    }
}

fn arrays(at: At, file: &ArrayFile, rest: &[StepFile]) -> Result<Work, PipelineError> {
    if let Some(step) = rest.first() {
        let after = At { step: 1 };
        let key = key(after, step)?;
        let reason = match key {
            "array" => Reason::Repeated,
            "dtype" => Reason::ArraysAsStored,
            "decode" | "tokens" => Reason::NotFirst,
            _ => Reason::OfImagesOnly("arrays"),
        };
        return Err(after.error(&[key], &key, reason));
    }
    let dimensions = file.shape.len() as u64;
    if !(1..=DIMENSIONS_MAX).contains(&dimensions) {
        let reason = Reason::OutOfRange { min: 1, max: DIMENSIONS_MAX };
        return Err(at.error(
            &["array", "shape"],
            &format_args!("{dimensions} dimensions"),
            reason,
        ));
    }
    let dimension = |length: &u64| {
        let reason = Reason::OutOfRange { min: 1, max: u32::MAX.into() };
        let checked = u32::try_from(*length).ok().filter(|length| *length > 0);
        checked.ok_or_else(|| at.error(&["array", "shape"], &length, reason))
    };
    let shape = file.shape.iter().map(dimension).collect::<Result<_, _>>()?;
    Ok(Work::Arrays(Arrays { shape, dtype: file.dtype, key: file.key.clone() }))
}

fn tokens(at: At, file: TokensFile, rest: &[StepFile]) -> Result<Work, PipelineError> {
    let length = u32::try_from(file.length).ok().filter(|length| *length > 0);
    let reason = Reason::OutOfRange { min: 1, max: u32::MAX.into() };
    let length = length.ok_or_else(|| at.error(&["tokens", "length"], &file.length, reason))?;
    let stored = file.dtype;
    let wider: &[Dtype] = match stored {
        Dtype::Uint8 => &[Dtype::Uint16, Dtype::Uint32, Dtype::Int32, Dtype::Int64],
        Dtype::Uint16 => &[Dtype::Uint32, Dtype::Int32, Dtype::Int64],
        Dtype::Uint32 | Dtype::Int32 | Dtype::Int64 => &[Dtype::Int64],
        _ => {
            return Err(at.error(&["tokens", "dtype"], &stored.name(), Reason::NotATokenType));
        }
    };
    let mut dtype = stored;
    for (step, file) in (1..).zip(rest) {
        let at = At { step };
        let key = key(at, file)?;
        let Some(typed) = file.dtype else {
            let reason = match key {
                "tokens" => Reason::Repeated,
                "decode" | "array" => Reason::NotFirst,
                _ => Reason::OfImagesOnly("tokens"),
            };
            return Err(at.error(&[key], &key, reason));
        };
        if step > 1 {
            return Err(at.error(&[key], &typed.name(), Reason::Repeated));
        }
        if typed != stored && !wider.contains(&typed) {
            let reason = Reason::TooNarrow { stored: stored.name() };
            return Err(at.error(&[key], &typed.name(), reason));
        }
        dtype = typed;
    }
    Ok(Work::Tokens(Tokens { length, stored, dtype }))
}

fn images(files: &[StepFile]) -> Result<Images, PipelineError> {
    let mut decode = Decode::EXACT;
    let mut steps = Vec::new();
    let (mut normalize, mut dtype, mut layout) = (None, None, None);
    for (step, file) in files.iter().enumerate() {
        let at = At { step };
        let key = key(at, file)?;
        let is_first = step == 0;
        match file {
            StepFile { decode: Some(file), .. } if is_first => decode = decoded(*file),
            StepFile { decode: Some(_), .. }
            | StepFile { array: Some(_), .. }
            | StepFile { tokens: Some(_), .. } => {
                return Err(at.error(&[key], &key, Reason::NotFirst));
            }
            StepFile { normalize: Some(file), .. } => {
                once(at, key, normalize.replace((at, file)).is_some())?;
            }
            StepFile { dtype: Some(typed), .. } => {
                once(at, key, dtype.replace((at, *typed)).is_some())?;
            }
            StepFile { layout: Some(typed), .. } => {
                once(at, key, layout.replace(*typed).is_some())?;
            }
            _ if normalize.is_some() || dtype.is_some() || layout.is_some() => {
                return Err(at.error(&[key], &key, Reason::GeometryAfterElements));
            }
            _ => steps.push(geometry(at, file)?),
        }
    }
    let channels = decode.mode.channels();
    let normalize = normalize.map(|(at, file)| normalized(at, file, channels)).transpose()?;
    let dtype = image_dtype(dtype, normalize.is_some())?;
    Ok(Images { decode, steps, normalize, dtype, layout: layout.unwrap_or(Layout::Chw) })
}

fn once(at: At, key: &str, is_repeated: bool) -> Result<(), PipelineError> {
    if is_repeated { Err(at.error(&[key], &key, Reason::Repeated)) } else { Ok(()) }
}

fn image_dtype(typed: Option<(At, Dtype)>, is_normalized: bool) -> Result<Dtype, PipelineError> {
    let Some((at, dtype)) = typed else {
        return Ok(if is_normalized { Dtype::Float32 } else { Dtype::Uint8 });
    };
    match dtype {
        Dtype::Uint8 if is_normalized => {
            Err(at.error(&["dtype"], &dtype.name(), Reason::WholeNormalized))
        }
        Dtype::Uint8 | Dtype::Float32 | Dtype::Bfloat16 => Ok(dtype),
        _ => Err(at.error(&["dtype"], &dtype.name(), Reason::NotAnImageType)),
    }
}

fn decoded(file: DecodeFile) -> Decode {
    let exact = Decode::EXACT;
    Decode {
        orientation: match file.orientation {
            None => exact.orientation,
            Some(OrientationFile::Ignore) => Orientation::Ignore,
            Some(OrientationFile::Apply) => Orientation::Apply,
        },
        dct: match file.dct {
            None => exact.dct,
            Some(DctFile::Exact) => Dct::Exact,
            Some(DctFile::Fast) => Dct::Fast,
        },
        scaling: match file.scaled {
            None => exact.scaling,
            Some(false) => Scaling::Full,
            Some(true) => Scaling::Reduced,
        },
        mode: match file.mode {
            None => exact.mode,
            Some(ModeFile::Rgb) => Mode::Rgb,
            Some(ModeFile::Grey) => Mode::Grey,
        },
    }
}

fn geometry(at: At, file: &StepFile) -> Result<Step, PipelineError> {
    Ok(match file {
        StepFile { resize: Some(SizeFile::One(short)), .. } => {
            Step::Resize(Resize::ShortSide(at.side(&["resize"], *short)?))
        }
        StepFile { resize: Some(size), .. } => {
            Step::Resize(Resize::Exact(at.size(&["resize"], *size)?))
        }
        StepFile { center_crop: Some(size), .. } => {
            Step::CenterCrop(at.size(&["center_crop"], *size)?)
        }
        StepFile { random_crop: Some(size), .. } => {
            Step::RandomCrop(at.size(&["random_crop"], *size)?)
        }
        StepFile { random_resized_crop: Some(crop), .. } => {
            Step::RandomResizedCrop(random_resized_crop(at, *crop)?)
        }
        StepFile { random_horizontal_flip: Some(probability), .. } => {
            if !(0.0..=1.0).contains(probability) {
                let keys = ["random_horizontal_flip"];
                return Err(at.error(&keys, &probability, Reason::NotAProbability));
            }
            Step::RandomHorizontalFlip(*probability)
        }
        _ => return Err(at.error(&[], &"{}", Reason::NotOneStep)),
    })
}

fn random_resized_crop(
    at: At,
    file: RandomResizedCropFile,
) -> Result<RandomResizedCrop, PipelineError> {
    let size = at.size(&["random_resized_crop", "size"], file.size)?;
    let pair = |key, typed: Option<[f64; 2]>, default, [min, max]: [f64; 2], reason| {
        let [from, to] = typed.unwrap_or(default);
        if from >= min && from <= to && to <= max {
            return Ok([from, to]);
        }
        let value = format_args!("[{from}, {to}]").to_string();
        Err(at.error(&["random_resized_crop", key], &value, reason))
    };
    let scale = pair("scale", file.scale, SCALE, [f64::MIN_POSITIVE, 1.0], Reason::NotAScale)?;
    let ratio = pair("ratio", file.ratio, RATIO, [RATIO_MIN, RATIO_MAX], Reason::NotARatio)?;
    Ok(RandomResizedCrop { size, scale, ratio })
}

fn normalized(at: At, file: &NormalizeFile, channels: u32) -> Result<Normalize, PipelineError> {
    for (key, values) in [("mean", &file.mean), ("std", &file.std)] {
        let keys = ["normalize", key];
        let typed = || format!("{values:?}");
        if values.len() != channels as usize {
            return Err(at.error(&keys, &typed(), Reason::NotAChannelEach(channels)));
        }
        if values.iter().any(|value| !value.is_finite()) {
            return Err(at.error(&keys, &typed(), Reason::NotFinite));
        }
        #[expect(clippy::cast_possible_truncation, reason = "deviations are used as float32")]
        if key == "std" && values.iter().any(|value| (*value as f32) <= 0.0) {
            return Err(at.error(&keys, &typed(), Reason::NoDeviation));
        }
    }
    Ok(Normalize { mean: file.mean.clone(), std: file.std.clone() })
}

/// The output of the steps for an image, and the prepared form if one can be kept.
fn images_output(
    images: Images,
    limits: Limits,
) -> Result<(Work, Output, Option<Prepared>), PipelineError> {
    let mut size = None;
    let mut before_random = None;
    for (number, step) in images.steps.iter().enumerate() {
        if step.is_random() && before_random.is_none() {
            before_random = Some((number, size));
        }
        size = step.size_after(size);
        let least = match step {
            Step::Resize(Resize::ShortSide(short)) => Some(Size { height: *short, width: *short }),
            _ => size,
        };
        if let Some(Size { height, width }) = least.filter(|it| it.pixels() > limits.pixels) {
            let reason = Reason::StepTooLarge { height, width };
            return Err(error(vec!["limits".into(), "pixels".into()], &limits.pixels, reason));
        }
    }
    let channels = images.decode.mode.channels();
    let Some(Size { height, width }) = size else {
        let typed = match images.steps.len() {
            1 => "1 step".to_owned(),
            count => format!("{count} steps"),
        };
        return Err(error(vec!["steps".into()], &typed, Reason::NoFixedSize));
    };
    let shape = match images.layout {
        Layout::Chw => vec![channels, height, width],
        Layout::Hwc => vec![height, width, channels],
    };
    let output = Output { shape, dtype: images.dtype, layout: Some(images.layout) };
    let prepared = match before_random {
        None => Some(whole_output(&output, images.steps.len())),
        Some((steps_done, size)) => before_draws(&images, steps_done, size),
    };
    Ok((Work::Images(images), output, prepared))
}

/// The image before the first step that draws. An image that is decoded at the scale of a later resize has
/// other pixels than one that is decoded whole, so then nothing is kept.
fn before_draws(images: &Images, steps_done: usize, size: Option<Size>) -> Option<Prepared> {
    let is_resize = |step: &Step| matches!(step, Step::Resize(_));
    let is_resized = images.steps[..steps_done].iter().any(is_resize);
    if images.decode.scaling == Scaling::Reduced && !is_resized {
        return None;
    }
    let channels = images.decode.mode.channels();
    let shape = match size {
        Some(Size { height, width }) => PreparedShape::Fixed(vec![height, width, channels]),
        None => PreparedShape::Own { channels },
    };
    Some(Prepared { shape, dtype: Dtype::Uint8, steps_done, rest: Rest::Steps })
}

/// The row itself is what is kept.
fn whole_output(output: &Output, steps_done: usize) -> Prepared {
    let shape = PreparedShape::Fixed(output.shape.clone());
    Prepared { shape, dtype: output.dtype, steps_done, rest: Rest::Nothing }
}
