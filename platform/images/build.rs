//! Compiles the shim around libjpeg-turbo, which the crate `turbojpeg-sys` builds and links.

use std::env;

#[expect(clippy::disallowed_methods, reason = "cargo tells build scripts by the environment")]
fn main() {
    println!("cargo::rerun-if-changed=src/jpeg/shim.c");
    let headers = env::var("DEP_TURBOJPEG_INCLUDE").expect("turbojpeg-sys tells its headers");
    let mut shim = cc::Build::new();
    shim.file("src/jpeg/shim.c").includes(headers.split(',')).warnings(true);
    // A debug build decodes as quickly as another.
    shim.opt_level(3).compile("tierfeed_images_jpeg");
}
