//! The listings and objects of the stores, on a real file system and on a real S3 server.

// Always true here; it tells clippy that helpers are tests too.
#![cfg(test)]

#[cfg(feature = "object-store")]
mod bucket;
mod files;
mod listed;
