//! A chunk of memory that the agent lends, given back when the last of its loan is gone.

use std::sync::Arc;

use tierfeed_handoff::{Grant, GrantId, MemoryClient};
use tierfeed_numa_memory::View;

/// A chunk and its share of the loan. Fields drop in order: unmapped first, then given back.
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

/// What the agent counts as used.
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
