//! The benches of `tierfeed-bench`: both sides in one run on the same machine, with the ratio.

#![forbid(unsafe_code)]
#![expect(
    clippy::doc_markdown,
    reason = "docs of options are printed in terminals, without Markdown"
)]

pub mod agents;
pub mod copy;
pub mod decode;
pub mod end_to_end;
pub mod frameworks;
pub mod handoff;
pub mod hogged;
pub mod import;
pub mod index;
pub mod io;
pub mod no_harm;
pub mod objects;
pub mod peers;
pub mod peers_transport;
pub mod phases;
pub mod policies;
pub mod reader;
pub mod tiers_accuracy;
pub mod tiers_contended;
pub mod transforms;

mod cpu_time;
mod fio;
mod manager;
mod processes;
mod runs;
