//! Arguments of `tierfeed hog`.

use clap::Args;
use tierfeed_core::units::{Bytes, Nanoseconds};
use tierfeed_resource_gatherer::hog::Profile;

#[derive(Debug, Args)]
pub(crate) struct Hog {
    #[command(flatten)]
    pub(crate) goal: HogGoal,
    /// Only memory of this NUMA node.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) numa_node: Option<u32>,
    /// How long, from the moment that it holds what it should; a profile starts again until then
    /// [default: until it is stopped, or the profile or the command ends].
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) duration: Option<Nanoseconds>,
    /// How long it may take until it holds what it should; then it fails.
    #[arg(long, value_name = "TIME", default_value = "10 min")]
    pub(crate) wait: Nanoseconds,
    /// Prints what was held as JSON at the end; what the command prints goes to standard error then.
    #[arg(long)]
    pub(crate) json: bool,
    /// A command to run while memory is held; it starts when all of it is.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// What a hog holds. Sizes are rounded up to 2 MiB.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct HogGoal {
    /// Holds this much memory; gives back what others need, so that 5 % stay free.
    #[arg(long, value_name = "SIZE")]
    pub(crate) take: Option<Bytes>,
    /// Holds all but this much memory, and follows what others take and give back; at least 1 % stay
    /// free.
    #[arg(long, value_name = "SIZE")]
    pub(crate) leave: Option<Bytes>,
    /// Holds one amount after the other, such as 30s:4GiB,60s:8GiB,30s:leave:1GiB.
    #[arg(long, value_name = "STEPS")]
    pub(crate) profile: Option<Profile>,
}
