//! JPEG images that lack scans or tables, or are damaged behind their pixels: each becomes what torchvision
//! makes of it, whatever region is asked for and whatever was decoded before.

use std::fs;

use tierfeed_images::{Decoder, Image, Region, Settings, Size};

fn fixture(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
    fs::read(format!("{folder}/{name}.jpeg")).expect("a fixture")
}

/// The pixels of a region, or what was said.
fn decoded(
    decoder: &mut Decoder,
    bytes: &[u8],
    region: impl Fn(Size) -> Region,
) -> Result<Vec<u8>, String> {
    let said = |error: tierfeed_images::DecodeError| error.to_string();
    let header = decoder.header(bytes, 1 << 20).map_err(said)?;
    let mut image = Image::default();
    let region = region(header.size);
    decoder.decode(bytes, header, region, &Settings::default(), &mut image).map_err(said)?;
    let view = image.view();
    Ok((0..region.height).flat_map(|row| view.row(row).to_vec()).collect())
}

fn first_row(size: Size) -> Region {
    Region { height: 1, ..Region::whole(size) }
}

/// Where markers of a code begin.
fn markers(bytes: &[u8], code: u8) -> Vec<usize> {
    let pairs = bytes.windows(2).enumerate();
    pairs.filter(|(_, it)| **it == [0xFF, code]).map(|(at, _)| at).collect()
}

/// FNV-1a.
fn sum_of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

/// The sums of the pixels that torchvision 0.29 decodes, of the first scan alone and so on.
#[test]
fn a_progressive_image_without_its_last_scans_is_smoothed_as_torchvision_smooths_it() {
    const WHOLE_BLOCKS: [u64; 9] = [
        0x7C23_C743_DD45_7A87,
        0x3D3D_679D_9B93_E050,
        0x1203_6539_DE7B_0B61,
        0x0B85_3872_BFA5_A277,
        0x26A5_DBAE_D3AC_93C9,
        0x8B47_C95E_B6ED_1F5C,
        0xBADB_EBE5_BA1C_3574,
        0x7207_898F_0AA9_8707,
        0x2F4D_EDC0_528F_304B,
    ];
    const SUBSAMPLED: [u64; 9] = [
        0x422C_634E_A68F_1A1C,
        0xEDF6_7CD7_10F1_77F2,
        0x90A9_DFF8_88CF_D68E,
        0x419E_2E67_0659_3FDD,
        0x17B4_689B_0F2A_8328,
        0xBEC2_CF01_02DE_AEB8,
        0x2F3A_F9AE_1DC1_6BDA,
        0x1617_4F6B_1369_93ED,
        0x5B22_EB06_5F12_5BF8,
    ];
    let mut decoder = Decoder::default();
    for (name, sums) in [("progressive-1x1", WHOLE_BLOCKS), ("progressive-2x2", SUBSAMPLED)] {
        let bytes = fixture(name);
        let scans = markers(&bytes, 0xDA);
        assert_eq!(scans.len(), 10, "{name}");
        for (kept, sum) in (1..).zip(sums) {
            let (last, next) = (scans[kept - 1], scans[kept]);
            let tables = markers(&bytes[last..next], 0xC4).last().map(|it| last + it);
            let cut = [&bytes[..tables.unwrap_or(next)], &[0xFF, 0xD9]].concat();
            let pixels = decoded(&mut decoder, &cut, Region::whole).expect("a sound image");
            assert_eq!(sum_of(&pixels), sum, "{name}, {kept} scans");
        }
    }
}

#[test]
fn an_image_that_lacks_tables_is_never_decoded_with_those_of_the_image_before() {
    let mut decoder = Decoder::default();
    for (name, code, lacks) in [
        ("baseline-2x2", 0xDB, "Quantization table 0x00 was not defined"),
        ("progressive-2x2", 0xDB, "Quantization table 0x00 was not defined"),
        ("progressive-2x2", 0xC4, "Huffman table 0x00 was not defined"),
    ] {
        let mut bytes = fixture(name);
        decoded(&mut decoder, &bytes, Region::whole).expect("a sound image");
        for at in markers(&bytes, code) {
            // A comment in its place.
            bytes[at + 1] = 0xFE;
        }
        let refused = decoded(&mut decoder, &bytes, Region::whole).expect_err(name);
        assert!(refused.contains(lacks), "{name}: {refused}");
    }
}

/// An image with segments between its data and its end.
fn with_behind(name: &str, segments: &[u8]) -> Vec<u8> {
    let bytes = fixture(name);
    let end = bytes.len() - 2;
    assert_eq!(bytes[end..], [0xFF, 0xD9], "{name}");
    [&bytes[..end], segments, &bytes[end..]].concat()
}

const ONE_SCAN: [&str; 6] =
    ["arithmetic-2x2", "baseline-1x1", "baseline-2x2", "grey", "restart-2x2", "ycck"];

#[test]
fn what_is_wrong_behind_the_pixels_is_refused_wherever_the_region_lies() {
    const SOF: &[u8] = b"\xFF\xC0\0\x0B\x08\0\x35\0\x4B\x01\x01\x11\0";
    const SCAN: &[u8] = b"\xFF\xDA\0\x08\x01\x01\0\0\x3F\0";
    const UNKNOWN_MARKER: &[u8] = b"\xFF\xB7";
    const TABLE_WITHOUT_CONTENT: &[u8] = b"\xFF\xC4\0\x03\0";
    const RESTART_INTERVAL_OF_NO_LENGTH: &[u8] = b"\xFF\xDD\0\x02";
    // The mark of the end lies in the comment, and behind it there is none.
    const END_IN_A_COMMENT: &[u8] = b"\xFF\xFE\0\x04";
    let mut decoder = Decoder::default();
    for name in ONE_SCAN {
        for segments in [
            SOF,
            SCAN,
            UNKNOWN_MARKER,
            TABLE_WITHOUT_CONTENT,
            RESTART_INTERVAL_OF_NO_LENGTH,
            END_IN_A_COMMENT,
        ] {
            let bytes = with_behind(name, segments);
            for region in [Region::whole, first_row] {
                let outcome = decoded(&mut decoder, &bytes, region);
                assert!(outcome.is_err(), "{name} with {segments:x?} is decoded");
            }
        }
    }
}

#[test]
fn what_torchvision_passes_behind_the_pixels_is_passed() {
    const COMMENT: &[u8] = b"\xFF\xFE\0\x04\xFF\xD8";
    const RESTARTS: &[u8] = b"\xFF\xD5\xFF\xD5";
    const NUMBER_OF_LINES: &[u8] = b"\xFF\xDC\0\x04\0\x35";
    const ZEROS: &[u8] = &[0; 3000];
    const FILL: &[u8] = &[0xFF; 3000];
    let mut decoder = Decoder::default();
    for name in ONE_SCAN {
        for segments in [COMMENT, RESTARTS, NUMBER_OF_LINES, ZEROS, FILL] {
            let bytes = with_behind(name, segments);
            for region in [Region::whole, first_row] {
                let pixels = decoded(&mut decoder, &bytes, region).expect(name);
                let expected = decoded(&mut decoder, &fixture(name), region).expect(name);
                assert!(pixels == expected, "{name} with {:x?}", &segments[..2]);
            }
        }
    }
}

/// 6 by 4 pixels, of which the first is 0, 7, 14 and each sample 7 more than the one before, modulo 256.
const LOSSLESS: &[u8] = b"\
    \xff\xd8\xff\xee\0\x0eAdobe\0d\0\0\0\0\0\xff\xc3\0\x11\x08\0\x04\0\x06\x03R\x11\0G\x11\0B\
    \x11\0\xff\xc4\0\x16\0\x01\x01\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\x05\x07\x08\xff\xda\0\x0c\x03R\
    \0G\0B\0\x01\0\0\xcf\xf0hj\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xab~\xbf_\x95UUUUUUUUUU[\
    \xf6}\xcf\xb8QUUUUUUUUUUs\xed\xfa\xfc\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xff\0\xff\
    \xd9";

#[test]
fn a_lossless_image_is_decoded() {
    let sample = |row: u32, column: u32, channel: u32| {
        u8::try_from((row * 18 + column * 3 + channel) * 7 % 256).expect("a byte")
    };
    let mut decoder = Decoder::default();
    let inner = |_: Size| Region { left: 2, top: 1, width: 3, height: 2 };
    let pixels = decoded(&mut decoder, LOSSLESS, inner).expect("a sound image");
    let expected = (1..3).flat_map(|row| {
        (2..5).flat_map(move |column| (0..3).map(move |channel| sample(row, column, channel)))
    });
    assert_eq!(pixels, expected.collect::<Vec<_>>());
}
