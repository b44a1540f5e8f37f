//! Several datasets in one order.

use proptest::prelude::*;

use super::*;
use crate::id::{DatasetId, NodeId};

fn dataset(samples: u32, batch_size: u32, every: u32) -> FurtherDataset {
    FurtherDataset { samples, shuffle: Shuffle::Sequential, batch_size, every }
}

fn with(spec: Spec, further: &[FurtherDataset]) -> Spec {
    Spec { further: FurtherDatasets::try_new(further).unwrap(), ..spec }
}

/// All reads, batch by batch, with the position in the run.
fn run(spec: &Spec) -> Vec<(BatchId, Vec<SampleId>)> {
    let mut all = Vec::new();
    let mut next = Some(spec.first(Rank(0)));
    while let Some(first) = next {
        let order = spec.epoch(first.epoch).unwrap();
        for rank in (0..spec.world.ranks()).map(Rank) {
            let batch = BatchId { rank, ..first };
            all.push((batch, order.batch(rank, first.step).collect()));
        }
        next = spec.after(first);
    }
    all
}

#[test]
fn a_validation_follows_each_training_epoch_and_its_samples_come_behind() {
    let spec = Spec { epochs: 2, ..spec(5, Shuffle::Sequential) };
    let read = run(&with(spec, &[dataset(3, 2, 1)]));
    let samples: Vec<Vec<u32>> =
        read.iter().map(|(_, it)| it.iter().map(|sample| sample.0).collect()).collect();
    let epoch = [vec![0, 1, 2, 3], vec![4], vec![5, 6], vec![7]];
    assert_eq!(samples, [epoch.clone(), epoch].concat());
    let places: Vec<_> = read.iter().map(|(batch, _)| (batch.epoch.0, batch.step.0)).collect();
    assert_eq!(places, [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3)]);
}

#[test]
fn a_dataset_is_due_at_the_end_of_every_nth_epoch() {
    let spec = Spec { epochs: 6, ..spec(4, Shuffle::Sequential) };
    let spec = with(spec, &[dataset(8, 4, 2), dataset(1, 4, 3)]);
    let steps: Vec<_> = (0..7).map(|epoch| spec.steps_in(Epoch(epoch))).collect();
    assert_eq!(steps, [1, 3, 2, 3, 1, 4, 0]);
    assert_eq!(spec.batches_per_rank(), 14);
    let due = |epoch, dataset| spec.section(Epoch(epoch), DatasetId(dataset)).is_some();
    assert_eq!([0, 1, 2, 5].map(|epoch| due(epoch, 1)), [false, true, false, true]);
    assert_eq!([0, 1, 2, 5].map(|epoch| due(epoch, 2)), [false, false, true, true]);
    let last = spec.section(Epoch(5), DatasetId(2)).unwrap();
    assert_eq!((last.first_step, last.steps, last.first_sample), (Step(3), 1, SampleId(12)));
}

#[test]
fn a_job_that_resumes_behind_the_training_set_goes_on_with_the_next_epoch() {
    let one = with(Spec { epochs: 3, ..spec(10, Shuffle::Sequential) }, &[dataset(9, 4, 1)]);
    assert_eq!(one.position_after(Epoch(0), 2), Position { epoch: Epoch(0), samples: 8 });
    for steps in 3..=6 {
        let next = Position { epoch: Epoch(1), samples: 0 };
        assert_eq!(one.position_after(Epoch(0), steps), next, "{steps}");
    }
}

#[test]
fn what_no_job_can_have_is_refused() {
    let one = spec(5, Shuffle::Sequential);
    let refused = |spec: Spec| spec.validate().unwrap_err().to_string();
    assert!(refused(with(one, &[dataset(0, 1, 1)])).contains("dataset is 0"));
    assert!(refused(with(one, &[dataset(1, 1, 0)])).contains("every is 0"));
    let many = refused(with(one, &[dataset(u32::MAX, 1, 1)]));
    assert!(many.contains("4294967300 samples in all datasets"), "{many}");
    let published = Spec { shuffle: Shuffle::Published, ..one };
    assert!(refused(with(published, &[dataset(1, 1, 1)])).contains("published"));
    let many = FurtherDatasets::try_new(&[dataset(1, 1, 1); 4]).unwrap_err().to_string();
    assert!(many.contains("4 datasets beside the first; at most 3"), "{many}");
}

prop_compose! {
    fn orders()(
        samples in 1_u32..30, further in prop::collection::vec((1_u32..30, 1_u32..9, 1_u32..4), 0..=3),
        batch_size in 1_u32..7, epochs in 1_u32..6, nodes in 1_u32..4, ranks_per_node in 1_u32..4,
        start in 0_u32..6, seed in any::<u64>(),
    ) -> Spec {
        let world = World { nodes, ranks_per_node };
        let shuffle = Shuffle::TORCH_DISTRIBUTED;
        let further: Vec<_> = further.into_iter().map(|(samples, size, every)| {
            FurtherDataset { shuffle, ..dataset(samples, size, every) }
        }).collect();
        let start = Position { epoch: Epoch(start.min(epochs - 1)), samples: 0 };
        let spec = Spec { seed, epochs, batch_size, world, start, ..spec(samples, shuffle) };
        with(spec, &further)
    }
}

proptest! {
    /// A loader of one dataset gets the same batches as in a job of its own.
    #[test]
    fn each_dataset_is_read_as_in_a_job_of_its_own(spec in orders()) {
        prop_assert_eq!(spec.validate(), Ok(()));
        for (batch, samples) in run(&spec) {
            let section = spec.section_of(batch).expect("every batch is in a section");
            let own = spec.of_dataset(section.dataset).unwrap();
            let order = own.epoch(batch.epoch).unwrap();
            let expected = order.batch(batch.rank, section.own(batch).step);
            let expected: Vec<_> = expected.map(|it| SampleId(it.0 + section.first_sample.0)).collect();
            prop_assert!(!samples.is_empty());
            prop_assert_eq!(&samples, &expected);
            prop_assert_eq!(section.in_job(section.own(batch)), batch);
            for sample in samples {
                let local = SampleId(sample.0 - section.first_sample.0);
                prop_assert_eq!(spec.dataset_of(sample), (section.dataset, local));
            }
        }
    }

    #[test]
    fn batches_are_counted_through_all_sections(spec in orders()) {
        let read = run(&spec);
        prop_assert_eq!(read.len() as u64, spec.batches_per_rank() * u64::from(spec.world.ranks()));
        let of_first: Vec<_> = read.iter().filter(|(it, _)| it.rank == Rank(0)).collect();
        for (at, (batch, _)) in of_first.iter().enumerate() {
            prop_assert!(spec.contains(*batch));
            prop_assert_eq!(spec.batches_between(spec.first(Rank(0)), Some(*batch)), at as u64);
        }
    }

    #[test]
    fn a_node_reads_what_its_ranks_read(spec in orders()) {
        let node = NodeId(spec.world.nodes - 1);
        for (batch, samples) in run(&spec) {
            if batch.rank.0 / spec.world.ranks_per_node == node.0 {
                let order = spec.epoch_of(node, batch.epoch).unwrap();
                let local = batch.rank.0 % spec.world.ranks_per_node;
                prop_assert_eq!(order.batch(local, batch.step), &samples[..]);
            }
        }
    }
}
