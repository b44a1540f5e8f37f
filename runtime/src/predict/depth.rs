//! The least staging depth by the latency and bandwidth of the cold store.

use tierfeed_core::{
    fleet::depth::IN_TIME,
    latency_quantiles::LatencyQuantiles,
    session::{
        Form,
        staging_depth::{self, DEPTH_MAX, Depth, Link, Load, Shortfall, Transforming},
    },
    throughput::Throughput,
    units::Bytes,
};
use tierfeed_workload_analyzer::demand::Demand;

use super::{UNLIMITED, node_model::NodeModel};

/// The least staging depth with which fully cold batches are in time, as in the first epoch; `None` if the
/// step time or the speed of the cold store is not known.
///
/// Latency and the time of a transform are taken as constant: with a wider distribution more depth is needed.
#[must_use]
pub fn least(demand: &Demand, site: &NodeModel) -> Option<Result<Depth, Shortfall>> {
    let step_time = demand.step_time.filter(|_| site.cold != UNLIMITED)?;
    let throughput = Throughput::constant(site.cold.bandwidth);
    let latency = LatencyQuantiles::constant(site.cold.latency);
    let samples = demand.batch_samples.saturating_mul(demand.ranks_per_node);
    let load = Load {
        samples,
        reads: samples,
        read_len: Bytes(demand.batch_mean.0 / u64::from(demand.batch_samples.max(1))),
        step_time,
    };
    let link = Link { throughput: &throughput, latency: &latency, threads: site.cold_threads() };
    let deepest = staging_depth::deepest(site.arena(), demand.batch_mean).clamp(1, DEPTH_MAX);
    let transform = site.transform_costs().zip(site.transform_threads());
    let time = transform.map(|(costs, threads)| {
        (threads, LatencyQuantiles::constant(costs.mean(Form::Stored, load.read_len)))
    });
    let transforming =
        time.as_ref().map(|(threads, time)| Transforming { threads: *threads, time });
    Some(staging_depth::least(&load, &link, transforming.as_ref(), IN_TIME, deepest))
}
