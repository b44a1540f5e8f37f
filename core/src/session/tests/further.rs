//! Several datasets: what is read at the end of an epoch is staged, kept and handed over like the rest.

use super::*;
use crate::order::{FurtherDataset, FurtherDatasets};

/// A job with two datasets of so many samples: one is read after each second epoch, the other after each
/// epoch.
pub(super) fn with_further(settings: Settings, samples: [u32; 2], batch_size: u32) -> Settings {
    let dataset = |samples, shuffle, every| FurtherDataset { samples, shuffle, batch_size, every };
    let further = FurtherDatasets::try_new(&[
        dataset(samples[0], Shuffle::Sequential, 2),
        dataset(samples[1], Shuffle::TORCH_DISTRIBUTED, 1),
    ]);
    let order = Spec { further: further.unwrap(), ..settings.order };
    let sizes = (0..u64::from(order.all_samples())).map(|i| Bytes(i * 37 % 400)).collect();
    Settings { order, sizes, ..settings }
}

proptest! {
    #[test]
    fn every_rank_gets_the_batches_of_all_datasets_in_order_whatever_ends_first(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        policy in any_policy(),
        samples in 1_u32..40,
        further in [1_u32..30, 1_u32..30],
        batch_size in 1_u32..7,
        ranks in 1_u32..4,
        look_ahead in any_look_ahead(),
    ) {
        let settings = Settings { look_ahead, ..settings(policy, samples, ranks, OnError::Fail) };
        let settings = with_further(settings, further, batch_size);
        let mut world = Play::new(&settings);
        world.play(&picks, 0);
        for rank in 0..ranks {
            prop_assert_eq!(&world.trainers[rank as usize].got, &world.expected(rank));
        }
        let progress = world.session.progress();
        for dataset in settings.order.datasets() {
            let sections = (0..3).filter_map(|it| settings.order.section(Epoch(it), dataset));
            let steps: u32 = sections.map(|section| section.steps).sum();
            let of_dataset = progress.datasets[usize::from(dataset.0)];
            prop_assert_eq!(of_dataset.batches, u64::from(steps * ranks));
        }
        let cold: u64 = progress.datasets.iter().map(|it| it.cold.0).sum();
        prop_assert_eq!(cold, progress.epochs.iter().map(|it| it.cold.0).sum::<u64>());
    }
}
