//! When the nodes feel that another one is lost or back, and which memberships follow.
//!
//! The manager ([`Members`]) hears of a change at once. Batches that are staged or on their way when it
//! happens are delivered; those that are begun afterwards feel it. Who holds what changes with the
//! next membership, which begins with the first epoch that no node has divided: a node divides the next epoch
//! when half of the current one is staged.

use alloc::{format, string::String, vec::Vec};

use super::setting::{Change, ChangeKind, Setting};
use crate::{
    fleet::members::{Members, PeerReport},
    id::{BatchId, Epoch, NodeId, Rank, Step},
    order::Spec,
    retention::partition::Membership,
    units::Bytes,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Felt {
    pub change: Change,
    /// The first step whose batches are begun after it.
    pub from: (Epoch, Step),
    /// The nodes from a later epoch on; `None` if the run has no epoch left for it.
    pub membership: Option<Membership>,
}

/// The membership with which the run begins, and the changes in order.
#[derive(Debug)]
pub(super) struct Timeline {
    pub(super) first: Option<Membership>,
    pub(super) changes: Vec<Felt>,
}

impl Timeline {
    pub(super) fn of(setting: &Setting, room: Bytes, changes: &[Change]) -> Self {
        let order = setting.order;
        let start = order.start.epoch;
        let mut members = Members::new(order);
        for node in (0..order.world.nodes).map(NodeId) {
            report(&mut members, node, 1, room, start);
        }
        let first = members.peers().memberships.last().cloned();
        let mut processes = 1;
        let felt = changes.iter().map(|change| {
            let generation = members.peers().generation;
            let position = steps_before(&order, change.epoch, change.step);
            let depth = u64::from(setting.depth.get());
            // Before the first step nothing is staged.
            let is_start = position == 0;
            let begun = if is_start { 0 } else { position + depth - 1 };
            let divided = if is_start { start } else { divided_after(&order, begun - 1) };
            // A node that answers nowhere changes nothing but that.
            let how_far =
                PeerReport { address: String::new(), room, generation, divided, links: Vec::new() };
            members.handle_report(change.node, 0, how_far);
            match change.kind {
                ChangeKind::Lost => members.handle_gone(change.node),
                ChangeKind::Back => {
                    processes += 1;
                    report(&mut members, change.node, processes, room, divided);
                }
            }
            let is_new = |it: &&Membership| it.generation > generation;
            Felt {
                change: *change,
                from: step_at(&order, begun),
                membership: members.peers().memberships.last().filter(is_new).cloned(),
            }
        });
        let changes = felt.collect();
        Self { first, changes }
    }
}

/// Reports a node to the manager, and the epoch that the nodes have divided.
fn report(members: &mut Members, node: NodeId, process: u64, room: Bytes, divided: Epoch) {
    let (address, generation) = (format!("node-{}", node.0), members.peers().generation);
    members.handle_report(
        node,
        process,
        PeerReport { address, room, generation, divided, links: Vec::new() },
    );
}

/// The number of steps of the run before this one.
fn steps_before(order: &Spec, epoch: Epoch, step: Step) -> u64 {
    let rank = Rank(0);
    order.batches_between(order.first(rank), Some(BatchId { epoch, step, rank }))
}

/// The step of the run that has `position` steps before it; beyond the end, the one after the last.
fn step_at(order: &Spec, mut position: u64) -> (Epoch, Step) {
    let first = order.first(Rank(0)).epoch;
    for epoch in (first.0..order.epochs).map(Epoch) {
        let steps = order.steps_in(epoch);
        match u32::try_from(position).ok().filter(|step| *step < steps) {
            Some(step) => return (epoch, Step(step)),
            None => position -= u64::from(steps),
        }
    }
    (Epoch(order.epochs), Step(0))
}

/// The latest epoch that is divided once a step is staged.
fn divided_after(order: &Spec, position: u64) -> Epoch {
    let (epoch, step) = step_at(order, position);
    let is_half = step.0 >= order.steps_in(epoch) / 2;
    Epoch((epoch.0 + u32::from(is_half)).min(order.epochs - 1))
}
