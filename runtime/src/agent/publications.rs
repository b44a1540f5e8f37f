//! Writes published orders into files beside the loop, one after the other, because the run directory may
//! be slow or hang.

use std::sync::Arc;

use tierfeed_core::{
    id::{Epoch, NodeId, Rank, SampleId},
    order::{Shuffle, Spec},
};
use tokio::sync::Semaphore;

use super::published::PublishedOrders;
use crate::run_dir::beside::WritesBeside;

#[derive(Debug, Clone)]
pub(super) struct Publication {
    pub(super) rank: Rank,
    pub(super) epoch: Epoch,
    pub(super) samples: Arc<Vec<SampleId>>,
}

#[derive(Debug)]
pub(super) struct Publications {
    orders: PublishedOrders,
    order: Spec,
    node: NodeId,
    writes: WritesBeside,
    /// Room for samples that wait to be written, four bytes each.
    room: Arc<Semaphore>,
}

impl Publications {
    /// Two epochs of the node may wait. Must be called within a tokio runtime.
    pub(super) fn new(orders: PublishedOrders, order: Spec, node: NodeId) -> Self {
        let ranks = order.world.ranks_per_node as usize;
        let room = Arc::new(Semaphore::new(2 * ranks * order.samples_per_rank() as usize));
        Self { orders, order, node, writes: WritesBeside::start(), room }
    }

    /// Writes an order as soon as those before it are written; a later one of the same rank and epoch replaces it.
    pub(super) fn keep(&self, Publication { rank, epoch, samples }: Publication) {
        let len = u32::try_from(samples.len()).unwrap_or(u32::MAX);
        let Ok(taken) = Arc::clone(&self.room).try_acquire_many_owned(len) else {
            tracing::warn!(
                rank = rank.0,
                epoch = epoch.0,
                "the run directory is too slow for published orders; the report lacks one"
            );
            return;
        };
        let (orders, order, node) = (self.orders.clone(), self.order, self.node);
        let lost = "a published order is not kept; the report lacks it";
        self.writes.give(self.orders.file(rank, epoch), lost, move |_| {
            let _taken = taken;
            if is_possible(&order, node, rank, epoch, &samples) {
                orders.keep(rank, epoch, &samples)?;
            }
            Ok(())
        });
    }

    /// The orders once all are written.
    pub(super) async fn end(self) -> PublishedOrders {
        self.writes.end().await;
        self.orders
    }
}

/// Whether a trainer of this node may publish such an order; the session applies the same rule.
fn is_possible(order: &Spec, node: NodeId, rank: Rank, epoch: Epoch, samples: &[SampleId]) -> bool {
    order.shuffle == Shuffle::Published
        && epoch.0 < order.epochs
        && order.world.ranks_of(node).any(|other| other == rank)
        && samples.len() <= order.samples_per_rank() as usize
        && samples.iter().all(|sample| sample.0 < order.samples)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use tierfeed_core::order::{FurtherDatasets, Position, World};

    use super::*;
    use crate::observe::report::Published as _;

    /// A node with nine ranks that read a sample in each of three epochs; 18 samples may wait.
    fn publications(folder: PathBuf) -> Publications {
        let order = Spec {
            samples: 9,
            shuffle: Shuffle::Published,
            seed: 0,
            epochs: 3,
            drop_last: false,
            batch_size: 1,
            world: World { nodes: 1, ranks_per_node: 9 },
            start: Position::START,
            further: FurtherDatasets::NONE,
        };
        Publications::new(PublishedOrders::new(folder), order, NodeId(0))
    }

    fn publication(epoch: u32, rank: u32, sample: u32) -> Publication {
        let samples = Arc::new(vec![SampleId(sample)]);
        Publication { rank: Rank(rank), epoch: Epoch(epoch), samples }
    }

    #[tokio::test]
    async fn the_last_order_that_a_rank_published_is_kept_if_it_can_be_one() {
        let folder = tempfile::tempdir().unwrap();
        let publications = publications(folder.path().join("published"));
        for (rank, sample) in [(0, 1), (1, 3), (1, 4), (0, 2), (2, 9)] {
            publications.keep(publication(0, rank, sample));
        }
        let orders = publications.end().await;
        assert_eq!(orders.samples(Rank(0), Epoch(0)), Some(vec![SampleId(2)]));
        assert_eq!(orders.samples(Rank(1), Epoch(0)), Some(vec![SampleId(4)]));
        assert_eq!(orders.samples(Rank(2), Epoch(0)), None, "there is no sample 9");
    }

    #[tokio::test]
    async fn a_run_directory_that_does_not_answer_delays_nothing_and_holds_a_bounded_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("published");
        std::fs::create_dir(&path).unwrap();
        // Opening a pipe for writing blocks until it has a reader.
        let pipe = path.join("rank0-epoch0");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let publications = publications(path);
        for (epoch, rank) in (0..3).flat_map(|epoch| (0..9).map(move |rank| (epoch, rank))) {
            publications.keep(publication(epoch, rank, rank));
        }
        assert_eq!(publications.room.available_permits(), 0);
        let reader = std::thread::spawn(move || std::fs::read(pipe).unwrap());
        let orders = publications.end().await;
        assert_eq!(reader.join().unwrap(), [0, 0, 0, 0]);
        assert_eq!(orders.samples(Rank(8), Epoch(1)), Some(vec![SampleId(8)]));
        assert_eq!(orders.samples(Rank(0), Epoch(2)), None);
    }
}
