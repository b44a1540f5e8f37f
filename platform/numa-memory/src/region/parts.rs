//! Regions whose memory lies on several nodes: one mapping for other processes, a policy for each part.
//!
//! The first part lies where the request says, each further one behind it. Room is checked for each part on
//! its own node, and each part is read back like a region of its own.

use std::{path::Path, sync::Mutex};

use nix::fcntl::FallocateFlags;
use tierfeed_units::{Bytes, Locality};

use super::{Region, Request, allocate_range, as_usize, failed, holes::Holes, map, populate, seal};
use crate::{
    capacity::{self, Purpose},
    error::{AllocateError, Step},
    placement::{self, Placement},
    policy::{self, Mode, Policy},
};

/// Memory of a region behind its first part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionPart {
    /// Its length in bytes, a multiple of a page.
    pub len: Bytes,
    /// The node to allocate on.
    pub locality: Locality,
}

/// A range of a region and where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlacedPart {
    pub(super) start: Bytes,
    pub(super) len: Bytes,
    pub(super) placement: Placement,
}

impl Region {
    /// As [`Self::allocate`]; the last bytes of the request lie in `parts`, in their order. In reserved huge
    /// pages only if there are no parts.
    ///
    /// # Errors
    ///
    /// As [`Self::allocate`], for the first part that fails; and [`AllocateError::Outside`] if the parts are
    /// longer than the request.
    pub fn allocate_in_parts(
        request: &Request<'_>,
        parts: &[RegionPart],
    ) -> Result<Self, AllocateError> {
        if parts.is_empty() {
            return Self::allocate(request);
        }
        let ranges = ranges(request, parts)?;
        let claims = ranges.iter().filter(|(_, part)| part.len.0 > 0).map(|(_, part)| {
            capacity::claim(Path::new("/"), part.locality, part.len, Purpose::Other)
        });
        let _claims = claims.collect::<Result<Vec<_>, _>>()?;
        let len = request.len;
        let (fd, mapping, first_policy) = map(request)?;
        let mut policies = vec![first_policy];
        for (start, part) in &ranges[1..] {
            policies.push(bind_part(mapping.raw(), *start, part, Mode::Prefer)?);
        }
        allocate_range(&fd, FallocateFlags::empty(), Bytes(0), len)
            .map_err(failed(Step::Reserve, len))?;
        populate(&mapping).map_err(failed(Step::Populate, len))?;
        let placed = ranges.iter().zip(policies).map(|((start, part), policy)| {
            let placement = verify_part(mapping.raw(), (*start, part.len), part.locality, policy)?;
            Ok(PlacedPart { start: *start, len: part.len, placement })
        });
        let parts = placed.collect::<Result<Vec<_>, AllocateError>>()?;
        seal(&fd).map_err(failed(Step::Seal, len))?;
        let placement = Mutex::new(parts[0].placement);
        Ok(Self { mapping, fd, placement, parts, is_reserved: false, holes: Holes::none() })
    }

    /// The placement of each part that has bytes, in their order: at the allocation, and of the first one after
    /// it was moved.
    #[must_use]
    pub fn placements(&self) -> Vec<Placement> {
        let all = self.parts_within(Bytes(0), self.mapping.len());
        all.iter().map(|part| part.placement).collect()
    }

    /// The length of the part that [`Region::move_near`] moves: the first one.
    pub(super) fn first_len(&self) -> Bytes {
        self.parts.first().map_or_else(|| self.mapping.len(), |part| part.len)
    }

    /// The parts of a range, each with its start, its length and its placement.
    pub(super) fn parts_within(&self, offset: Bytes, len: Bytes) -> Vec<PlacedPart> {
        let placement = self.placement();
        if self.parts.is_empty() {
            return vec![PlacedPart { start: offset, len, placement }];
        }
        let end = offset.0.saturating_add(len.0);
        let within = self.parts.iter().enumerate().map(|(at, part)| {
            let start = part.start.max(offset);
            let end = end.min(part.start.0.saturating_add(part.len.0));
            let placement = if at == 0 { placement } else { part.placement };
            PlacedPart { start, len: Bytes(end.saturating_sub(start.0)), placement }
        });
        within.filter(|part| part.len.0 > 0).collect()
    }

    /// Claims the room of each part of a range.
    pub(super) fn claim_parts(
        &self,
        offset: Bytes,
        len: Bytes,
    ) -> Result<Vec<capacity::Claim>, AllocateError> {
        let parts = self.parts_within(offset, len).into_iter();
        let claims = parts.map(|part| {
            capacity::claim(Path::new("/"), part.placement.locality(), part.len, Purpose::Other)
        });
        claims.collect()
    }
}

/// The first part and those behind it, each with its start.
fn ranges(
    request: &Request<'_>,
    parts: &[RegionPart],
) -> Result<Vec<(Bytes, RegionPart)>, AllocateError> {
    let behind = parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.len.0));
    let outside =
        || AllocateError::Outside { offset: Bytes(0), len: Bytes(behind), mapped: request.len };
    let first = request.len.0.checked_sub(behind).ok_or_else(outside)?;
    let first = RegionPart { len: Bytes(first), locality: request.locality };
    let mut start = 0;
    let ranges = [first].into_iter().chain(parts.iter().copied()).map(|part| {
        let range = (Bytes(start), part);
        start += part.len.0;
        range
    });
    Ok(ranges.collect())
}

/// Sets the policy of a range; reports [`Policy::Denied`] if this process may set none.
pub(super) fn bind_part(
    raw: &memmap2::MmapRaw,
    start: Bytes,
    part: &RegionPart,
    mode: Mode,
) -> Result<Policy, AllocateError> {
    let node = part.locality.node().filter(|_| part.len.0 > 0);
    let Some(node) = node else { return Ok(Policy::Applied) };
    let (offset, count) = as_usize(start, part.len).map_err(failed(Step::Bind, part.len))?;
    match policy::bind_range(raw, offset..offset + count, node, mode) {
        Ok(()) => Ok(Policy::Applied),
        Err(error) if policy::is_denied(&error) => Ok(Policy::Denied),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Err(AllocateError::AbsentNode { node })
        }
        Err(source) => Err(AllocateError::System { step: Step::Bind, len: part.len, source }),
    }
}

/// Reads back where a range lies that has memory.
pub(super) fn verify_part(
    raw: &memmap2::MmapRaw,
    (start, len): (Bytes, Bytes),
    locality: Locality,
    policy: Policy,
) -> Result<Placement, AllocateError> {
    if len.0 == 0 {
        return Ok(Placement::before_touch(locality, policy));
    }
    let (offset, count) = as_usize(start, len).map_err(failed(Step::Reserve, len))?;
    placement::judge(locality, policy, |node| placement::find_within(raw, offset, count, node))
}

#[cfg(test)]
mod tests {
    use tierfeed_units::NumaNode;

    use super::*;
    use crate::region::Pages;

    const HERE: Locality = Locality::Numa(NumaNode(0));

    fn allocate(len: Bytes, parts: &[RegionPart]) -> Result<Region, AllocateError> {
        let request =
            Request { len, locality: Locality::Anywhere, name: "parts", pages: Pages::Small };
        Region::allocate_in_parts(&request, parts)
    }

    #[test]
    fn each_part_is_read_back_and_the_whole_is_one_mapping() {
        let part = RegionPart { len: Bytes::mib(1), locality: HERE };
        let region = allocate(Bytes::mib(3), &[part]).unwrap();
        let placements = region.placements();
        assert_eq!(placements[0], Placement::Anywhere);
        assert!(matches!(placements[1], Placement::Verified { node: NumaNode(0), .. }));
        region.write(Bytes(2 * (1 << 20) - 2), b"both").unwrap();
        let mut bytes = [0; 4];
        region.read(Bytes(2 * (1 << 20) - 2), &mut bytes).unwrap();
        assert_eq!(&bytes, b"both");
    }

    #[test]
    fn what_is_given_back_of_several_parts_is_restored_and_read_back() {
        let part = RegionPart { len: Bytes::mib(1), locality: HERE };
        let region = allocate(Bytes::mib(3), &[part]).unwrap();
        let (offset, len) = (Bytes::mib(1), Bytes::mib(2));
        region.give_back(offset, len).unwrap();
        assert_eq!(region.resident().unwrap(), Bytes::mib(1));
        region.restore(offset, len).unwrap();
        assert_eq!(region.resident().unwrap(), Bytes::mib(3));
        let parts = region.parts_within(offset, len);
        let starts: Vec<_> = parts.iter().map(|part| (part.start, part.len)).collect();
        assert_eq!(starts, [(Bytes::mib(1), Bytes::mib(1)), (Bytes::mib(2), Bytes::mib(1))]);
    }

    #[test]
    fn only_the_first_part_moves() {
        let part = RegionPart { len: Bytes::mib(1), locality: HERE };
        let region = allocate(Bytes::mib(3), &[part]).unwrap();
        region.write(Bytes(0), b"kept").unwrap();
        let moved = region.move_near(NumaNode(0)).unwrap();
        let [first, behind] = region.placements()[..] else { panic!("two parts") };
        assert!(matches!(first, Placement::Preferred { node: NumaNode(0), .. }), "{first:?}");
        assert!(matches!(behind, Placement::Verified { .. }), "{behind:?}");
        assert_eq!((moved, region.placement_now().unwrap()), (first, first));
        let mut bytes = [0; 4];
        region.read(Bytes(0), &mut bytes).unwrap();
        assert_eq!(&bytes, b"kept");
        region.give_back(Bytes(0), Bytes::mib(3)).unwrap();
        region.restore(Bytes(0), Bytes::mib(3)).unwrap();
    }

    #[test]
    fn a_region_whose_first_part_is_empty_lies_in_the_others_and_does_not_move() {
        let part = RegionPart { len: Bytes::mib(2), locality: HERE };
        let region = allocate(Bytes::mib(2), &[part]).unwrap();
        let placements = region.placements();
        assert!(matches!(placements[..], [Placement::Verified { .. }]), "{placements:?}");
        region.move_near(NumaNode(0)).unwrap();
        assert_eq!(region.placements(), placements);
        region.placement_now().unwrap();
    }

    #[test]
    fn a_part_on_a_node_that_is_not_there_is_refused() {
        let part = RegionPart { len: Bytes::mib(1), locality: Locality::Numa(NumaNode(900)) };
        let error = allocate(Bytes::mib(2), &[part]).unwrap_err();
        assert!(matches!(error, AllocateError::AbsentNode { node: NumaNode(900) }), "{error}");
    }

    #[test]
    fn parts_that_are_longer_than_the_whole_are_refused() {
        let part = RegionPart { len: Bytes::mib(3), locality: HERE };
        let error = allocate(Bytes::mib(2), &[part]).unwrap_err();
        assert!(matches!(error, AllocateError::Outside { .. }), "{error}");
    }
}
