//! A chunk of memory that the agent lends; all chunks of a loan go back together, with the last of them.

use std::sync::Arc;

use tierfeed_handoff::{Grant, GrantId, MemoryClient};
use tierfeed_numa_memory::View;

/// A chunk and a reference to its loan. Fields drop in order: unmapped first, then given back.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) memory: View,
    _loan: Arc<Loan>,
}

impl Chunk {
    pub(crate) fn new(memory: View, loan: &Arc<Loan>) -> Self {
        Self { memory, _loan: Arc::clone(loan) }
    }
}

/// Memory that the agent counts as used until this is dropped.
#[derive(Debug)]
pub(crate) struct Loan {
    client: MemoryClient,
    id: GrantId,
}

impl Loan {
    pub(crate) fn new(client: MemoryClient, id: GrantId) -> Self {
        Self { client, id }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        // The only failures: the agent is gone, or this is a forked child and the loan is the parent's.
        let _ = self.client.free(Grant { id: self.id, chunks: Vec::new() });
    }
}
