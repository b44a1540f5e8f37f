//! `tierfeed-hdf5-indexer FILE DATASET` prints the positions of the samples of an HDF5 dataset, as
//! JSON.
//!
//! It is a separate program because it links libhdf5: tierfeed builds and runs without that
//! library, and a file that crashes it affects no other process: the program drops all rights
//! except reading that file before it opens it (`confine.rs`). tierfeed starts this program for
//! each object, and checks its output (`dataset/src/format/hdf5.rs`).
//!
//! Exit codes: 0 done, 1 the dataset cannot be read by ranges, 2 the arguments were wrong. Messages
//! go to stderr, and only the document to stdout.

#![forbid(unsafe_code)]

mod confine;
mod dtype;
mod error;
mod index;

use std::{
    env,
    io::{self, Write as _},
    process::ExitCode,
};

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let [file, dataset] = arguments.as_slice() else {
        return fail(2, "two arguments are needed: FILE DATASET");
    };
    let Some(dataset) = dataset.to_str() else {
        return fail(2, "the path of the dataset must be UTF-8");
    };
    if let Err(error) = confine::to_reading(file.as_ref()) {
        return fail(1, &error.to_string());
    }
    let index = match index::read(file.as_ref(), dataset) {
        Ok(index) => index,
        Err(error) => return fail(1, &error.to_string()),
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = serde_json::to_writer(&mut out, &index).map_err(io::Error::from);
    match written.and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(1, &format!("cannot write to stdout: {error}")),
    }
}

fn fail(code: u8, message: &str) -> ExitCode {
    // If stderr is closed too, the message is lost.
    let _ = writeln!(io::stderr(), "tierfeed-hdf5-indexer: {message}");
    ExitCode::from(code)
}
