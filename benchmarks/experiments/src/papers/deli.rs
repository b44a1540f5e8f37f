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
    Repeat { name: rates::NAME, runs: rates::runs, draw: rates::figure, extent: Extent::Quick },
    Repeat {
        name: loading::NAME,
        runs: loading::runs,
        draw: loading::figure,
        extent: Extent::Quick,
    },
    Repeat {
        name: caching::LINEAR,
        runs: caching::runs,
        draw: caching::linear,
        extent: Extent::Full,
    },
    Repeat {
        name: caching::SIZES,
        runs: caching::runs,
        draw: caching::sizes,
        extent: Extent::Full,
    },
    Repeat {
        name: fetching::FETCH_SIZE,
        runs: fetching::fetch_size_runs,
        draw: fetching::fetch_size,
        extent: Extent::Full,
    },
    Repeat {
        name: fetching::THRESHOLD,
        runs: fetching::threshold_runs,
        draw: fetching::threshold,
        extent: Extent::Full,
    },
    Repeat {
        name: fetching::FIFTY_FIFTY_NAME,
        runs: fetching::fifty_fifty_runs,
        draw: fetching::fifty_fifty,
        extent: Extent::Full,
    },
    Repeat { name: cost::NAME, runs: loading::runs, draw: cost::figure, extent: Extent::Quick },
];

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
