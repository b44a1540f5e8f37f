//! What transforms make of the shape of a sample.

/// What a transform does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::script) enum Effect {
    /// Height and width, or more; a single number stands for all sides of an image.
    Sides {
        name: &'static str,
        place: Option<usize>,
    },
    /// Two numbers leave the proportions behind, one number keeps them.
    Resize {
        name: &'static str,
        place: Option<usize>,
    },
    /// The whole shape, channels last.
    Shape {
        name: &'static str,
        place: Option<usize>,
    },
    /// Height and width as two arguments.
    HeightAndWidth {
        first: usize,
    },
    /// The decoder says how many channels.
    Channels {
        name: &'static str,
        place: Option<usize>,
        default: i64,
    },
    Gray,
    /// To floats of 4 bytes, channels first, three unless something says otherwise.
    Floats,
    /// To bytes, channels first.
    BytesOfImage,
    /// Elements of this argument.
    Type {
        name: &'static str,
        place: Option<usize>,
    },
}

use Effect::{BytesOfImage, Channels, Floats, Gray, HeightAndWidth, Resize, Shape, Sides, Type};

pub(in crate::script) const TRANSFORMS: [(&str, Effect); 39] = [
    ("torchvision.transforms.RandomResizedCrop", Sides { name: "size", place: Some(0) }),
    ("torchvision.transforms.CenterCrop", Sides { name: "size", place: Some(0) }),
    ("torchvision.transforms.RandomCrop", Sides { name: "size", place: Some(0) }),
    ("torchvision.transforms.FiveCrop", Sides { name: "size", place: Some(0) }),
    ("torchvision.transforms.Resize", Resize { name: "size", place: Some(0) }),
    ("torchvision.transforms.Grayscale", Gray),
    ("torchvision.transforms.ToTensor", Floats),
    ("torchvision.transforms.PILToTensor", BytesOfImage),
    ("torchvision.transforms.ToImage", BytesOfImage),
    ("torchvision.transforms.ConvertImageDtype", Type { name: "dtype", place: Some(0) }),
    ("torchvision.transforms.ToDtype", Type { name: "dtype", place: Some(0) }),
    ("albumentations.RandomResizedCrop", HeightAndWidth { first: 0 }),
    ("albumentations.Resize", HeightAndWidth { first: 0 }),
    ("albumentations.CenterCrop", HeightAndWidth { first: 0 }),
    ("albumentations.RandomCrop", HeightAndWidth { first: 0 }),
    ("albumentations.pytorch.ToTensorV2", BytesOfImage),
    ("monai.transforms.Resize", Sides { name: "spatial_size", place: Some(0) }),
    ("monai.transforms.Resized", Sides { name: "spatial_size", place: Some(1) }),
    ("monai.transforms.RandSpatialCrop", Sides { name: "roi_size", place: Some(0) }),
    ("monai.transforms.RandSpatialCropd", Sides { name: "roi_size", place: Some(1) }),
    ("monai.transforms.RandCropByPosNegLabeld", Sides { name: "spatial_size", place: Some(2) }),
    ("monai.transforms.CenterSpatialCrop", Sides { name: "roi_size", place: Some(0) }),
    ("monai.transforms.CenterSpatialCropd", Sides { name: "roi_size", place: Some(1) }),
    ("tensorflow.io.decode_jpeg", Channels { name: "channels", place: Some(1), default: 0 }),
    ("tensorflow.image.decode_jpeg", Channels { name: "channels", place: Some(1), default: 0 }),
    ("tensorflow.io.decode_image", Channels { name: "channels", place: Some(1), default: 0 }),
    ("tensorflow.image.decode_image", Channels { name: "channels", place: Some(1), default: 0 }),
    ("tensorflow.io.decode_png", Channels { name: "channels", place: Some(1), default: 0 }),
    ("tensorflow.image.decode_png", Channels { name: "channels", place: Some(1), default: 0 }),
    ("tensorflow.image.resize", Sides { name: "size", place: Some(1) }),
    ("tensorflow.image.resize_images", Sides { name: "size", place: Some(1) }),
    ("tensorflow.image.resize_with_crop_or_pad", HeightAndWidth { first: 1 }),
    ("tensorflow.image.resize_with_pad", HeightAndWidth { first: 1 }),
    ("tensorflow.image.random_crop", Shape { name: "size", place: Some(1) }),
    ("tensorflow.reshape", Shape { name: "shape", place: Some(1) }),
    ("tensorflow.cast", Type { name: "dtype", place: Some(1) }),
    ("tensorflow.image.convert_image_dtype", Type { name: "dtype", place: Some(1) }),
    ("tensorflow.io.decode_raw", Type { name: "out_type", place: Some(1) }),
    ("tensorflow.image.rgb_to_grayscale", Gray),
];

/// Calls that hold a list of transforms.
pub(in crate::script) const LISTS: [&str; 6] = [
    "torchvision.transforms.Compose",
    "torch.nn.Sequential",
    "albumentations.Compose",
    "monai.transforms.Compose",
    "keras.Sequential",
    "composer.datasets.utils.Compose",
];

/// Bytes of an element of this type.
pub(in crate::script) fn element_bytes(name: &str) -> Option<u64> {
    Some(match name {
        "bool" | "uint8" | "int8" => 1,
        "float16" | "bfloat16" | "half" | "uint16" | "int16" => 2,
        "float32" | "float" | "int32" | "uint32" => 4,
        "float64" | "double" | "int64" | "long" | "uint64" => 8,
        _ => return None,
    })
}
