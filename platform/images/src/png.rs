//! PNG: a region of an image, all of whose data is read.
//!
//! An image is refused whose chunks up to the end of the data or whose pixels have another checksum than
//! they state, as libpng refuses it. What follows the data is not looked at, as in torchvision.

use std::io::Cursor;

use png::{ColorType, Decoder, DecodingError, Limits, Reader, Transformations};

use crate::{Channels, DecodeError, Image, Region, Size, image::store_pixel};

/// Bytes that the decoder may allocate beside the rows of the image: tables and chunks of metadata.
const ALLOCATION_MAX: usize = 4 << 20;

pub(crate) fn size(bytes: &[u8]) -> Result<Size, DecodeError> {
    let mut decoder = Decoder::new(Cursor::new(bytes));
    let info = decoder.read_header_info().map_err(failed)?;
    Ok(Size { width: info.width, height: info.height })
}

/// Decodes a region of an image of this size.
pub(crate) fn decode(
    bytes: &[u8],
    size: Size,
    region: Region,
    channels: Channels,
    image: &mut Image,
) -> Result<(), DecodeError> {
    let row_bytes = size.width as usize * 8;
    let limits = Limits { bytes: ALLOCATION_MAX.saturating_add(row_bytes.saturating_mul(4)) };
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), limits);
    decoder.ignore_checksums(false);
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let mut reader = decoder.read_info().map_err(failed)?;
    let info = reader.info();
    if (Size { width: info.width, height: info.height }) != size {
        return Err(DecodeError::Truncated);
    }
    if info.interlaced {
        interlaced(&mut reader, region, channels, image)
    } else {
        rows(&mut reader, region, channels, image)
    }
}

/// The error for what the decoder says.
fn failed(error: DecodingError) -> DecodeError {
    match error {
        DecodingError::IoError(_) => DecodeError::Truncated,
        error => DecodeError::Png(error),
    }
}

fn rows(
    reader: &mut Reader<Cursor<&[u8]>>,
    region: Region,
    channels: Channels,
    image: &mut Image,
) -> Result<(), DecodeError> {
    let source = reader.output_color_type().0;
    let (pixels, stride) = image.reset(region.size(), channels);
    let mut results = pixels.chunks_exact_mut(stride);
    let mut number = 0;
    // Behind the last row, the rest of the data is compared with its checksum.
    while let Some(row) = reader.next_row().map_err(failed)? {
        if number >= region.top
            && let Some(result) = results.next()
        {
            convert(row.data(), source, region, channels, result);
        }
        number += 1;
    }
    Ok(())
}

fn interlaced(
    reader: &mut Reader<Cursor<&[u8]>>,
    region: Region,
    channels: Channels,
    image: &mut Image,
) -> Result<(), DecodeError> {
    let length = reader.output_buffer_size().ok_or(DecodeError::NoMemory)?;
    let mut whole = vec![0; length];
    let info = reader.next_frame(&mut whole).map_err(failed)?;
    let (pixels, stride) = image.reset(region.size(), channels);
    let rows = whole.chunks_exact(info.line_size).skip(region.top as usize);
    for (row, result) in rows.zip(pixels.chunks_exact_mut(stride)) {
        convert(row, info.color_type, region, channels, result);
    }
    Ok(())
}

/// Writes the columns of a region. Transparency is dropped, as by Pillow's `convert("RGB")` and by
/// torchvision.
fn convert(row: &[u8], source: ColorType, region: Region, channels: Channels, result: &mut [u8]) {
    let step = source.samples();
    let pixels = row.chunks_exact(step).skip(region.left as usize);
    for (pixel, result) in pixels.zip(result.chunks_exact_mut(channels.count())) {
        store_pixel(pixel, result);
    }
}
