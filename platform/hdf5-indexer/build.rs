//! Tells the crate whether libhdf5 can iterate over all chunks (since 1.14.0).

use std::env;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(goes_through_chunks)");
    println!("cargo::rerun-if-changed=build.rs");
    // Set by hdf5-metno-sys, from the headers it was built with.
    if env::var_os("DEP_HDF5_VERSION_1_14_0").is_some() {
        println!("cargo::rustc-cfg=goes_through_chunks");
    }
}
