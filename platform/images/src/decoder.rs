//! Recognises the format of an image and decodes a region of it.

use crate::{
    Channels, Dct, DecodeError, Entropy, Image, Orientation, Region, Scale, Size, exif,
    jpeg::Decompressor, other_formats::name_of, png, webp,
};

/// A format that a [`Decoder`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Baseline, progressive and lossless, with Huffman or arithmetic codes, 8 bits.
    Jpeg,
    /// All of PNG; of 16 bits the upper 8 are taken, and transparency is dropped.
    Png,
    /// Lossy and lossless; transparency is dropped, and animations are refused.
    WebP,
}

/// What is known of an image before it is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The format.
    pub format: Format,
    /// The size of the image as it is stored, before its orientation is applied.
    pub size: Size,
}

/// How an image is decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// What the pixels become.
    pub channels: Channels,
    /// The inverse DCT of JPEG.
    pub dct: Dct,
    /// The scale of JPEG; other formats are decoded as they are.
    pub scale: Scale,
    /// What decodes the Huffman codes of JPEG.
    pub entropy: Entropy,
}

/// Decodes images, one after another.
#[derive(Default)]
pub struct Decoder {
    jpeg: Decompressor,
    /// Whole images of those formats whose regions cannot be decoded.
    whole: Vec<u8>,
}

impl Decoder {
    /// Reads what stands at the beginning of an image.
    ///
    /// # Errors
    ///
    /// The bytes are no image, or one of more pixels than `pixels_max`.
    pub fn header(&mut self, bytes: &[u8], pixels_max: u64) -> Result<Header, DecodeError> {
        let format = recognise(bytes)
            .ok_or_else(|| name_of(bytes).map_or(DecodeError::NoImage, DecodeError::Other))?;
        let size = match format {
            Format::Jpeg => self.jpeg.size(bytes)?,
            Format::Png => png::size(bytes)?,
            Format::WebP => webp::size(bytes)?,
        };
        if size.pixels() == 0 {
            return Err(DecodeError::Empty);
        }
        if size.pixels() > pixels_max {
            let Size { width, height } = size;
            return Err(DecodeError::TooLarge { width, height, pixels_max });
        }
        Ok(Header { format, size })
    }

    /// Decodes a region of an image, in pixels of the stored size, or of the scaled one.
    ///
    /// # Errors
    ///
    /// The bytes are not what `header` says, truncated, or damaged beyond what the format's usual
    /// decoder accepts.
    ///
    /// # Panics
    ///
    /// If the region is not within the image.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        header: Header,
        region: Region,
        settings: &Settings,
        image: &mut Image,
    ) -> Result<(), DecodeError> {
        let Settings { channels, dct, scale, entropy } = *settings;
        let scale = if header.format == Format::Jpeg { scale } else { Scale::WHOLE };
        let size = scale.size(header.size);
        assert!(region.is_within(size), "{region:?} is not within {size:?}");
        match header.format {
            Format::Jpeg => self.jpeg.decode(bytes, region, (channels, dct, scale, entropy), image),
            Format::Png => png::decode(bytes, header.size, region, channels, image),
            Format::WebP => {
                webp::decode(bytes, header.size, region, channels, &mut self.whole, image)
            }
        }
    }

    /// The orientation that the image states, by the Exif data of JPEG and PNG. As in torchvision, it
    /// is upright where there is none, and for WebP.
    #[must_use]
    pub fn orientation(&self, bytes: &[u8], format: Format) -> Orientation {
        let data = match format {
            Format::Jpeg => exif::in_jpeg(bytes),
            Format::Png => exif::in_png(bytes),
            Format::WebP => None,
        };
        data.and_then(exif::orientation).unwrap_or(Orientation::Upright)
    }
}

pub(crate) fn recognise(bytes: &[u8]) -> Option<Format> {
    if bytes.starts_with(&[0xFF, 0xD8, 0xFF]) {
        Some(Format::Jpeg)
    } else if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        Some(Format::Png)
    } else if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        Some(Format::WebP)
    } else {
        None
    }
}
