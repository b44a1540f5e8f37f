//! The whole way with real processes where the CXL tier is a node of its own.
//!
//! `make test-numa` runs this in each of the machines of `verification/numa-machine`, one test at a time.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

mod direct;
mod doctor;
mod expansion;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "../end_to_end/fixture.rs"]
mod fixture;
mod full;
#[path = "../../../verification/numa-machine/machine.rs"]
mod machine;
mod sockets;
mod training;
