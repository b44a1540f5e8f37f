//! WebP: images as a whole, of which a region is taken.

use std::io::Cursor;

use image_webp::WebPDecoder;

use crate::{
    Channels, DecodeError, Image, Region, Size,
    image::{make_room, store_pixel},
};

/// Bytes of chunks that the decoder may hold beside the pixels.
const ALLOCATION_MAX: usize = 4 << 20;

fn open(bytes: &[u8]) -> Result<WebPDecoder<Cursor<&[u8]>>, DecodeError> {
    WebPDecoder::new(Cursor::new(bytes)).map_err(DecodeError::WebP)
}

pub(crate) fn size(bytes: &[u8]) -> Result<Size, DecodeError> {
    let decoder = open(bytes)?;
    if decoder.is_animated() {
        return Err(DecodeError::Animation);
    }
    let (width, height) = decoder.dimensions();
    Ok(Size { width, height })
}

/// Decodes an image of this size into `whole`, and takes a region of it.
pub(crate) fn decode(
    bytes: &[u8],
    size: Size,
    region: Region,
    channels: Channels,
    whole: &mut Vec<u8>,
    image: &mut Image,
) -> Result<(), DecodeError> {
    let mut decoder = open(bytes)?;
    decoder.set_memory_limit(ALLOCATION_MAX);
    let step = if decoder.has_alpha() { 4 } else { 3 };
    let stride = size.width as usize * step;
    let length = stride * size.height as usize;
    make_room(whole, length);
    let whole = &mut whole[..length];
    decoder.read_image(whole).map_err(DecodeError::WebP)?;
    let (pixels, stride_of_result) = image.reset(region.size(), channels);
    let rows = whole.chunks_exact(stride).skip(region.top as usize);
    for (row, result) in rows.zip(pixels.chunks_exact_mut(stride_of_result)) {
        let pixels = row.chunks_exact(step).skip(region.left as usize);
        for (pixel, result) in pixels.zip(result.chunks_exact_mut(channels.count())) {
            store_pixel(pixel, result);
        }
    }
    Ok(())
}
