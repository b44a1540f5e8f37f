//! What `tierfeed-bench`, its experiments and `tierfeed-chaos` share: files, child processes, the sentences
//! about promises, output and exit codes.

#![forbid(unsafe_code)]

pub mod bench;
pub mod cgroup;
pub mod clock;
pub mod environment;
pub mod failure;
pub mod files;
pub mod judgement;
pub mod leftovers;
pub mod memory_group;
pub mod output;
pub mod parallel;
pub mod programs;
pub mod s3_server;
pub mod slow_disk;
pub mod statistics;
pub mod talking;

mod text;
