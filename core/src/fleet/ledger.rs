//! Counts the chunks of CXL memory that the workloads of one node hold.
//!
//! # Source
//!
//! `DeepMemoryDL`, "Allocation of CXL-based Memory": a workload's memory grows from the CXL tier in
//! chunks of 512 MiB.

use crate::{tier::Kind, units::Bytes};

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Denial {
    #[error("{asked} chunks of cxl-memory asked for, {free} are free")]
    TooFew { asked: u32, free: u32 },
    #[error("{returned} chunks came back, {lent} were lent")]
    NotLent { returned: u32, lent: u32 },
    /// The node has not registered, or another process works as this node now.
    #[error("this agent is not registered; register again")]
    Unknown,
}

/// The chunks that a node can lend, and those that it lent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ledger {
    capacity: u32,
    lent: u32,
}

impl Ledger {
    /// Holds the whole chunks of the budgets of the CXL tiers among `tiers`; none is lent.
    #[must_use]
    pub fn of(tiers: impl IntoIterator<Item = (Kind, Bytes)>, chunk: Bytes) -> Self {
        let cxl = tiers.into_iter().filter(|(kind, _)| *kind == Kind::CxlMemory);
        let chunks = cxl.map(|(_, budget)| budget.0 / chunk.0.max(1)).sum::<u64>();
        Self { capacity: u32::try_from(chunks).unwrap_or(u32::MAX), lent: 0 }
    }

    #[must_use]
    pub fn lent(&self) -> u32 {
        self.lent
    }

    /// Chunks that can be lent; the cache has to give them up.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.capacity - self.lent
    }

    /// Lends `chunks`, all or none.
    ///
    /// # Errors
    ///
    /// [`Denial::TooFew`] if fewer are free.
    pub fn lend(&mut self, chunks: u32) -> Result<(), Denial> {
        if chunks > self.free() {
            return Err(Denial::TooFew { asked: chunks, free: self.free() });
        }
        self.lent += chunks;
        Ok(())
    }

    /// Takes `chunks` back, all or none.
    ///
    /// # Errors
    ///
    /// [`Denial::NotLent`] if fewer are lent.
    pub fn take_back(&mut self, chunks: u32) -> Result<(), Denial> {
        if chunks > self.lent {
            return Err(Denial::NotLent { returned: chunks, lent: self.lent });
        }
        self.lent -= chunks;
        Ok(())
    }

    /// Sets the lent chunks to none: their connections are gone.
    pub fn clear(&mut self) {
        self.lent = 0;
    }
}
