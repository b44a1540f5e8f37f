//! Processes that experiments start from this program, and the program of fault injection.

use std::{
    ffi::OsString, io, net::SocketAddr, os::unix::process::CommandExt as _, path::PathBuf,
    process::Command,
};

use anyhow::Context as _;
use clap::Args;
use tierfeed_core::units::{Bytes, Nanoseconds};
use tierfeed_harness::{failure::Failure, leftovers, programs};

use crate::peers_transport;

/// Arguments of `tierfeed-chaos`, which it parses itself.
#[derive(Debug, Args)]
pub(crate) struct ForwardedArguments {
    /// As tierfeed-chaos takes them; --help lists them.
    #[arg(value_name = "OPTIONS", trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<OsString>,
}

impl ForwardedArguments {
    /// Replaces this process by `tierfeed-chaos`, whose help names it `name`. So output, signals and exit code
    /// are those of one process.
    pub(crate) fn exec(&self, name: &str, command: Option<&str>) -> Result<(), Failure> {
        let program = programs::beside("tierfeed-chaos")?;
        let mut chaos = Command::new(&program);
        let error = chaos.arg0(name).args(command).args(&self.options).exec();
        Err(anyhow::Error::new(error).context(program.display().to_string()).into())
    }
}

#[derive(Debug, Args)]
pub(crate) struct PeersServe {
    /// The length of a sample.
    #[arg(long, value_name = "SIZE")]
    sample: Bytes,
}

impl PeersServe {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        Ok(peers_transport::serve(self.sample)?)
    }
}

#[derive(Debug, Args)]
pub(crate) struct PeersRelay {
    /// Where connections go on to.
    #[arg(long, value_name = "ADDRESS")]
    to: SocketAddr,
    /// What is added to a round trip.
    #[arg(long, value_name = "TIME")]
    delay: Nanoseconds,
}

impl PeersRelay {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        Ok(peers_transport::relay(self.to, self.delay)?)
    }
}

#[derive(Debug, Args)]
pub(crate) struct RemoveLeftovers {
    /// The process of the experiment.
    #[arg(long, value_name = "PID")]
    process: u32,
    /// Where it made its files.
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,
}

impl RemoveLeftovers {
    /// Waits for the end of the input, which is that of the experiment.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        io::copy(&mut io::stdin(), &mut io::sink()).context("cannot read the input")?;
        leftovers::remove(self.process, &self.folders);
        Ok(())
    }
}
