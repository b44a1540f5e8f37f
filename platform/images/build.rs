//! Compiles the shim around libjpeg-turbo and links that library, statically where its archive is there.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=src/jpeg/shim.c");
    let library = pkg_config::Config::new()
        .cargo_metadata(false)
        .probe("libjpeg")
        .unwrap_or_else(|error| panic!("libjpeg-turbo is needed (Debian: libjpeg-dev): {error}"));
    let mut shim = cc::Build::new();
    shim.file("src/jpeg/shim.c").includes(&library.include_paths).warnings(true);
    // A debug build decodes as quickly as another.
    shim.opt_level(3).compile("tierfeed_images_jpeg");

    let libdir = pkg_config::get_variable("libjpeg", "libdir").unwrap_or_default();
    println!("cargo::rustc-link-search=native={libdir}");
    let has_archive = Path::new(&libdir).join("libjpeg.a").exists();
    let kind = if has_archive { "static" } else { "dylib" };
    println!("cargo::rustc-link-lib={kind}=jpeg");
}
