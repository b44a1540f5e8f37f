//! Computing what a node reads in one epoch, as a value that any thread can run.

use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};

use super::{
    NextUses,
    positions::{self, Positions},
};
use crate::{
    id::{BatchId, Epoch, NodeId, Rank, SampleId},
    order::{NodeOrder, Spec},
};

#[derive(Debug)]
pub struct Expansion {
    pub(super) spec: Spec,
    pub(super) node: NodeId,
    pub(super) epoch: Epoch,
    pub(super) source: Source,
    pub(super) next_uses: NextUses,
}

#[derive(Debug)]
pub(super) enum Source {
    /// The job fixes it; `Some` if the order was computed before.
    Spec(Option<Arc<NodeOrder>>),
    /// Trainers published it, each rank its own.
    Published(BTreeMap<Rank, Arc<Vec<SampleId>>>),
}

#[derive(Debug)]
pub struct Expanded {
    pub(super) epoch: Epoch,
    /// `None` if trainers published it.
    pub(super) order: Option<Arc<NodeOrder>>,
    pub(super) places: Option<Positions>,
}

impl Expansion {
    /// Takes some tenths of a second for millions of samples.
    #[must_use]
    pub fn run(self) -> Expanded {
        let Self { spec, node, epoch, source, next_uses } = self;
        let source = match source {
            Source::Spec(None) => Source::Spec(spec.epoch_of(node, epoch).map(Arc::new)),
            source => source,
        };
        let places = match next_uses {
            NextUses::Unasked => None,
            NextUses::Asked => {
                Some(Positions::of(&spec, node, epoch, &|batch| source.batch(&spec, node, batch)))
            }
        };
        let order = match source {
            Source::Spec(order) => order,
            Source::Published(_) => None,
        };
        Expanded { epoch, order, places }
    }
}

impl Source {
    fn batch(&self, spec: &Spec, node: NodeId, batch: BatchId) -> &[SampleId] {
        match self {
            Self::Spec(order) => {
                let local_rank = positions::local(spec, node, batch.rank);
                let order = order.as_ref().zip(local_rank);
                order.map_or(&[][..], |(order, rank)| order.batch(rank, batch.step))
            }
            Self::Published(orders) => {
                let size = spec.batch_size as usize;
                let samples = orders.get(&batch.rank);
                let batches = samples.and_then(|it| it.chunks(size).nth(batch.step.0 as usize));
                batches.unwrap_or_default()
            }
        }
    }
}
