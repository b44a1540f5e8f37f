//! Finds the orientation in Exif data.
//!
//! **Source**: Exif 2.32 (TIFF 6.0 for its directory); JPEG: ITU-T T.81, annex B.

use crate::Orientation;

const ORIENTATION: u16 = 0x0112;
const APP1: u8 = 0xE1;
const START_OF_SCAN: u8 = 0xDA;

/// The Exif data of a JPEG image.
pub(crate) fn in_jpeg(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes.get(2..)?;
    loop {
        let [0xFF, marker, high, low, ..] = *rest else { return None };
        if marker == 0xFF {
            // Any number of these may stand before a marker.
            rest = &rest[1..];
            continue;
        }
        let length = usize::from(u16::from_be_bytes([high, low]));
        let segment = rest.get(4..2 + length)?;
        match (marker, segment.strip_prefix(b"Exif\0\0")) {
            (APP1, Some(data)) => return Some(data),
            (START_OF_SCAN, _) => return None,
            _ => rest = &rest[2 + length..],
        }
    }
}

/// The Exif data of a PNG image.
pub(crate) fn in_png(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes.get(8..)?;
    loop {
        let (length, chunk) = rest.split_first_chunk()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let end = length.checked_add(4)?;
        let (kind, data) = chunk.get(..end)?.split_first_chunk()?;
        match kind {
            b"eXIf" => return Some(data),
            b"IDAT" | b"IEND" => return None,
            _ => rest = chunk.get(end.checked_add(4)?..)?,
        }
    }
}

/// The orientation that Exif data states.
pub(crate) fn orientation(data: &[u8]) -> Option<Orientation> {
    let tiff = Tiff { data, is_big: data.starts_with(b"MM") };
    if tiff.short(2)? != 42 {
        return None;
    }
    let directory = usize::try_from(tiff.long(4)?).ok()?;
    let count = usize::from(tiff.short(directory)?);
    let entries = (0..count).map(|it| directory.checked_add(2 + 12 * it));
    let entry = entries.map_while(|it| it).find(|it| tiff.short(*it) == Some(ORIENTATION))?;
    Orientation::of_exif(tiff.short(entry.checked_add(8)?)?)
}

struct Tiff<'a> {
    data: &'a [u8],
    is_big: bool,
}

impl Tiff<'_> {
    fn short(&self, at: usize) -> Option<u16> {
        let bytes = *self.data.get(at..)?.first_chunk()?;
        Some(if self.is_big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    fn long(&self, at: usize) -> Option<u32> {
        let bytes = *self.data.get(at..)?.first_chunk()?;
        Some(if self.is_big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of one entry.
    fn little(orientation: u8) -> Vec<u8> {
        let mut data = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
        data.extend([orientation, 0, 0, 0]);
        data
    }

    #[test]
    fn the_orientation_is_read_in_both_byte_orders() {
        assert_eq!(orientation(&little(6)), Some(Orientation::Right));
        let big = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x03\0\0";
        assert_eq!(orientation(big), Some(Orientation::UpsideDown));
    }

    #[test]
    fn cut_off_data_has_no_orientation() {
        let data = little(6);
        for length in 0..data.len() - 2 {
            assert_eq!(orientation(&data[..length]), None, "{length}");
        }
        assert_eq!(orientation(&little(9)), None);
    }

    #[test]
    fn exif_data_is_found_behind_other_segments() {
        let mut jpeg = b"\xFF\xD8\xFF\xE0\0\x04ab\xFF\xFF\xE1\0\x0aExif\0\0xy\xFF\xDA".to_vec();
        assert_eq!(in_jpeg(&jpeg), Some(&b"xy"[..]));
        jpeg.truncate(14);
        assert_eq!(in_jpeg(&jpeg), None);
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\x01tEXta1234\0\0\0\x02eXIfxy1234";
        assert_eq!(in_png(png), Some(&b"xy"[..]));
        assert_eq!(in_png(&png[..30]), None);
    }
}
