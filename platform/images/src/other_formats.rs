//! Names what is no image that can be decoded, by its first bytes.

/// The first bytes of a format, and what a file of it is called.
const STARTS: &[(&[u8], &str)] = &[
    (b"GIF87a", "a GIF image"),
    (b"GIF89a", "a GIF image"),
    (b"II*\0", "a TIFF image"),
    (b"MM\0*", "a TIFF image"),
    (b"II+\0", "a TIFF image"),
    (b"MM\0+", "a TIFF image"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "a JPEG 2000 image"),
    (b"\xff\x4f\xff\x51", "a JPEG 2000 image"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "a JPEG XL image"),
    (b"\xff\x0a", "a JPEG XL image"),
    (b"II\xbc\x01", "a JPEG XR image"),
    (b"\0\0\x01\0", "an icon (ICO)"),
    (b"8BPS", "a Photoshop document"),
    (b"v/1\x01", "an OpenEXR image"),
    (b"DDS ", "a DDS texture"),
    (b"%PDF-", "a PDF document"),
    (b"\x93NUMPY", "an array of NumPy, which the step `array` reads"),
    (b"RIFF", "sound or video (RIFF)"),
    (b"\x1a\x45\xdf\xa3", "a video (Matroska)"),
    (b"\x1f\x8b", "compressed by gzip: unpack it"),
    (b"\x28\xb5\x2f\xfd", "compressed by Zstandard: unpack it"),
    (b"\xfd7zXZ\0", "compressed by xz: unpack it"),
    (b"BZh", "compressed by bzip2: unpack it"),
    (b"PK\x03\x04", "a zip archive"),
    (b"version https://git-lfs", "a pointer of Git LFS: `git lfs pull` fetches the file"),
];

/// First bytes of text, in lower case, and what it is.
const TEXTS: &[(&[u8], &str)] = &[
    (b"<svg", "an SVG drawing"),
    (b"<!doctype svg", "an SVG drawing"),
    (b"<!doctype html", "HTML, perhaps the answer to a failed download"),
    (b"<html", "HTML, perhaps the answer to a failed download"),
    (b"<?xml", "XML, perhaps the answer to a failed download"),
    (b"<error", "XML, perhaps the answer to a failed download"),
    (b"{", "JSON, perhaps the answer to a failed download"),
];

/// What bytes are that no decoder of this crate reads, if their beginning tells.
pub(crate) fn name_of(bytes: &[u8]) -> Option<&'static str> {
    if bytes.is_empty() {
        return Some("an empty file");
    }
    let start = STARTS.iter().find(|(start, _)| bytes.starts_with(start));
    start.map(|(_, name)| *name).or_else(|| media(bytes)).or_else(|| bitmap(bytes)).or_else(|| {
        let head = &bytes[..bytes.len().min(16)];
        let is_zeros = head.iter().all(|it| *it == 0);
        if is_zeros {
            Some("zeros, such as a download that was broken off leaves")
        } else {
            text(bytes)
        }
    })
}

/// Of files that begin with a box `ftyp`, by its brand.
fn media(bytes: &[u8]) -> Option<&'static str> {
    if bytes.get(4..8) != Some(b"ftyp") {
        return None;
    }
    Some(match bytes.get(8..12)? {
        b"avif" | b"avis" => "an AVIF image",
        b"heic" | b"heix" | b"heim" | b"heis" | b"hevc" | b"hevx" | b"mif1" | b"msf1" => {
            "a HEIC image"
        }
        _ => "a video (MP4)",
    })
}

/// Of formats with short marks, which text could begin with too.
fn bitmap(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        // Behind the size of the file and a reserved number comes the place of the pixels, below 64 KiB.
        [b'B', b'M', _, _, _, _, _, _, _, _, _, _, 0, 0, ..] => Some("a BMP image"),
        [b'P', b'1'..=b'7', b' ' | b'\t' | b'\r' | b'\n', ..] => {
            Some("a PNM image (PBM, PGM, PPM or PAM)")
        }
        _ => None,
    }
}

fn text(bytes: &[u8]) -> Option<&'static str> {
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    let head = text[..text.len().min(16)].to_ascii_lowercase();
    TEXTS.iter().find(|(start, _)| head.starts_with(start)).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_image_is_named() {
        for (bytes, name) in [
            (&b""[..], "an empty file"),
            (b"BM\x36\x1b\0\0\0\0\0\0\x36\0\0\0\x28\0", "a BMP image"),
            (b"II*\0\x08\0\0\0", "a TIFF image"),
            (b"MM\0*\0\0\0\x08", "a TIFF image"),
            (b"P6\n50 40\n255\n", "a PNM image (PBM, PGM, PPM or PAM)"),
            (b"GIF89a\x32\0", "a GIF image"),
            (b"\0\0\0\x20ftypavif\0\0\0\0", "an AVIF image"),
            (b"\0\0\0\x18ftypheic\0\0\0\0", "a HEIC image"),
            (b"\0\0\0\x20ftypisom\0\0\0\0", "a video (MP4)"),
            (b"\0\0\0\x0cjP  \r\n\x87\n\0\0", "a JPEG 2000 image"),
            (b"\0\0\x01\0\x01\0\x10\x10", "an icon (ICO)"),
            (b"<!DOCTYPE html><html>", "HTML, perhaps the answer to a failed download"),
            (b"\n <HTML>", "HTML, perhaps the answer to a failed download"),
            (b"<?xml version='1.0'?><Error>", "XML, perhaps the answer to a failed download"),
            (b"{\"error\": \"limit\"}", "JSON, perhaps the answer to a failed download"),
            (
                b"version https://git-lfs.github.com/spec/v1\noid",
                "a pointer of Git LFS: `git lfs pull` fetches the file",
            ),
            (b"\x1f\x8b\x08\0", "compressed by gzip: unpack it"),
            (&[0; 5000], "zeros, such as a download that was broken off leaves"),
        ] {
            assert_eq!(name_of(bytes), Some(name), "{:x?}", &bytes[..bytes.len().min(16)]);
        }
    }

    #[test]
    fn what_begins_like_nothing_known_has_no_name() {
        for bytes in [&b"\xff"[..], b"\xff\xd8", b"BM is text", b"P6", b"photograph", b"\0\x01\0"] {
            assert_eq!(name_of(bytes), None, "{bytes:x?}");
        }
    }
}
