//! Reads from `/proc/self/smaps` how much of a mapping lies in huge pages.

use std::{
    fs::File,
    io::{BufRead, BufReader},
};

use tierfeed_units::Bytes;

/// The fields of private and of shared memory; one of them is 0.
const FIELDS: [&str; 2] = ["AnonHugePages:", "ShmemPmdMapped:"];

/// Bytes in huge pages of the mapping of `len` bytes at `start`, or `None` if the kernel shows it
/// together with a neighbour.
pub(super) fn mapped_in(start: usize, len: usize) -> Option<Bytes> {
    let smaps = BufReader::new(File::open("/proc/self/smaps").ok()?);
    find_in_smaps(smaps, start, start + len.next_multiple_of(crate::placement::page_bytes()))
}

/// Reads the block that begins with a line such as `7f5c38000000-7f5c3a000000 rw-p 00000000 00:00 0`.
fn find_in_smaps(smaps: impl BufRead, start: usize, end: usize) -> Option<Bytes> {
    let header = format!("{start:x}-{end:x} ");
    let lines = smaps.lines().map_while(Result::ok);
    let block = lines.skip_while(|line| !line.starts_with(&header)).skip(1);
    let mut found: Option<Bytes> = None;
    // Headers begin with an address, fields with a name in capitals.
    for line in block.take_while(|line| line.starts_with(|first: char| first.is_ascii_uppercase()))
    {
        let mut words = line.split_whitespace();
        if words.next().is_some_and(|name| FIELDS.contains(&name)) {
            let kibibytes: u64 = words.next()?.parse().ok()?;
            found = Some(Bytes(found.unwrap_or_default().0 + (kibibytes << 10)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
7f0000000000-7f0000400000 rw-p 00000000 00:00 0
Size:               4096 kB
AnonHugePages:      2048 kB
ShmemPmdMapped:        0 kB
VmFlags: rd wr mr mw me ac sd hg
7f0000400000-7f0000800000 rw-s 00000000 00:01 7 /memfd:chunk (deleted)
AnonHugePages:         0 kB
ShmemPmdMapped:     4096 kB
";

    fn found(start: usize, end: usize) -> Option<Bytes> {
        find_in_smaps(SMAPS.as_bytes(), start, end)
    }

    #[test]
    fn huge_pages_are_those_of_the_mapping_alone() {
        assert_eq!(found(0x7f00_0000_0000, 0x7f00_0040_0000), Some(Bytes::mib(2)));
        assert_eq!(found(0x7f00_0040_0000, 0x7f00_0080_0000), Some(Bytes::mib(4)));
    }

    #[test]
    fn a_mapping_shown_with_a_neighbour_is_unknown() {
        assert_eq!(found(0x7f00_0000_0000, 0x7f00_0020_0000), None);
    }
}
