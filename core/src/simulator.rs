//! simulator.
