//! Compiles `proto/manager.proto`; needs `protoc` (Debian: `protobuf-compiler`).

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tonic_prost_build::configure()
        .compile_protos(&["proto/manager.proto"], &["proto"])
        .map_err(Into::into)
}
