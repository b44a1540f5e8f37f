//! Arguments of the parts of a job one by one: its manager, the agent of a node, and how to reach and observe them.

#![expect(
    clippy::doc_markdown,
    reason = "these comments are printed in terminals, without Markdown"
)]

use std::path::PathBuf;

use clap::Args;
use tierfeed_runtime::rpc::client::Address;

#[derive(Debug, Args)]
pub(crate) struct Manager {
    /// The job file.
    pub(crate) job: PathBuf,
    /// Where to listen, as HOST:PORT; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: String,
    /// Where token, address and index go [default: .tierfeed/runs/JOB-TIME].
    #[arg(long, value_name = "DIR", env = "TIERFEED_RUN_DIR")]
    pub(crate) run_dir: Option<PathBuf>,
    /// The file that holds the token of the job, or gets a new one [default: token in the run
    /// directory].
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) metrics: Metrics,
}

#[derive(Debug, Args)]
pub(crate) struct Agent {
    /// Where the manager is, as HOST:PORT or unix:PATH.
    #[arg(long, value_name = "ADDRESS", env = "TIERFEED_MANAGER")]
    pub(crate) manager: Address,
    /// The file with the token of the job [default: $TIERFEED_TOKEN, else token in the run directory].
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The number of this node [default: $TIERFEED_NODE, else as srun, mpirun or Kubernetes says; 0 in a
    /// job of one node].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) node: Option<u32>,
    /// Where sockets and the report of this node go; the same after a restart [default: in a job of Slurm
    /// node-NUMBER below /tmp/tierfeed-UID/slurm-JOB, else .tierfeed/node-NUMBER, or .tierfeed/agent where
    /// no launcher gives a number].
    #[arg(long, value_name = "DIR", env = "TIERFEED_RUN_DIR")]
    pub(crate) run_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) observe: Observe,
}

/// How to reach the manager of a job.
#[derive(Debug, Clone, Args)]
pub(crate) struct Reach {
    /// Where the manager is, as HOST:PORT or unix:PATH [default: as the run directory says].
    #[arg(long, value_name = "ADDRESS", env = "TIERFEED_MANAGER")]
    pub(crate) manager: Option<Address>,
    /// The file with the token of the job [default: $TIERFEED_TOKEN, else token in the run directory].
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The run directory [default: the newest live one below .tierfeed].
    #[arg(long, value_name = "DIR", env = "TIERFEED_RUN_DIR")]
    pub(crate) run_dir: Option<PathBuf>,
}

/// How an agent is watched.
#[derive(Debug, Args)]
pub(crate) struct Observe {
    #[command(flatten)]
    pub(crate) metrics: Metrics,
    /// Writes a trace of the run for Perfetto into this file when it ends.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
}

/// Metrics on the network.
#[derive(Debug, Args)]
pub(crate) struct Metrics {
    /// Serves metrics for Prometheus there, as HOST:PORT beside the socket in the run directory; port 0
    /// takes a free one. Those who ask there show a token.
    #[arg(long = "metrics", value_name = "ADDRESS")]
    pub(crate) metrics_address: Option<String>,
    /// The file with the token of those who ask for metrics, such as one for all jobs of a site [default:
    /// metrics.token in the run directory, written at the start].
    #[arg(long, value_name = "FILE", requires = "metrics_address")]
    pub(crate) metrics_token_file: Option<PathBuf>,
}
