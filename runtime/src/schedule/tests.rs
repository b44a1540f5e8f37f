use std::collections::BTreeMap;

use flate2::{Compression, write::GzEncoder};
use tierfeed_core::{
    fleet::{
        Origin,
        first_schedule::{self, may_depend_on_own_lengths},
        schedule::{Device, Figures, FoundTier, Location, Offer, TransformOffer, Transforming},
    },
    id::{Epoch, NumaNode},
    retention::{
        form::{Form, SampleTime},
        in_place::{Rates, SpeedOrigin, Verify},
        policy::{self, Stay},
    },
    session::LookAhead,
    units::BytesPerSecond,
};
use tierfeed_workload_analyzer::{demand::Sizes, job::CachedForm};

use super::*;

/// The inputs of a job with two ranks, batches of 8 samples of 1 MiB, and chunks of 1 MiB.
pub(crate) fn inputs() -> ScheduleInputs {
    ScheduleInputs {
        ranks: 2,
        batch: Bytes::mib(8),
        batch_samples: 8,
        sample: Bytes::mib(1),
        cold_threads: NonZeroU32::new(8).unwrap(),
        reads_at_first: NonZeroU32::new(16).unwrap(),
        step_time: None,
        depth_max: None,
        chunk: Some(Bytes::mib(1)),
        policy: policy::Kind::Gap,
        stay: Stay::UntilRead,
        verify: Verify::Shared,
        lengths: SampleLengths::Several,
        modes: BTreeMap::new(),
        limits_writes: false,
        look_ahead: LookAhead::Auto,
        phases: None,
        transform: None,
    }
}

/// A tier of 128 MiB on a device of its own, with a rate in MB/s.
pub(crate) fn found(kind: Kind, mb_per_s: impl Into<Option<u64>>) -> FoundTier {
    let rate = mb_per_s.into().map(|mb| BytesPerSecond(mb * 1_000_000));
    let location = match kind {
        Kind::MainMemory => Location::Memory,
        Kind::CxlMemory => Location::NumaNode(NumaNode(2)),
        Kind::Scratch => Location::Directory("/ram".into()),
        Kind::Storage => Location::Directory("/nvme".into()),
    };
    FoundTier {
        kind,
        origin: Origin::Real,
        location,
        device: Device::Own,
        budget: Bytes::mib(128),
        beside: Bytes(0),
        figures: Figures {
            latency: rate.map(|_| Nanoseconds(1_000)),
            bandwidth: rate,
            from: "test".into(),
            is_rough: false,
        },
        pace: SpeedOrigin::Own,
        reads: None,
        writes: None,
    }
}

/// All kinds of tiers, and a cold store of so many MB/s.
pub(crate) fn offer(cold: impl Into<Option<u64>>) -> Offer {
    let rates = [None, Some(15_000), Some(9_000), Some(3_000)];
    let tiers = Kind::ALL.into_iter().zip(rates).map(|(kind, rate)| found(kind, rate));
    Offer { tiers: tiers.collect(), cold: found(Kind::Storage, cold).figures, transform: None }
}

/// As long as reasons and places get on a real host, with a second CXL tier.
fn long_offer(number: u32) -> Offer {
    let mut offer = offer(200);
    offer.tiers.insert(2, found(Kind::CxlMemory, 14_500));
    for (at, tier) in (0_u64..).zip(&mut offer.tiers) {
        tier.budget = Bytes(u64::MAX / 2 - u64::from(number) * 4096 - at);
        tier.location = Location::Directory(format!("/{}/{number}", "d".repeat(200)));
        tier.figures.from =
            "probe report /home/someone/.local/state/tierfeed/tiers.json of 2026-11-24".into();
        tier.reads = Some(Rates {
            tier_copying: BytesPerSecond(16_400_000_000),
            tier_alone: BytesPerSecond(8_700_000_000),
            main_memory: BytesPerSecond(13_400_000_000),
        });
    }
    offer
}

#[test]
fn the_schedules_of_a_thousand_nodes_together_take_less_than_a_mebibyte() {
    let bytes = |number| {
        let schedule = first_schedule::of(&inputs(), &long_offer(number)).unwrap();
        let mut compressed = GzEncoder::new(Vec::new(), Compression::default());
        serde_json::to_writer(&mut compressed, &schedule).unwrap();
        compressed.finish().unwrap().len()
    };
    let all: usize = (0..1024).map(bytes).sum();
    assert!(all < 1 << 20, "{all} bytes, {} for each node", all / 1024);
}

#[test]
fn epochs_after_the_first_one_of_the_run_are_later_ones() {
    let job = own_lengths_job(0);
    let later = |start| {
        let mut job = job.clone();
        job.start.epoch = Epoch(start);
        transforms::terms(&job, &demand(&job)).unwrap().later_epochs
    };
    assert_eq!([0, 98, 99].map(later), [99, 1, 0]);
}

#[test]
fn images_are_looked_at_only_where_that_may_decide_the_form() {
    let job = own_lengths_job(0);
    let may_depend = |job: &Job, each| {
        let inputs = super::inputs(job, &demand(job));
        let threads = NonZeroU32::new(2).unwrap();
        let transform = Some(TransformOffer { each, ..TransformOffer::of_threads(threads) });
        let offer = Offer { transform, ..offer(100) };
        may_depend_on_own_lengths(&inputs, job.world.nodes, &offer)
    };
    let each = Some(SampleTime::default());
    assert!(may_depend(&job, each));
    assert!(!may_depend(&job, None), "the time of a transform is not known");
    let mut several = job.clone();
    several.world.nodes = 2;
    assert!(may_depend(&several, None), "another node may have measured it");
    assert!(!may_depend(&own_lengths_job(99), each), "there is no later epoch");
    let mut none = job.clone();
    none.policy = policy::Kind::None;
    assert!(!may_depend(&none, each), "no tier keeps samples");
    let mut prepared = own_lengths_job(99);
    prepared.transform.as_mut().unwrap().cache = CachedForm::Prepared;
    assert!(may_depend(&prepared, None), "staging needs room for them");
    prepared.transform.as_mut().unwrap().cache = CachedForm::Stored;
    assert!(!may_depend(&prepared, each));
}

#[test]
fn plans_say_where_the_lengths_of_prepared_samples_are_not_known() {
    let mut job = own_lengths_job(0);
    let threads = NonZeroU32::new(2).unwrap();
    let assumed = |job: &Job, form, own_mean, prepared: Option<&[Bytes]>| {
        let transforming = Transforming { form, threads, each: None, own_mean };
        transforms::assumed_lengths(job, Some(transforming), prepared)
    };
    let unknown = assumed(&job, Form::Prepared, None, None).unwrap();
    assert!(
        unknown.contains("not known here: each is taken to be as long as the stored one"),
        "{unknown}"
    );
    let mean = assumed(&job, Form::Prepared, Some(Bytes(700)), None).unwrap();
    assert!(mean.contains("each is taken to have 700 B, their mean"), "{mean}");
    assert_eq!(assumed(&job, Form::Stored, None, None), None);
    assert_eq!(assumed(&job, Form::Prepared, None, Some(&[Bytes(700); 4])), None);
    job.transform = None;
    assert_eq!(assumed(&job, Form::Prepared, None, None), None);
}

/// A job of 100 epochs whose prepared samples have lengths of their own, from epoch `start` on.
fn own_lengths_job(start: u32) -> Job {
    let text = "name: job\n\
                dataset: { source: file:///data, format: image-folder }\n\
                order: { shuffle: sequential, epochs: 100 }\n\
                batch_size: 4\n\
                world: { nodes: 1, ranks_per_node: 2 }\n\
                transform: { steps: [{ random_resized_crop: 8 }] }\n\
                tiers:\n  main-memory: { size: 1 GiB }\n";
    let mut job = Job::parse(text, std::path::Path::new("/jobs/job.yaml")).unwrap();
    job.start.epoch = Epoch(start);
    job
}

fn demand(job: &Job) -> Demand {
    let sizes = Sizes::of(16, || std::iter::repeat_n(Bytes(3_000), 16));
    Demand::of(job, &sizes).unwrap()
}
