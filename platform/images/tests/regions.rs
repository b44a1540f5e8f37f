//! A region has the pixels that the whole image has there, for every kind of image.

use std::{fs, path::PathBuf};

use tierfeed_images::{
    Channels, Dct, DecodeError, Decoder, Image, Region, Scale, Settings, Size, View,
};

const PIXELS_MAX: u64 = 1 << 20;

fn fixtures() -> Vec<(PathBuf, Vec<u8>)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
    let entries = fs::read_dir(folder).expect("the folder of fixtures");
    let mut paths: Vec<_> = entries.map(|it| it.expect("an entry").path()).collect();
    paths.sort();
    let read = |path: PathBuf| (path.clone(), fs::read(path).expect("a fixture"));
    paths.into_iter().map(read).collect()
}

fn decode(
    decoder: &mut Decoder,
    bytes: &[u8],
    settings: Settings,
    region: Option<Region>,
) -> Image {
    let mut image = Image::default();
    let header = decoder.header(bytes, PIXELS_MAX).expect("a sound image");
    let region = region.unwrap_or(Region::whole(settings.scale.size(header.size)));
    decoder.decode(bytes, header, region, &settings, &mut image).expect("a sound image");
    image
}

fn rows<'a>(view: &View<'a>) -> Vec<&'a [u8]> {
    (0..view.size().height).map(|it| view.row(it)).collect()
}

/// Rectangles at every column and every row, of several sizes.
fn regions(size: Size) -> impl Iterator<Item = Region> {
    let across = (0..size.width).flat_map(move |left| {
        [1, 2, 3, 9, 30].map(|width| Region { left, top: left % size.height, width, height: 2 })
    });
    let down = (0..size.height).flat_map(move |top| {
        [1, 2, 5, 17].map(|height| Region { left: top % size.width, top, width: 4, height })
    });
    across.chain(down).filter(move |it| it.is_within(size))
}

#[test]
fn a_region_has_the_pixels_of_the_whole_image() {
    let mut decoder = Decoder::default();
    for (path, bytes) in fixtures() {
        for channels in [Channels::Rgb, Channels::Grey] {
            let settings = Settings { channels, ..Settings::default() };
            let whole = decode(&mut decoder, &bytes, settings, None);
            for region in regions(whole.view().size()) {
                let part = decode(&mut decoder, &bytes, settings, Some(region));
                let expected = whole.view().cropped(region);
                assert_eq!(rows(&part.view()), rows(&expected), "{} {region:?}", path.display());
            }
        }
    }
}

#[test]
fn every_quicker_mode_decodes_every_region() {
    let mut decoder = Decoder::default();
    let target = Size { width: 10, height: 10 };
    for (path, bytes) in fixtures() {
        let header = decoder.header(&bytes, PIXELS_MAX).expect("a sound image");
        let exact = decode(&mut decoder, &bytes, Settings::default(), None);
        for region in regions(header.size) {
            let scale = Scale::for_target(header.size, target);
            let settings = Settings { dct: Dct::Fast, scale, ..Settings::default() };
            let region = scale.region(header.size, region);
            let part = decode(&mut decoder, &bytes, settings, Some(region));
            assert_eq!(part.view().size(), region.size(), "{}", path.display());
        }
        let fast = Settings { dct: Dct::Fast, ..Settings::default() };
        let fast = decode(&mut decoder, &bytes, fast, None);
        let levels = |image: &Image| rows(&image.view()).concat();
        let differences = levels(&exact)
            .into_iter()
            .zip(levels(&fast))
            .map(|(one, other)| u64::from(one.abs_diff(other)));
        let sum = differences.sum::<u64>();
        let name = path.file_name().and_then(|it| it.to_str()).expect("a name");
        // In all channels together. Chroma that is not smoothed differs more than the transform does.
        let most = match name {
            _ if path.extension() != Some("jpeg".as_ref()) => 0,
            "grey.jpeg" | "cmyk.jpeg" => 4,
            _ if name.contains("-1x1") || name.contains("-4x1") => 4,
            _ => 36,
        };
        let mean = sum / header.size.pixels();
        assert!(mean <= most, "{name} differs by {mean} a pixel");
        assert!(sum > 0 || most == 0, "{name} is decoded as in the exact mode");
    }
}

#[test]
fn a_truncated_image_is_refused_wherever_the_region_lies() {
    let mut decoder = Decoder::default();
    let mut image = Image::default();
    // WebP is decoded as a whole.
    for (path, bytes) in
        fixtures().into_iter().filter(|it| it.0.extension() != Some("webp".as_ref()))
    {
        let header = decoder.header(&bytes, PIXELS_MAX).expect("a sound image");
        let top = Region { height: 1, ..Region::whole(header.size) };
        for length in [bytes.len() / 2, bytes.len() - 30, bytes.len() - 9] {
            let cut = &bytes[..length];
            let outcome = decoder.decode(cut, header, top, &Settings::default(), &mut image);
            assert!(outcome.is_err(), "{} cut at {length}", path.display());
        }
        // The decoder serves the next image.
        decode(&mut decoder, &bytes, Settings::default(), None);
    }
}

#[test]
fn an_image_of_too_many_pixels_is_refused_by_its_header() {
    let fixtures = fixtures();
    let (_, bytes) = fixtures.iter().find(|it| it.0.ends_with("grey.jpeg")).expect("a fixture");
    let refused = Decoder::default().header(bytes, 75 * 53 - 1);
    assert!(
        matches!(refused, Err(DecodeError::TooLarge { width: 75, height: 53, .. })),
        "{refused:?}"
    );
}

#[test]
fn a_png_of_16_bits_gives_its_upper_8() {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 2, 1);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Sixteen);
    let mut writer = encoder.write_header().expect("memory takes it");
    writer
        .write_image_data(&[1, 255, 2, 0, 3, 128, 253, 127, 254, 255, 255, 255])
        .expect("2 pixels");
    writer.finish().expect("memory takes it");
    let image = decode(&mut Decoder::default(), &bytes, Settings::default(), None);
    assert_eq!(rows(&image.view()), [[1, 2, 3, 253, 254, 255]]);
}

#[test]
fn bytes_that_are_no_image_are_refused() {
    let mut decoder = Decoder::default();
    for bytes in [&b""[..], b"GIF89a", b"\xFF\xD8\xFF", b"\x89PNG\r\n\x1a\n", b"RIFF....WEBP"] {
        assert!(decoder.header(bytes, PIXELS_MAX).is_err(), "{bytes:?}");
    }
}

/// An image of no rows passed as one of no pixels, and the draw of a crop panicked (found by the fuzzer).
#[test]
fn an_image_without_pixels_is_refused() {
    let fixtures = fixtures();
    let (_, bytes) = fixtures.iter().find(|it| it.0.ends_with("lossy.webp")).expect("a fixture");
    let mut empty = bytes.clone();
    // The height of a lossy image, behind the code that starts its frame.
    let code = empty.windows(3).position(|it| it == [0x9D, 0x01, 0x2A]).expect("a frame");
    empty[code + 5..code + 7].fill(0);
    assert!(Decoder::default().header(&empty, PIXELS_MAX).is_err());
}
