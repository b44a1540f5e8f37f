//! The pixels of an image, sound or damaged, do not depend on what decodes its Huffman codes.

use std::{fs, path::Path};

use proptest::{prelude::*, sample::Index};
use tierfeed_images::{Channels, Decoder, Entropy, Image, Region, Scale, Settings, Size};

const PIXELS_MAX: u64 = 1 << 20;

fn photographs() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut paths: Vec<_> = fs::read_dir(folder)
        .expect("the folder of fixtures")
        .map(|it| it.expect("an entry").path())
        .filter(|it| it.extension() == Some("jpeg".as_ref()))
        .collect();
    paths.sort();
    assert!(paths.len() > 10, "{paths:?}");
    paths.iter().map(|it| fs::read(it).expect("a fixture")).collect()
}

/// One change of a file.
#[derive(Clone, Debug)]
enum Damage {
    Flip(Index, u8),
    Replace(Index, u8),
    Insert(Index, u8),
    Remove(Index),
    Truncate(Index),
}

impl Damage {
    /// Changes nothing before `first`, where the headers are, or all.
    fn apply(&self, bytes: &mut Vec<u8>, first: usize) {
        let at = |index: &Index, bytes: &[u8]| first + index.index(bytes.len() - first);
        if bytes.len() == first {
            return;
        }
        match self {
            Self::Flip(index, bit) => {
                let at = at(index, bytes);
                bytes[at] ^= 1 << bit;
            }
            Self::Replace(index, byte) => {
                let at = at(index, bytes);
                bytes[at] = *byte;
            }
            Self::Insert(index, byte) => bytes.insert(at(index, bytes), *byte),
            Self::Remove(index) => {
                bytes.remove(at(index, bytes));
            }
            // With the marker at the end, without which it is refused.
            Self::Truncate(index) => {
                bytes.truncate(at(index, bytes));
                bytes.extend([0xFF, 0xD9]);
            }
        }
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    let byte = prop_oneof![Just(0xFF), Just(0), 0xCF_u8..=0xDA, any::<u8>()];
    let index = any::<Index>;
    prop_oneof![
        4 => (index(), 0..8_u8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        4 => (index(), byte.clone()).prop_map(|(at, byte)| Damage::Replace(at, byte)),
        1 => (index(), byte).prop_map(|(at, byte)| Damage::Insert(at, byte)),
        1 => index().prop_map(Damage::Remove),
        1 => index().prop_map(Damage::Truncate),
    ]
}

/// Where the entropy-coded data begins.
fn scan(bytes: &[u8]) -> usize {
    let start = bytes.windows(2).position(|it| it == [0xFF, 0xDA]).expect("a scan");
    start + 2 + usize::from(u16::from_be_bytes([bytes[start + 2], bytes[start + 3]]))
}

fn region(size: Size, [left, top, width, height]: [Index; 4]) -> Region {
    let start = |index: Index, length: u32| {
        u32::try_from(index.index(length as usize)).expect("it is less than a length")
    };
    let (left, top) = (start(left, size.width), start(top, size.height));
    let (width, height) =
        (1 + start(width, size.width - left), 1 + start(height, size.height - top));
    Region { left, top, width, height }
}

/// The rows, or what was said.
fn decoded(
    decoder: &mut Decoder,
    bytes: &[u8],
    of: impl Fn(Size) -> Region,
    settings: Settings,
) -> Result<Vec<Vec<u8>>, String> {
    let said = |error: tierfeed_images::DecodeError| error.to_string();
    let header = decoder.header(bytes, PIXELS_MAX).map_err(said)?;
    let mut image = Image::default();
    let region = of(settings.scale.size(header.size));
    decoder.decode(bytes, header, region, &settings, &mut image).map_err(said)?;
    let view = image.view();
    Ok((0..view.size().height).map(|it| view.row(it).to_vec()).collect())
}

fn assert_same(
    decoder: &mut Decoder,
    bytes: &[u8],
    of: impl Fn(Size) -> Region,
    settings: Settings,
) {
    let [quick, library] = [Entropy::Quick, Entropy::Library]
        .map(|entropy| decoded(decoder, bytes, &of, Settings { entropy, ..settings }));
    assert_eq!(quick, library, "{settings:?}");
}

fn settings() -> impl Strategy<Value = Settings> {
    let channels = prop_oneof![4 => Just(Channels::Rgb), 1 => Just(Channels::Grey)];
    (channels, prop_oneof![4 => Just(8), 1 => Just(1), 1 => Just(2), 1 => Just(4)]).prop_map(
        |(channels, eighths)| {
            let size = |length| Size { width: length, height: length };
            let scale = Scale::for_target(size(800), size(100 * eighths));
            Settings { channels, scale, ..Settings::default() }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn damaged_data_becomes_what_the_library_makes_of_it(
        photograph in any::<Index>(),
        damages in prop::collection::vec(damage(), 0..4),
        in_headers in prop_oneof![9 => Just(false), 1 => Just(true)],
        corners in any::<[Index; 4]>(),
        settings in settings(),
    ) {
        let photographs = photographs();
        let mut bytes = photograph.get(&photographs).clone();
        let first = if in_headers { 2 } else { scan(&bytes) };
        for damage in &damages {
            damage.apply(&mut bytes, first);
        }
        let mut decoder = Decoder::default();
        assert_same(&mut decoder, &bytes, Region::whole, settings);
        assert_same(&mut decoder, &bytes, |size| region(size, corners), settings);
    }
}

#[test]
fn every_cut_and_every_flipped_byte_of_the_data_gives_what_the_library_gives() {
    let mut decoder = Decoder::default();
    for bytes in photographs() {
        let first = scan(&bytes);
        for at in first..bytes.len() {
            let mut cut = bytes[..at].to_vec();
            cut.extend([0xFF, 0xD9]);
            assert_same(&mut decoder, &cut, Region::whole, Settings::default());
            let mut flipped = bytes.clone();
            flipped[at] ^= 0xFF;
            assert_same(&mut decoder, &flipped, Region::whole, Settings::default());
        }
    }
}
