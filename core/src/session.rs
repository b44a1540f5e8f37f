//! The worker of one node as a sans-IO state machine.

mod command;

pub use command::{Command, Event, Fault, Now, Origin, Place, Refusal, Slot};
