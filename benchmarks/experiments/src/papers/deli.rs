//! DELI: small samples in a bucket of its latency and rate, read by one of three nodes.
//!
//! The bucket serves a request as the paper measured it: as late that one thread reads 49.80 kB/s, and no faster than
//! 281.73 kB/s together, which sixteen threads got. Samples have 784 B, the pixels of an image of MNIST. What counts
//! is time on the bucket, so epochs are 25 times shorter than in the paper: 560 samples of each node. Batches, caches,
//! fetches and thresholds are in the same proportion to an epoch, and steps in the same proportion to what one thread
//! needs for an epoch.

mod caching;
mod cost;
mod fetching;
mod loading;
mod measured;
mod node;
mod rates;
mod requests;
mod setting;

use std::collections::BTreeSet;

use super::repetition::Repeated;
use crate::{
    figure::{Figure, Paper},
    stage::{Extent, Settings},
};

use self::{measured::Measured, node::on_node, setting::Run};

struct Repeat {
    name: &'static str,
    runs: fn() -> Vec<Run>,
    draw: fn(&Measured) -> Figure,
    /// The least extent that includes it.
    extent: Extent,
}

const FIGURES: [Repeat; 8] = [
    of(Extent::Quick, rates::NAME, rates::runs, rates::figure),
    of(Extent::Quick, loading::NAME, loading::runs, loading::figure),
    of(Extent::Full, caching::LINEAR, caching::runs, caching::linear),
    of(Extent::Full, caching::SIZES, caching::runs, caching::sizes),
    of(Extent::Full, fetching::FETCH_SIZE, fetching::fetch_size_runs, fetching::fetch_size),
    of(Extent::Full, fetching::THRESHOLD, fetching::threshold_runs, fetching::threshold),
    of(Extent::Full, fetching::FIFTY_FIFTY_NAME, fetching::fifty_fifty_runs, fetching::fifty_fifty),
    of(Extent::Quick, cost::NAME, loading::runs, cost::figure),
];

const fn of(
    extent: Extent,
    name: &'static str,
    runs: fn() -> Vec<Run>,
    draw: fn(&Measured) -> Figure,
) -> Repeat {
    Repeat { name, runs, draw, extent }
}

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FIGURES.iter().map(|it| it.name)
}

pub(super) fn run(settings: &Settings, is_wanted: &dyn Fn(&str) -> bool, repeated: &mut Repeated) {
    let is_in = |it: &&Repeat| settings.extent == Extent::Full || it.extent == Extent::Quick;
    let wanted: Vec<_> = FIGURES.iter().filter(is_in).filter(|it| is_wanted(it.name)).collect();
    if wanted.is_empty() {
        return;
    }
    let runs: BTreeSet<Run> = wanted.iter().flat_map(|it| (it.runs)()).collect();
    let made = on_node(settings, |node| {
        let measured = node.measure(&runs)?;
        Ok(wanted.iter().map(|it| (it.draw)(&measured)).collect())
    });
    repeated.add(&wanted.iter().map(|it| it.name).collect::<Vec<_>>(), made);
}

fn blank(measured: &Measured, name: &str, number: &str, title: &str) -> Figure {
    Figure {
        setting: Measured::setting(),
        emulated: measured.emulated(),
        ..Figure::named(Paper::Deli, name, number, title)
    }
}
