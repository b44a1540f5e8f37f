//! Finds the size of an image in its first bytes, without a decoder and without memory.
//!
//! The bytes may be hostile.
//!
//! 1. If a decoder reads the head of an image, the size is the one that the decoder finds. In another
//!    image it may be one that no image has.
//! 2. Each piece of 30 bytes or more ends the search, or the next piece begins further on. That holds for any bytes.

use crate::{Format, Size, decoder::recognise};

/// The largest piece of an image that has its size, wherever such a piece begins.
const PIECE_BYTES_MAX: usize = 30;

/// Reads the head of one image, piece by piece.
///
/// # Example
///
/// ```
/// use tierfeed_images::{SizeReader, SizeSearch};
///
/// # fn read_at(_: u64) -> Vec<u8> { b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x03".to_vec() }
/// let mut reader = SizeReader::default();
/// let search = reader.read(&read_at(reader.at()));
/// assert!(matches!(search, SizeSearch::Found(size) if (size.width, size.height) == (2, 3)));
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct SizeReader {
    at: u64,
    /// Behind the start of a JPEG image, where one segment follows the other.
    is_in_jpeg: bool,
}

/// What a piece of an image tells of its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeSearch {
    /// The size. No side is 0.
    Found(Size),
    /// It stands behind, at [`SizeReader::at`] or later.
    Behind,
    /// There is none: it is no image, or none that can be decoded.
    None,
}

impl SizeReader {
    /// Where the next piece begins.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Looks at the bytes of the image from [`Self::at`] on. A piece that is shorter than 30 bytes and tells
    /// nothing is the last one.
    pub fn read(&mut self, piece: &[u8]) -> SizeSearch {
        let before = self.at;
        let search = if self.is_in_jpeg { self.segments(piece) } else { self.start(piece) };
        match search {
            Some(size) if size.pixels() == 0 => SizeSearch::None,
            Some(size) => SizeSearch::Found(size),
            None if self.at == u64::MAX => SizeSearch::None,
            None if self.at == before && piece.len() < PIECE_BYTES_MAX => SizeSearch::None,
            None => SizeSearch::Behind,
        }
    }

    fn start(&mut self, bytes: &[u8]) -> Option<Size> {
        let found = match recognise(bytes) {
            Some(Format::Jpeg) => {
                self.is_in_jpeg = true;
                self.at += 2;
                return self.segments(bytes.get(2..)?);
            }
            Some(Format::Png) => png(bytes),
            Some(Format::WebP) => webp(bytes),
            None => None,
        };
        if found.is_none() {
            self.at = u64::MAX;
        }
        found
    }

    /// Goes from segment to segment as libjpeg does: what is between them is skipped.
    fn segments(&mut self, bytes: &[u8]) -> Option<Size> {
        let mut rest = Bytes { bytes, at: 0 };
        loop {
            match segment(&mut rest) {
                Segment::Frame(size) => return Some(size),
                Segment::Other if rest.at < bytes.len() => (),
                Segment::Other | Segment::Cut => {
                    self.at = self.at.saturating_add(rest.at as u64);
                    return None;
                }
                Segment::Last => {
                    self.at = u64::MAX;
                    return None;
                }
            }
        }
    }
}

enum Segment {
    /// The one with the size.
    Frame(Size),
    Other,
    /// The next piece must begin here, with the marker if there was one.
    Cut,
    /// No frame follows.
    Last,
}

/// Passes one segment.
fn segment(rest: &mut Bytes<'_>) -> Segment {
    let Some(code) = rest.marker() else { return Segment::Cut };
    match code {
        // Markers without a segment.
        0x01 | 0xd0..=0xd7 => return Segment::Other,
        // A second start, the end, or a scan before any frame.
        0xd8..=0xda => return Segment::Last,
        _ => (),
    }
    let begin = rest.at;
    let cut = |rest: &mut Bytes<'_>| {
        rest.at = begin - 2;
        Segment::Cut
    };
    let Some(len) = rest.u16() else { return cut(rest) };
    if matches!(code, 0xc0..=0xcf) && !matches!(code, 0xc4 | 0xc8 | 0xcc) {
        let size = rest.u8().and_then(|_| {
            let (height, width) = (rest.u16()?, rest.u16()?);
            Some(Size { width: width.into(), height: height.into() })
        });
        return size.map_or_else(|| cut(rest), Segment::Frame);
    }
    // A length includes its own two bytes. libjpeg reads smaller ones as 2 where it skips the segment.
    let is_skipped = matches!(code, 0xdc | 0xe0..=0xef | 0xfe);
    if len < 2 && !is_skipped {
        return Segment::Last;
    }
    rest.at = begin + usize::from(len.max(2));
    Segment::Other
}

/// Bytes that are read one after the other, most significant first.
struct Bytes<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bytes<'_> {
    fn u8(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes([self.u8()?, self.u8()?]))
    }

    /// Goes behind the next marker and returns its code. If there is none, goes to the end, or to a 0xFF
    /// there, which may begin one.
    fn marker(&mut self) -> Option<u8> {
        let rest = self.bytes.get(self.at..)?;
        let found = rest.windows(2).position(|it| it[0] == 0xff && !matches!(it[1], 0 | 0xff));
        if let Some(place) = found {
            self.at += place + 2;
            return Some(rest[place + 1]);
        }
        self.at = self.bytes.len() - usize::from(rest.last() == Some(&0xff));
        None
    }
}

fn png(bytes: &[u8]) -> Option<Size> {
    let header = bytes.get(8..)?.strip_prefix(b"\0\0\0\rIHDR")?;
    let (width, height) = (header.first_chunk::<4>()?, header.get(4..)?.first_chunk::<4>()?);
    Some(Size { width: u32::from_be_bytes(*width), height: u32::from_be_bytes(*height) })
}

fn webp(bytes: &[u8]) -> Option<Size> {
    let (kind, chunk) = (bytes.get(12..16)?, bytes.get(20..)?);
    let number = |at: usize, len: usize| {
        let bytes = chunk.get(at..at + len)?;
        Some(bytes.iter().rev().fold(0, |number: u32, byte| number << 8 | u32::from(*byte)))
    };
    match kind {
        b"VP8 " if chunk.get(3..6)? == b"\x9d\x01\x2a" => {
            Some(Size { width: number(6, 2)? & 0x3fff, height: number(8, 2)? & 0x3fff })
        }
        b"VP8L" if *chunk.first()? == 0x2f => {
            let bits = number(1, 4)?;
            Some(Size { width: (bits & 0x3fff) + 1, height: (bits >> 14 & 0x3fff) + 1 })
        }
        // Without an animation.
        b"VP8X" if chunk.first()? & 2 == 0 => {
            Some(Size { width: number(4, 3)? + 1, height: number(7, 3)? + 1 })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Decoder;

    /// The size that is found in pieces of so many bytes.
    fn size(bytes: &[u8], piece: usize) -> Option<Size> {
        let mut reader = SizeReader::default();
        for _ in 0..bytes.len() + 2 {
            let at = usize::try_from(reader.at()).unwrap().min(bytes.len());
            let end = bytes.len().min(at + piece);
            match reader.read(&bytes[at..end]) {
                SizeSearch::Found(size) => return Some(size),
                SizeSearch::None => return None,
                SizeSearch::Behind => (),
            }
        }
        panic!("the search does not end");
    }

    fn fixtures() -> Vec<(String, Vec<u8>)> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
        let files = std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
        let images = files.filter(|path| {
            let ending = path.extension().and_then(|it| it.to_str());
            ending.is_some_and(|it| ["jpeg", "jpg", "png", "webp"].contains(&it))
        });
        images.map(|path| (path.display().to_string(), std::fs::read(&path).unwrap())).collect()
    }

    #[test]
    fn the_size_is_that_of_the_decoder_however_long_the_pieces_are() {
        let mut formats = [0; 3];
        for (name, bytes) in fixtures() {
            let Ok(header) = Decoder::default().header(&bytes, u64::MAX) else { continue };
            formats[header.format as usize] += 1;
            for piece in [30, 31, 64, 4096, bytes.len()] {
                assert_eq!(size(&bytes, piece), Some(header.size), "{name}, {piece} bytes");
            }
        }
        assert!(formats.iter().all(|count| *count > 0), "{formats:?}");
    }

    #[test]
    fn what_stands_before_the_frame_of_a_jpeg_image_is_passed() {
        let frame = b"\xff\xc2\0\x11\x08\x01\x02\x03\x04";
        let exif = [b"\xff\xe1\xff\xfe".to_vec(), vec![0xff; 0xfffc]].concat();
        for before in [&b""[..], b"\xff\xff\xff", b"noise", b"\xff\0\xff\x01", &exif] {
            let image = [b"\xff\xd8\xff\xe0\0\x04ab", before, frame].concat();
            for piece in [30, 4096] {
                let expected = Size { width: 0x304, height: 0x102 };
                assert_eq!(size(&image, piece), Some(expected), "{} bytes", before.len());
            }
        }
        for none in [&b"\xff\xd8\xff\xd9"[..], b"\xff\xd8\xff\xda\0\x02", b"\xff\xd8\xff\xc4\0\x01"]
        {
            assert_eq!(size(&[none, frame].concat(), 30), None, "{none:?}");
        }
        let empty = b"\xff\xd8\xff\xc0\0\x11\x08\0\0\x03\x04";
        assert_eq!(size(empty, 30), None);
    }

    #[test]
    fn what_the_decoder_skips_before_the_frame_is_skipped() {
        let odd = [
            b"\xff\xe0\0\0".to_vec(),
            b"\xff\xef\0\x01".to_vec(),
            b"\xff\xfe\0\0".to_vec(),
            b"\xff\xdc\0\x01".to_vec(),
            vec![0; 5000],
            vec![0xff; 5000],
            b"\xff\0".repeat(2500),
            [&b"\xff\xe2\x08\0"[..], &[7; 2046]].concat().repeat(64),
        ];
        let baseline = |(name, _): &(String, _)| name.ends_with("baseline-2x2.jpeg");
        let (_, image) = fixtures().into_iter().find(baseline).unwrap();
        let behind_app0 = 4 + usize::from(u16::from_be_bytes([image[4], image[5]]));
        for odd in odd {
            let image = [&image[..behind_app0], &odd, &image[behind_app0..]].concat();
            let header = Decoder::default().header(&image, u64::MAX).unwrap();
            for piece in [30, 1024, image.len()] {
                let found = size(&image, piece);
                assert_eq!(found, Some(header.size), "{:?}, {piece} bytes", &odd[..4]);
            }
        }
    }

    #[test]
    fn a_piece_without_a_marker_is_read_once() {
        for padding in [0, 0xff] {
            let mut reader = SizeReader::default();
            let head = b"\xff\xd8\xff\xe0\0\x02";
            assert_eq!(reader.read(head), SizeSearch::Behind);
            assert_eq!(reader.read(&[padding; 1024]), SizeSearch::Behind);
            assert!(reader.at() >= head.len() as u64 + 1023, "{padding}: {}", reader.at());
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_each_search_ends(
            start in prop::sample::select(vec![
                b"\xff\xd8\xff".to_vec(),
                b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec(),
                b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a".to_vec(),
                b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f".to_vec(),
                b"RIFF\0\0\0\0WEBPVP8X".to_vec(),
                Vec::new(),
            ]),
            rest in prop::collection::vec(prop_oneof![Just(0xff), 0xc0_u8..0xe2, any::<u8>()], 0..200),
            piece in 1_usize..80,
        ) {
            let bytes = [start, rest].concat();
            if let Some(found) = size(&bytes, piece) {
                prop_assert!(found.pixels() > 0);
                prop_assert_eq!(size(&bytes, bytes.len()), Some(found));
            }
        }

        #[test]
        fn the_decoder_finds_no_other_size_in_a_damaged_head(
            image in 0_usize..1000,
            damage in prop::collection::vec(
                (0_usize..64, prop_oneof![0_u8..4, Just(0xff), 0xc0_u8..=0xff, any::<u8>()]),
                1..4,
            ),
        ) {
            let images = fixtures();
            let (_, mut bytes) = images[image % images.len()].clone();
            for (at, byte) in damage {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            if let Ok(header) = Decoder::default().header(&bytes, u64::MAX) {
                prop_assert_eq!(size(&bytes, 4096), Some(header.size));
            }
        }
    }
}
