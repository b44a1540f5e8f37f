//! Which samples stay in the tiers of a node, where they lie there, and what it costs to keep them.
//!
//! A [`policy`] sees the [`future_accesses`] of the node and writes [`residency`]: which sample
//! lies in which tier. The [`cache`] gives every resident sample its place in chunks. [`replay`]
//! runs a policy without time. A [`partition`] divides the samples among nodes that share their tiers.

pub mod cache;
pub mod form;
pub mod future_accesses;
pub mod in_place;
pub mod partition;
pub mod policy;
pub mod replay;
pub mod residency;
pub mod wear;
