use super::*;
use crate::probe::settings::Budget;

const MIB: u64 = 1 << 20;

fn limits(file: Bytes) -> Limits {
    let time = Nanoseconds(30_000_000);
    Limits { file, cell: time, sample: Nanoseconds(500_000), ..Budget::Quick.limits() }
}

#[test]
fn the_file_is_whole_samples_within_the_limit_and_a_quarter_of_the_room() {
    let len = |free: u64, file: u64| {
        file_len(Bytes(free * MIB), Medium::SolidState, &limits(Bytes(file * MIB)))
    };
    assert_eq!(len(10_000, 257).unwrap(), Bytes::mib(256));
    assert_eq!(len(103, 256).unwrap(), Bytes::mib(24));
    assert_eq!(len(10_000, 1).unwrap(), FILE_MIN);
    let refused = len(31, 256).unwrap_err();
    assert_eq!(refused.to_string(), "31 MiB are free, at least 32 MiB are needed");
}

#[test]
fn a_file_in_memory_is_limited_by_memory_too() {
    let everything = Bytes(1 << 60);
    let memory = file_len(everything, Medium::Memory, &limits(everything)).unwrap();
    let disk = file_len(everything, Medium::SolidState, &limits(everything)).unwrap();
    assert!(memory < disk);
}

#[test]
fn the_whole_file_is_written_and_repeats_nowhere() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(DirectFile::create_in(directory.path()).unwrap());
    let mut clock = SystemClock;
    let rule =
        StopRule { half_width: 0.0, samples_min: 1, samples_max: 1, time: Nanoseconds(u64::MAX) };
    let cell = Cell::new(rule, Occupation::Waits);
    let len = BUFFER as u64 + SAMPLE;
    let estimate = bench.fill_file(&mut Sampler::new(&mut clock), cell, Bytes(len)).unwrap();
    assert_eq!(estimate.unwrap().samples as u64, len / SAMPLE - 1, "the first is dropped");
    assert_eq!(bench.len, len);
    let page = |offset| {
        let mut page = AlignedBuffer::new(ALIGNMENT);
        bench.file.read(page.as_mut_slice(), offset).unwrap();
        page.as_slice().to_vec()
    };
    let mut pages: Vec<Vec<u8>> = (0..64).map(|index| page(index * ALIGNMENT as u64)).collect();
    pages.extend((0..64).map(|index| page(BUFFER as u64 + index * ALIGNMENT as u64)));
    pages.push(page(len - ALIGNMENT as u64));
    let count = pages.len();
    pages.sort_unstable();
    pages.dedup();
    assert_eq!(pages.len(), count);
}

#[test]
fn writing_ends_with_the_time_of_the_cell_but_not_before_two_samples() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(DirectFile::create_in(directory.path()).unwrap());
    let mut clock = SystemClock;
    let rule = StopRule { half_width: 0.0, samples_min: 1, samples_max: 1, time: Nanoseconds(0) };
    let cell = Cell::new(rule, Occupation::Waits);
    bench.fill_file(&mut Sampler::new(&mut clock), cell, Bytes(64 * SAMPLE)).unwrap();
    assert_eq!(bench.len, FILE_MIN.0);
}

#[test]
fn a_read_that_fails_ends_the_crew() {
    let directory = tempfile::tempdir().unwrap();
    let file = DirectFile::create_in(directory.path()).unwrap();
    let mut clock = SystemClock;
    let rule =
        StopRule { half_width: 0.1, samples_min: 3, samples_max: 9, time: Nanoseconds(1 << 30) };
    let outcome = thread::scope(|scope| {
        let mut crew = Crew::start(scope, &file, Bytes(1 << 40), 8)?;
        Sampler::new(&mut clock).fill(&mut crew, &mut [((), Cell::new(rule, Occupation::Waits))])
    });
    assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn random_offsets_are_blocks_inside_the_file() {
    let mut random = SplitMix64(3);
    let offsets: Vec<u64> =
        (0..1000).map(|_| crew::random_offset(&mut random, Bytes(3 * 4096))).collect();
    for block in [0, 4096, 8192] {
        assert!(offsets.contains(&block));
    }
    assert!(offsets.iter().all(|offset| offset % 4096 == 0 && *offset < 3 * 4096));
}
