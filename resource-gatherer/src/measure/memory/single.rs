//! Takes one figure of memory, for a comparison with another program or with itself under load.
//!
//! Buffers, kernels, clocks and statistics are those of the probe, so what holds for one figure taken
//! here holds for the report. Nothing of the rest of the probe is done: no knee of the caches is looked
//! for, no frequency is watched, so choose the buffer and look at the interval.

use std::{panic::resume_unwind, sync::atomic::AtomicBool, thread};

use tierfeed_core::{
    id::NumaNode,
    tier::Locality,
    units::{Bytes, Nanoseconds},
};
use tierfeed_numa_memory::kernels::Chain;

use super::{
    MemoryError,
    arrays::{Arrays, BLOCK},
    check_allowed,
    latency::{self, Walk, Walks},
    locality, on_first_core,
    team::{Pass, with_team},
};
use crate::{
    figures::{Traffic, estimate::Estimate},
    inventory::Inventory,
    measure::{
        allotment::Allotment,
        cell::Cell,
        clock::GuestClock,
        sampler::{Workload, fill},
    },
    sysroot::{ReadError, Sysroot},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub initiator: u32,
    pub target: u32,
    pub subject: Subject,
    /// The length of each buffer, at least 2 MiB: one for a latency, three for a bandwidth.
    pub buffer: Bytes,
    pub sample: Nanoseconds,
    /// The longest that all samples may take together.
    pub time: Nanoseconds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// A dependent load, TLB-local, on huge pages; in nanoseconds.
    IdleLatency,
    /// Bytes per second as STREAM counts them, reads and writes together.
    Bandwidth {
        traffic: Traffic,
        /// Each on a core of its own.
        threads: usize,
    },
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SingleError {
    #[error(transparent)]
    Inventory(#[from] ReadError),
    #[error("this host has no NUMA node {0}")]
    NoNode(u32),
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// Takes the figure, on threads of its own.
///
/// # Errors
///
/// A node is not there, may not be used, or is too full; or more threads were asked for than there are
/// cores.
pub fn estimate(request: &Request) -> Result<Estimate, SingleError> {
    let inventory = Inventory::read(Sysroot::live())?;
    thread::scope(|scope| {
        let thread = scope.spawn(|| estimate_here(&inventory, request));
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Takes the figure on the calling thread, whose affinity it changes.
pub(crate) fn estimate_here(
    inventory: &Inventory,
    request: &Request,
) -> Result<Estimate, SingleError> {
    let find = |id: u32| {
        let node = inventory.nodes.iter().find(|node| node.id == id);
        node.ok_or(SingleError::NoNode(id))
    };
    let (initiator, target) = (find(request.initiator)?, find(request.target)?);
    check_allowed(inventory, target)?;
    let (cores, mut clock) = on_first_core(initiator, inventory, Sysroot::live())?;
    let place = locality(inventory, target);
    let found = match request.subject {
        Subject::IdleLatency => {
            walk(latency::local_chain(place, request.buffer)?.0, request, &mut clock)
        }
        Subject::Bandwidth { traffic, threads } => {
            let pass = Pass { traffic, threads, blocks: 0 };
            stream(pass, request, place, &cores, &mut clock)
        }
    };
    Ok(found?)
}

/// Fills one cell, which has a time of its own.
fn filled<W: Workload>(
    clock: &mut GuestClock,
    workload: &mut W,
    cell: (W::Kernel, Cell),
) -> Result<Estimate, MemoryError> {
    let stop = AtomicBool::new(false);
    let allotment = Allotment::new(Nanoseconds(0), Nanoseconds(u64::MAX), &stop);
    let mut cells = [cell];
    fill(clock, workload, allotment, 0, &mut cells);
    cells[0].1.estimate().ok_or(MemoryError::OutOfTime)
}

fn walk(chain: Chain, request: &Request, clock: &mut GuestClock) -> Result<Estimate, MemoryError> {
    let mut walks = Walks::new(chain, None, clock, request.sample);
    let cell = latency::cells(&[Walk::Local], request.time).remove(0);
    let time = filled(clock, &mut walks, cell)?;
    Ok(walks.latency(Walk::Local, time))
}

fn stream(
    pass: Pass,
    request: &Request,
    place: Locality,
    cores: &[usize],
    clock: &mut GuestClock,
) -> Result<Estimate, MemoryError> {
    if pass.threads == 0 || pass.threads > cores.len() {
        return Err(MemoryError::TooManyThreads(pass.threads, cores.len()));
    }
    let len = Bytes((request.buffer.0 / BLOCK.0).max(1) * BLOCK.0);
    let mut arrays = Arrays::allocate(place, len)?;
    let node = NumaNode(request.initiator);
    with_team(&mut arrays, node, &cores[..pass.threads], |team| {
        let pass = team.calibrated(pass, request.sample);
        let time = filled(clock, team, (pass, pass.cell(request.time)))?;
        Ok(pass.rate(time))
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(subject: Subject) -> Request {
        Request {
            initiator: 0,
            target: 0,
            subject,
            buffer: Bytes::mib(8),
            sample: Nanoseconds(300_000),
            time: Nanoseconds(10_000_000),
        }
    }

    #[test]
    fn one_figure_comes_with_its_interval_and_its_best() {
        let copy = Subject::Bandwidth { traffic: Traffic::CopyNonTemporal, threads: 1 };
        let latency = estimate(&request(Subject::IdleLatency)).unwrap();
        assert!(latency.best > 0.0 && latency.best <= latency.low && latency.samples > 0);
        let rate = estimate(&request(copy)).unwrap();
        assert!(rate.low > 0.0 && rate.low <= rate.median && rate.median <= rate.best);
    }

    #[test]
    fn more_threads_than_cores_are_refused() {
        let many = Subject::Bandwidth { traffic: Traffic::Read, threads: 100_000 };
        let error = estimate(&request(many)).unwrap_err();
        assert!(error.to_string().contains("asked for 100000 threads"), "{error}");
        let none = Subject::Bandwidth { traffic: Traffic::Read, threads: 0 };
        assert!(estimate(&request(none)).is_err());
    }

    #[test]
    fn a_node_that_is_not_there_is_named() {
        let request = Request { target: 4095, ..request(Subject::IdleLatency) };
        assert!(matches!(estimate(&request), Err(SingleError::NoNode(4095))));
    }
}
