//! Measures the memory and storage of a node and sorts it into tiers.
//!
//! [`inventory`] reads what is there, `measure` measures how fast it is, [`classify`] sorts it, [`report`]
//! keeps the result; `figures` are the values that they pass on, and [`mod@probe`] runs them all.
//! [`calibrate`] takes the few figures that a job needs where no report has them, and [`freshness`] says
//! whether those of an earlier one still hold.
//! [`available`] watches what is left while a job runs, and [`hog`] takes it away on purpose; [`doctor`] says
//! what of a node cannot be used, and the fix; [`training_process`] where a trainer runs. Jobs, policies and
//! budgets are unknown here.

#![forbid(unsafe_code)]

pub mod available;
pub mod calibrate;
pub mod classify;
pub mod doctor;
mod figures;
pub mod freshness;
pub mod hog;
pub mod inventory;
mod measure;
pub mod probe;
pub mod report;
pub mod sysroot;
#[cfg(test)]
mod tests_support;
pub mod training_process;

pub use self::{
    available::{Available, DiskSpace, Watch},
    hog::Hog,
    inventory::Inventory,
    probe::{Budget, EmulatedTier, ProbeError, ProbeSettings, Progress, probe},
    report::Report,
    sysroot::{ReadError, Sysroot},
};
