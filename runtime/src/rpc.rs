//! Calls between manager, agents and commands: what is said, as what bytes, and the client.

pub mod call;
pub mod client;
pub(crate) mod codec;
