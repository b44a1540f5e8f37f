//! Memory of a tier that the agent lends to the workload, in chunks that go back together with the last of them.

use tierfeed_handoff::{Grant, GrantId, MemoryClient};

/// Memory that the agent counts as used until this is dropped.
#[derive(Debug)]
pub struct Loan {
    client: MemoryClient,
    id: GrantId,
}

impl Loan {
    pub fn new(client: MemoryClient, id: GrantId) -> Self {
        Self { client, id }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        // The only failures: the agent is gone, or this is a forked child and the loan is the parent's.
        let _ = self.client.free(Grant { id: self.id, chunks: Vec::new() });
    }
}
