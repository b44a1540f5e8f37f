//! The kinds of PNG: interlaced, with a palette, with transparency, animated. Their pixels are what the
//! specification says, and transparency is dropped. Damaged ones are refused as libpng refuses them.

use tierfeed_images::{DecodeError, Decoder, Image, Region, Settings, Size};

const GREY: u8 = 0;
const RGB: u8 = 2;
const PALETTE: u8 = 3;

/// A file of an image of 5 by 3 pixels with 8 bits a sample, of the chunks behind its header.
fn file(colour: u8, interlaced: u8, chunks: &[(&[u8; 4], Vec<u8>)]) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = vec![0, 0, 0, 5, 0, 0, 0, 3, 8, colour, 0, 0];
    header.push(interlaced);
    let chunks = chunks.iter().map(|(name, data)| (*name, data));
    for (name, data) in
        [(b"IHDR", &header)].into_iter().chain(chunks).chain([(b"IEND", &Vec::new())])
    {
        bytes.extend(chunk(*name, data));
    }
    bytes
}

fn chunk(name: [u8; 4], data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).expect("short").to_be_bytes();
    let named = [&name[..], data].concat();
    [&length[..], &named, &crc(&named).to_be_bytes()].concat()
}

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            if sum & 1 == 1 { sum >> 1 ^ 0xEDB8_8320 } else { sum >> 1 }
        })
    })
}

/// A zlib stream that stores bytes as they are.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("short");
    let mut stream = vec![0x78, 0x01, 1];
    stream.extend(length.to_le_bytes());
    stream.extend((!length).to_le_bytes());
    stream.extend_from_slice(bytes);
    let (low, high) = bytes.iter().fold((1_u32, 0_u32), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % 65_521;
        (low, (high + low) % 65_521)
    });
    stream.extend((high << 16 | low).to_be_bytes());
    stream
}

/// Rows of samples, each with the filter that leaves it as it is.
fn rows(rows: &[&[u8]]) -> Vec<u8> {
    rows.iter().flat_map(|row| [&[0], *row].concat()).collect()
}

/// The pixels of the whole image, and of a region of two columns and two rows.
fn decoded(bytes: &[u8]) -> [Vec<Vec<u8>>; 2] {
    let mut decoder = Decoder::default();
    let header = decoder.header(bytes, 1000).expect("a sound header");
    assert_eq!(header.size, Size { width: 5, height: 3 });
    let region = Region { left: 2, top: 1, width: 2, height: 2 };
    [Region::whole(header.size), region].map(|region| {
        let mut image = Image::default();
        decoder
            .decode(bytes, header, region, &Settings::default(), &mut image)
            .expect("a sound image");
        let view = image.view();
        (0..region.height).map(|it| view.row(it).to_vec()).collect()
    })
}

fn assert_pixels(bytes: &[u8], pixels: [[[u8; 3]; 5]; 3]) {
    let [whole, region] = decoded(bytes);
    assert_eq!(whole, pixels.map(|row| row.as_flattened().to_vec()));
    assert_eq!(region, [1, 2].map(|row| pixels[row][2..4].as_flattened().to_vec()));
}

fn grey(level: u8) -> [u8; 3] {
    [level; 3]
}

#[test]
fn an_interlaced_image_has_its_pixels_in_the_order_of_rows() {
    // Of Adam7 the passes with pixels in 5 by 3: 1, 2, 4, 5, 6 and 7.
    let data = rows(&[&[0], &[4], &[2], &[20, 22, 24], &[1, 3], &[21, 23], &[10, 11, 12, 13, 14]]);
    let bytes = file(GREY, 1, &[(b"IDAT", stored(&data))]);
    let row = |first: u8| [0, 1, 2, 3, 4].map(|column| grey(first + column));
    assert_pixels(&bytes, [row(0), row(10), row(20)]);
}

#[test]
fn a_palette_gives_its_colours_and_drops_their_transparency() {
    let colours = vec![255, 0, 0, 0, 255, 0, 1, 2, 3];
    let data = rows(&[&[0, 1, 2, 0, 1], &[2, 2, 2, 0, 0], &[1, 0, 1, 2, 1]]);
    let [r, g, b] = [[255, 0, 0], [0, 255, 0], [1, 2, 3]];
    let pixels = [[r, g, b, r, g], [b, b, b, r, r], [g, r, g, b, g]];
    let chunks = [(b"PLTE", colours), (b"tRNS", vec![0, 128]), (b"IDAT", stored(&data))];
    assert_pixels(&file(PALETTE, 0, &chunks), pixels);
    let [palette, _, data] = chunks;
    assert_pixels(&file(PALETTE, 0, &[palette, data]), pixels);
}

#[test]
fn a_transparent_colour_keeps_its_level() {
    let data = rows(&[&[7; 5], &[7, 8, 9, 7, 8], &[0; 5]]);
    let chunks = [(b"tRNS", vec![0, 7]), (b"IDAT", stored(&data))];
    let pixels = [[7; 5], [7, 8, 9, 7, 8], [0; 5]].map(|row| row.map(grey));
    assert_pixels(&file(GREY, 0, &chunks), pixels);

    let data = rows(&[&[7; 15], &[1; 15], &[0; 15]]);
    let chunks = [(b"tRNS", vec![0, 7, 0, 7, 0, 7]), (b"IDAT", stored(&data))];
    assert_pixels(&file(RGB, 0, &chunks), [[grey(7); 5], [grey(1); 5], [grey(0); 5]]);
}

#[test]
fn an_animation_gives_its_default_image() {
    let frame = |number: u8| {
        let size = [0, 0, 0, number, 0, 0, 0, 5, 0, 0, 0, 3];
        [&size[..], &[0; 8], &[0, 1, 0, 10, 0, 0]].concat()
    };
    let [first, second] = [3, 200].map(|level| stored(&rows(&[&[level; 5][..]; 3])));
    let later = [&[0, 0, 0, 2][..], &second].concat();
    let frames = [(b"acTL", vec![0, 0, 0, 2, 0, 0, 0, 0]), (b"fcTL", frame(0))];
    let chunks = [(b"IDAT", first), (b"fcTL", frame(1)), (b"fdAT", later)];
    let bytes = file(GREY, 0, &[&frames[..], &chunks[..]].concat());
    assert_pixels(&bytes, [[grey(3); 5]; 3]);
}

const WHOLE_ROWS: [&[u8]; 3] = [&[1, 2, 3, 4, 5], &[6, 7, 8, 9, 10], &[11, 12, 13, 14, 15]];
/// The same number of pixels in the passes of an interlaced image.
const PASSES: [&[u8]; 7] =
    [&[0], &[4], &[2], &[20, 22, 24], &[1, 3], &[21, 23], &[10, 11, 12, 13, 14]];

/// Decodes the whole image, or its first row, which must end alike.
fn outcome(bytes: &[u8]) -> Result<(), DecodeError> {
    let mut decoder = Decoder::default();
    let header = decoder.header(bytes, 1000)?;
    let row = Region { height: 1, ..Region::whole(header.size) };
    let [whole, row] = [Region::whole(header.size), row].map(|region| {
        decoder.decode(bytes, header, region, &Settings::default(), &mut Image::default())
    });
    assert_eq!(whole.is_ok(), row.is_ok(), "the whole image {whole:?}, and its first row {row:?}");
    whole
}

#[test]
fn pixels_whose_checksum_is_wrong_are_refused_wherever_the_damage_and_the_region_lie() {
    for (interlaced, data) in [(0, rows(&WHOLE_ROWS)), (1, rows(&PASSES))] {
        let sound = file(GREY, interlaced, &[(b"IDAT", stored(&data))]);
        outcome(&sound).expect("a sound image");
        // From the data of the only chunk to its checksum.
        let start = sound.windows(4).position(|it| it == b"IDAT").expect("a chunk") + 4;
        for at in start..sound.len() - 12 {
            let mut damaged = sound.clone();
            damaged[at] ^= 1;
            assert!(outcome(&damaged).is_err(), "byte {at} of {}", sound.len());
        }
        let stream = stored(&data);
        let (first, last) = stream.split_at(9);
        let chunks = [(b"IDAT", first.to_vec()), (b"IDAT", last.to_vec())];
        let sound = file(GREY, interlaced, &chunks);
        outcome(&sound).expect("a sound image");
        for at in [start + 8, start + 9 + 3, sound.len() - 13] {
            let mut damaged = sound.clone();
            damaged[at] ^= 1;
            assert!(outcome(&damaged).is_err(), "byte {at} of {}", sound.len());
        }
    }
}

#[test]
fn pixels_are_refused_that_are_not_those_which_were_compressed() {
    for (interlaced, data) in [(0, rows(&WHOLE_ROWS)), (1, rows(&PASSES))] {
        let mut stream = stored(&data);
        // The checksum of the chunk is right.
        *stream.last_mut().expect("not empty") ^= 1;
        assert!(outcome(&file(GREY, interlaced, &[(b"IDAT", stream)])).is_err());
        let mut stream = stored(&data);
        stream[9] ^= 1;
        assert!(outcome(&file(GREY, interlaced, &[(b"IDAT", stream)])).is_err());
    }
}

#[test]
fn what_torchvision_passes_beside_the_pixels_is_passed() {
    let data = stored(&rows(&WHOLE_ROWS));
    let end = |bytes: &[u8]| bytes.len() - 12;
    let mut damaged_text = chunk(*b"tEXt", b"a\0b");
    *damaged_text.last_mut().expect("not empty") ^= 1;
    let sound = file(GREY, 0, &[(b"IDAT", data.clone())]);
    let before = [&sound[..33], &damaged_text, &sound[33..]].concat();
    let behind = [&sound[..end(&sound)], &damaged_text, &sound[end(&sound)..]].concat();
    let garbage = [&sound[..], b"more"].concat();
    let longer = file(GREY, 0, &[(b"IDAT", [&data[..], b"more"].concat())]);
    let empty = file(GREY, 0, &[(b"IDAT", vec![]), (b"IDAT", data), (b"IDAT", vec![])]);
    for (what, bytes) in [
        ("a damaged text before the pixels", before),
        ("a damaged text behind them", behind),
        ("bytes behind the end", garbage),
        ("bytes behind the compressed ones", longer),
        ("chunks without data", empty),
    ] {
        outcome(&bytes).expect(what);
    }
}
