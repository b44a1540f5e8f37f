//! Places the pages of a file on a RAM disk: other processes need no mapping of it, and every read and
//! write goes through its descriptor.
//!
//! A policy that is set on a mapping of such a file belongs to the file. Its pages are found through a
//! mapping too, which lasts as long as the query.

use std::os::fd::AsFd;

use memmap2::{MmapOptions, MmapRaw};
use tierfeed_units::{Bytes, Locality};

use crate::{
    error::{AllocateError, Step},
    mapping::Mapping,
    placement::{self, Placement},
    policy::{Mode, Policy},
    region,
};

/// Sets where the first `len` bytes of a file on a RAM disk will lie. It moves no page.
///
/// # Errors
///
/// [`AllocateError::AbsentNode`], and [`AllocateError::System`] if the file cannot be mapped for writing
/// or takes no policy.
pub fn place_file(
    file: impl AsFd,
    len: Bytes,
    locality: Locality,
) -> Result<Policy, AllocateError> {
    let raw = map(&file, Bytes(0), len)?;
    region::set_policy(&raw, locality, len, Mode::Prefer)
}

/// Touches a range of a file that has memory, and reads back where it lies. `policy` is what
/// [`place_file`] returned.
///
/// # Errors
///
/// [`AllocateError::Misplaced`] if fewer than 99 % of its pages are on the only node that may have them,
/// and [`AllocateError::System`] if it cannot be mapped. The offset must be that of a page.
pub fn file_placement(
    file: impl AsFd,
    offset: Bytes,
    len: Bytes,
    (locality, policy): (Locality, Policy),
) -> Result<Placement, AllocateError> {
    let mapping = Mapping::watched(map(&file, offset, len)?, placement::page_bytes());
    region::populate(&mapping).map_err(|source| AllocateError::System {
        step: Step::Populate,
        len,
        source,
    })?;
    region::verify(mapping.raw(), locality, policy)
}

fn map(file: &impl AsFd, offset: Bytes, len: Bytes) -> Result<MmapRaw, AllocateError> {
    let count = usize::try_from(len.0).map_err(|_| AllocateError::TooLarge { len })?;
    MmapOptions::new()
        .offset(offset.0)
        .len(count)
        .map_raw(&file.as_fd())
        .map_err(|source| AllocateError::System { step: Step::Map, len, source })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use nix::fcntl::posix_fallocate;
    use tierfeed_test_needs::{Need, skip};
    use tierfeed_units::NumaNode;

    use super::*;

    const LEN: Bytes = Bytes::mib(1);

    fn file() -> File {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        posix_fallocate(&file, 0, 1 << 20).unwrap();
        file
    }

    #[test]
    fn a_file_lies_where_it_was_placed() {
        let locality = Locality::Numa(NumaNode(0));
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        let policy = place_file(&file, LEN, locality).unwrap();
        if policy == Policy::Denied {
            return skip(Need::MemoryPolicies, "mbind is denied");
        }
        posix_fallocate(&file, 0, 1 << 20).unwrap();
        let placement = file_placement(&file, Bytes(0), LEN, (locality, policy)).unwrap();
        assert!(
            matches!(placement, Placement::Verified { pages_on_node: 16, .. }),
            "{placement:?}"
        );
    }

    #[test]
    fn a_file_on_another_node_is_found_out() {
        let file = file();
        let absent = (Locality::Numa(NumaNode(999)), Policy::Applied);
        let error = file_placement(&file, Bytes(0), LEN, absent).unwrap_err();
        assert!(matches!(error, AllocateError::Misplaced { pages_on_node: 0, .. }), "{error}");
    }

    #[test]
    fn an_absent_node_takes_no_file() {
        let error = place_file(file(), LEN, Locality::Numa(NumaNode(900))).unwrap_err();
        assert!(matches!(error, AllocateError::AbsentNode { .. }), "{error}");
    }
}
