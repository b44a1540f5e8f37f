//! The steps for an image: only the pixels that the row shows are decoded and computed.

use std::mem::swap;

use tierfeed_images::{
    Channels, Dct, Decoder, Format, Image, Orientation, Region, Resizer, Scale, Settings, Size,
    View,
    tensor::{self, Columns, Levels},
};
use tierfeed_transform::{
    self as transform, DrawKey, Dtype, Images, Layout, Operation, Pipeline, Prepared,
    output::{OwnShape, PreparedShape, Rest},
    steps::{self, Mode, Scaling},
    worker_protocol::InputForm,
};

use super::{
    TransformError,
    geometry::{Change, Stage, region_of, size_of, stages},
};

/// The steps of a pipeline for images, and the memory in which they are applied.
pub(super) struct ImageSteps {
    whole: Program,
    /// The steps before the first that draws, if what they leave can be kept.
    kept: Option<(Program, Prepared)>,
    canvas: Canvas,
}

/// Steps, and what becomes of the levels at the end.
struct Program {
    images: Images,
    levels: Levels,
}

/// Memory for one image after another.
struct Canvas {
    decoder: Decoder,
    resizer: Resizer,
    image: Image,
    spare: Image,
    pixels_max: u64,
}

impl ImageSteps {
    pub(super) fn new(images: &Images, pipeline: &Pipeline) -> Self {
        let prepared = pipeline.prepared().filter(|it| it.rest == Rest::Steps);
        let kept = prepared.map(|it| (Program::before(images, it), it.clone()));
        let canvas = Canvas {
            decoder: Decoder::default(),
            resizer: Resizer::default(),
            image: Image::default(),
            spare: Image::default(),
            pixels_max: pipeline.limits().pixels,
        };
        Self { whole: Program::new(images.clone()), kept, canvas }
    }

    /// Writes the row of an image, and its prepared form if a place is given for it.
    pub(super) fn apply(
        &mut self,
        key: DrawKey,
        (form, bytes): (InputForm, &[u8]),
        row: &mut [u8],
        prepared: Option<&mut Vec<u8>>,
    ) -> Result<(), TransformError> {
        let Self { whole, kept, canvas } = self;
        match (kept, form, prepared) {
            (Some((_, of)), InputForm::Prepared, _) => canvas.finish(whole, of, key, bytes, row),
            (Some((before, of)), InputForm::Stored, Some(prepared)) => {
                canvas.keep(before, of, key, bytes, prepared)?;
                canvas.finish(whole, of, key, prepared, row)
            }
            (_, _, prepared) => {
                canvas.draw(whole, key, bytes, row)?;
                prepared.into_iter().for_each(|it| it.extend_from_slice(row));
                Ok(())
            }
        }
    }
}

impl Program {
    fn new(images: Images) -> Self {
        let channels = images.decode.mode.channels() as usize;
        let normalize = images.normalize.as_ref().map(|it| (it.mean.clone(), it.std.clone()));
        let (mean, std) = normalize.unwrap_or((vec![0.0; channels], vec![1.0; channels]));
        let channels = mean.into_iter().zip(std).map(|(mean, std)| (single(mean), single(std)));
        let levels = match images.dtype {
            Dtype::Float32 => Levels::floats(channels),
            Dtype::Bfloat16 => Levels::halves(channels),
            _ => Levels::Bytes,
        };
        Self { images, levels }
    }

    /// The steps that lead to the prepared form.
    fn before(images: &Images, prepared: &Prepared) -> Self {
        Self::new(Images {
            decode: images.decode,
            steps: images.steps[..prepared.steps_done].to_vec(),
            normalize: None,
            dtype: Dtype::Uint8,
            layout: Layout::Hwc,
        })
    }

    fn channels(&self) -> Channels {
        match self.images.decode.mode {
            Mode::Rgb => Channels::Rgb,
            Mode::Grey => Channels::Grey,
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "PyTorch computes with float32 too")]
fn single(number: f64) -> f32 {
    number as f32
}

impl Canvas {
    /// Writes the row of an encoded image.
    fn draw(
        &mut self,
        program: &Program,
        key: DrawKey,
        bytes: &[u8],
        row: &mut [u8],
    ) -> Result<(), TransformError> {
        let stages = self.decode(program, key, bytes)?;
        self.compute(program, &stages, row);
        Ok(())
    }

    /// Decodes what the stages that it returns need of an image.
    fn decode(
        &mut self,
        program: &Program,
        key: DrawKey,
        bytes: &[u8],
    ) -> Result<Vec<Stage>, TransformError> {
        let header = self.decoder.header(bytes, self.pixels_max)?;
        let decode = program.images.decode;
        let orientation = match decode.orientation {
            steps::Orientation::Ignore => Orientation::Upright,
            steps::Orientation::Apply => self.decoder.orientation(bytes, header.format),
        };
        let mut size = orientation.size(header.size);
        let drawn = transform::Size { height: size.height, width: size.width };
        let mut operations = program.images.operations(key, drawn, 0)?;
        let mut scale = Scale::WHOLE;
        if decode.scaling == Scaling::Reduced && header.format == Format::Jpeg {
            scale = reduce(size, &mut operations);
            size = scale.size(size);
        }
        let (stages, needed) = stages(size, &operations, self.pixels_max)?;
        let dct = match decode.dct {
            steps::Dct::Exact => Dct::Exact,
            steps::Dct::Fast => Dct::Fast,
        };
        let settings = Settings { channels: program.channels(), dct, scale, ..Settings::default() };
        let stored = orientation.stored_region(scale.size(header.size), needed);
        self.decoder.decode(bytes, header, stored, &settings, &mut self.image)?;
        if orientation != Orientation::Upright {
            orientation.apply(self.image.view(), &mut self.spare);
            swap(&mut self.image, &mut self.spare);
        }
        Ok(stages)
    }

    /// The size of what the stages leave of the decoded image.
    fn size_after(&self, stages: &[Stage]) -> Size {
        stages.last().map_or(self.image.view().size(), |stage| stage.wanted.size())
    }

    /// Writes the prepared form of an encoded image.
    fn keep(
        &mut self,
        program: &Program,
        of: &Prepared,
        key: DrawKey,
        bytes: &[u8],
        prepared: &mut Vec<u8>,
    ) -> Result<(), TransformError> {
        let stages = self.decode(program, key, bytes)?;
        let Size { width, height } = self.size_after(&stages);
        if let PreparedShape::Own { channels } = of.shape {
            let shape = OwnShape { size: transform::Size { height, width }, channels };
            prepared.extend_from_slice(&shape.encode());
        }
        let before = prepared.len();
        let len = width as usize * height as usize * program.channels().count();
        prepared.resize(before + len, 0);
        self.compute(program, &stages, &mut prepared[before..]);
        Ok(())
    }

    /// Writes the row of an image in prepared form.
    fn finish(
        &mut self,
        program: &Program,
        prepared: &Prepared,
        key: DrawKey,
        bytes: &[u8],
        row: &mut [u8],
    ) -> Result<(), TransformError> {
        let (size, pixels) = kept_pixels(prepared, bytes, self.pixels_max)?;
        let wrong = TransformError::NotPrepared { found: bytes.len() };
        let view = View::of(pixels, size_of(size), program.channels()).ok_or(wrong)?;
        let operations = program.images.operations(key, size, prepared.steps_done)?;
        let (stages, needed) = stages(size_of(size), &operations, self.pixels_max)?;
        self.image.copy(view.cropped(needed));
        self.compute(program, &stages, row);
        Ok(())
    }

    /// Applies the stages to the image, and writes it as a row.
    fn compute(&mut self, program: &Program, stages: &[Stage], row: &mut [u8]) {
        let (stages, columns) = match stages.split_last() {
            Some((last, before)) if last.change == Change::Flip => (before, Columns::Reversed),
            _ => (stages, Columns::Kept),
        };
        for stage in stages {
            let view = self.image.view();
            match stage.change {
                // No other pixels are there.
                Change::Crop(_) => continue,
                Change::Resize => self.resizer.section(view, &stage.section(), &mut self.spare),
                Change::Flip => Orientation::Mirrored.apply(view, &mut self.spare),
                Change::Pad { left, top } => {
                    self.spare.blacken(stage.wanted.size(), program.channels());
                    if let Some((left, top)) = stage.place_in_frame(left, top) {
                        self.spare.paste(view, left, top);
                    }
                }
            }
            swap(&mut self.image, &mut self.spare);
        }
        let layout = match program.images.layout {
            Layout::Chw => tensor::Layout::Planes,
            Layout::Hwc => tensor::Layout::Interleaved,
        };
        tensor::write(self.image.view(), &program.levels, layout, columns, row);
    }
}

/// The size and the pixels of a prepared image.
fn kept_pixels<'a>(
    prepared: &Prepared,
    bytes: &'a [u8],
    pixels_max: u64,
) -> Result<(transform::Size, &'a [u8]), TransformError> {
    let found = bytes.len();
    if let (PreparedShape::Fixed(shape), Some(expected)) = (&prepared.shape, prepared.bytes()) {
        return match shape[..] {
            [height, width, _] if bytes.len() as u64 == expected => {
                Ok((transform::Size { height, width }, bytes))
            }
            _ => Err(TransformError::Prepared { found, expected }),
        };
    }
    let own = OwnShape::split(bytes);
    let own = own.filter(|(own, _)| (1..=pixels_max).contains(&own.size.pixels()));
    let (own, pixels) = own.ok_or(TransformError::NotPrepared { found })?;
    Ok((own.size, pixels))
}

/// The scale at which an image is decoded whose first change of size is a resize, and the operations
/// for the image of that scale.
fn reduce(size: Size, operations: &mut Vec<Operation>) -> Scale {
    let mut region = Region::whole(size);
    for (number, operation) in operations.iter().enumerate() {
        match operation {
            Operation::Crop(crop) => region = region_of(*crop).moved_by(region),
            Operation::Resize(to) => {
                let scale = Scale::for_target(region.size(), size_of(*to));
                let crop = Operation::Crop(to_transform(scale.region(size, region)));
                operations.splice(..number, [crop]);
                return scale;
            }
            Operation::Pad { .. } | Operation::FlipHorizontal => break,
        }
    }
    Scale::WHOLE
}

fn to_transform(region: Region) -> transform::Region {
    let Region { left, top, width, height } = region;
    transform::Region { left, top, size: transform::Size { height, width } }
}
