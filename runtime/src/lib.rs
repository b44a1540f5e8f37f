//! Talks: the manager and the agent as processes, what they say to each other, what they report.
//!
//! Modules by layer, the highest first. A module may use those of lower layers, and no other of its own
//! unless it says so; `scripts/lint/layers.py` checks what [`observe`] and [`predict`] must not import.
//!
//! | layer | modules |
//! |---|---|
//! | processes | [`agent`], [`manager`]; [`predict`] beside them, which computes what `plan` shows |
//! | what a job uses of a node | [`layout`], [`expansion`], [`dataset`], [`run_dir`] |
//! | what a node works by | [`schedule`] |
//! | calls between processes | [`rpc`] |
//! | what is shown | [`observe`]: plain figures, filled by the layers above |
//! | connections | [`transport`] |
//! | process | [`clock`], [`shutdown`], [`whole_file`], `descriptors` |

#![forbid(unsafe_code)]

pub mod agent;
pub mod clock;
pub mod dataset;
mod descriptors;
pub mod expansion;
pub mod layout;
pub mod manager;
pub mod observe;
pub mod predict;
pub mod rpc;
pub mod run_dir;
pub mod schedule;
pub mod shutdown;
pub mod transport;
pub mod whole_file;
