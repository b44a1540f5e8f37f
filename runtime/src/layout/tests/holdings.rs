use std::num::{NonZeroU32, NonZeroUsize};

use tierfeed_core::{
    budget::{Free, Percent, Pool, Reading, TierReading},
    fleet::{
        Origin,
        schedule::{Figures, LinkWindows},
    },
    id::{NodeId, TierId},
    order::{FurtherDatasets, Position, Shuffle, Spec, World},
    retention::policy,
    session::{LookAhead, OnError, Settings, Windows},
    tier::{Kind, Locality},
    units::Nanoseconds,
};
use tierfeed_prefetcher::tier::{Backing, TierSettings};

use super::super::*;

const CHUNK: Bytes = Bytes::mib(1);

fn place(kind: Kind, chunks: u64, share: Option<u8>) -> TierLayout {
    TierLayout {
        settings: TierSettings {
            kind,
            backing: Backing::Memory(Locality::Anywhere),
            emulated: None,
            copy_threads: NonZeroUsize::MIN,
            cpus: Vec::new(),
        },
        budget: Bytes::mib(chunks),
        cache: Bytes::mib(chunks),
        pool: MEMORY,
        share: share.and_then(Percent::new),
        origin: Origin::Real,
        direct: None,
        writers: None,
        standing: Standing::default(),
    }
}

/// Two ranks, for each of which four batches of 1 MiB are staged; a dataset of 20 MiB.
fn limits(tiers: Vec<TierLayout>, useful: &[u64]) -> Holdings {
    let layout = Layout {
        staged: Staged {
            arena: Bytes::mib(4),
            depth: 4,
            depth_max: 4,
            windows: LinkWindows { cold: 1, cold_max: 1, cold_threads: 1, tier: 1 },
            first_room: Bytes(0),
            transforming: None,
        },
        staging: Vec::new(),
        tiers,
        left_out: Vec::new(),
        chunk: CHUNK,
        cold: Figures::none(),
    };
    let window = NonZeroU32::MIN;
    let order = Spec {
        samples: 20,
        shuffle: Shuffle::Sequential,
        seed: 0,
        epochs: 1,
        drop_last: false,
        batch_size: 1,
        world: World { nodes: 1, ranks_per_node: 2 },
        start: Position::START,
        further: FurtherDatasets::NONE,
    };
    let useful = useful.iter().map(|mib| Bytes::mib(*mib)).collect();
    let settings = Settings {
        order,
        node: NodeId(0),
        sizes: [Bytes::mib(1); 20].into(),
        tiers: Vec::new(),
        chunk: CHUNK,
        policy: policy::Kind::Gap,
        staged_batches: 4,
        staged_batches_max: 0,
        arena: layout.staged.arena,
        on_error: OnError::Fail,
        windows: Windows { cold: window, tier: window, ..Windows::default() },
        aim: policy::Aim { useful, ..policy::Aim::default() },
        in_place_tiers: Vec::new(),
        transform: None,
        first_room: Bytes(0),
        look_ahead: LookAhead::Off,
    };
    layout.holdings(&settings)
}

/// A reading in which the tiers hold `held` MiB each and `free` MiB are free.
fn reading(second: u64, held: &[u64], free: u64) -> Reading {
    let tier = |held: &u64| {
        let chunks_max = u32::try_from(*held).unwrap();
        TierReading { held: Bytes::mib(*held), chunks_max }
    };
    let free = Free { bytes: Bytes::mib(free), kept: Bytes::mib(100) };
    Reading {
        now: Nanoseconds(second * 1_000_000_000),
        waited: None,
        free: [(MEMORY, free), (Pool(99), free)].into(),
        tiers: held.iter().map(tier).collect(),
        staging: Bytes::mib(8),
    }
}

#[test]
fn no_tier_grows_beyond_what_the_plan_can_use() {
    for (useful, most) in [(&[][..], 22), (&[9][..], 11)] {
        let mut limits = limits(vec![place(Kind::MainMemory, 4, Some(20))], useful);
        let mut chunks = 4;
        for second in 6..40 {
            limits.read(&reading(second, &[chunks], 5_000));
            chunks = u64::from(limits.budget_chunks(TierId(0)));
        }
        assert_eq!(chunks, most);
    }
}

#[test]
fn staging_goes_down_to_two_batches_of_all_ranks() {
    let mut limits = limits(vec![place(Kind::MainMemory, 0, None)], &[]);
    limits.read(&reading(1, &[0], 99));
    assert_eq!(limits.batches(), 3, "a batch of each rank is 2 MiB");
    limits.read(&reading(2, &[0], 0));
    assert_eq!(limits.batches(), 2);
}
