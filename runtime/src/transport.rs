//! Connections between processes: sockets, TLS, the token of a job, limits for untrusted peers.

pub(crate) mod bounded_tasks;
pub(crate) mod keep_alive;
pub mod local_socket;
pub mod mutual_tls;
pub mod token;
