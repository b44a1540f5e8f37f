use alloc::string::ToString;

use proptest::prelude::*;

use super::*;
use crate::{
    fleet::{
        Origin,
        schedule::{OwnLengths, TransformOffer},
    },
    id::NumaNode,
    retention::{form::SampleTime, in_place::SpeedOrigin},
    session::Cycle,
};

/// The inputs of a job with two ranks, batches of 8 samples of 1 MiB, and chunks of 1 MiB.
fn inputs() -> ScheduleInputs {
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
fn found(kind: Kind, mb_per_s: impl Into<Option<u64>>) -> FoundTier {
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
fn offer(cold: impl Into<Option<u64>>) -> Offer {
    let rates = [None, Some(15_000), Some(9_000), Some(3_000)];
    let tiers = Kind::ALL.into_iter().zip(rates).map(|(kind, rate)| found(kind, rate));
    Offer { tiers: tiers.collect(), cold: found(Kind::Storage, cold).figures, transform: None }
}

/// The kinds of tiers in their order, with what each is used for.
fn uses(inputs: &ScheduleInputs, offer: &Offer) -> Vec<(Kind, Role)> {
    let schedule = of(inputs, offer).unwrap();
    schedule.with(offer).map(|(tier, found)| (found.kind, tier.role)).collect()
}

fn reasons(tiers: Vec<FoundTier>, cold: impl Into<Option<u64>>) -> Vec<String> {
    let offer = Offer { tiers, ..offer(cold) };
    of(&inputs(), &offer).unwrap().tiers.into_iter().map(|tier| tier.reason).collect()
}

const STAGED: &str = "first: batches are staged in main memory";

#[test]
fn tiers_stand_by_their_cost_and_say_so() {
    let tiers = vec![
        found(Kind::MainMemory, None),
        found(Kind::CxlMemory, 50),
        found(Kind::Scratch, 2_000),
    ];
    let found = of(&inputs(), &Offer { tiers: tiers.clone(), ..offer(None) }).unwrap();
    let order: Vec<u32> = found.tiers.iter().map(|tier| tier.offered).collect();
    assert_eq!(order, [0, 2, 1]);
    let expected =
        [STAGED, "second: 2 GB/s, faster than cxl-memory", "third: 50 MB/s, slower than scratch"];
    assert_eq!(reasons(tiers, None), expected);
}

#[test]
fn main_memory_is_the_first_tier_however_slow_it_is() {
    let tiers = vec![found(Kind::MainMemory, 10), found(Kind::CxlMemory, 5_000)];
    let sentence = "second: 5 GB/s, and no other tier beside main memory has figures";
    assert_eq!(reasons(tiers, 100), [STAGED, sentence]);
}

#[test]
fn a_tie_is_decided_by_kind_and_a_tier_without_figures_stands_where_its_kind_does() {
    let reasons = |cxl: u64, scratch: Option<u64>| {
        let scratch = found(Kind::Scratch, scratch);
        reasons(vec![found(Kind::MainMemory, None), found(Kind::CxlMemory, cxl), scratch], None)
    };
    let tied = [
        "second: 2 GB/s, within 30 % of scratch, which stands after it by its kind",
        "third: 2.40 GB/s, within 30 % of cxl-memory, which stands before it by its kind",
    ];
    assert_eq!(reasons(2_000, Some(2_400))[1..], tied);
    let unknown = "third: no figures, so it stands where its kind does";
    assert_eq!(reasons(2_000, None)[2], unknown);
    let faster = "second: no figures, but any memory is faster than cxl-memory with 50 MB/s";
    assert_eq!(reasons(50, None)[1], faster);
}

#[test]
fn a_tier_that_costs_more_than_the_cold_store_is_left_out_with_the_reason() {
    let both = Role::RetentionAndLookAhead;
    let offer = Offer {
        tiers: vec![
            found(Kind::MainMemory, None),
            found(Kind::CxlMemory, 50),
            found(Kind::Scratch, 2_000),
        ],
        ..offer(200)
    };
    let expected =
        [(Kind::MainMemory, both), (Kind::Scratch, both), (Kind::CxlMemory, Role::LeftOut)];
    assert_eq!(uses(&inputs(), &offer), expected);
    let schedule = of(&inputs(), &offer).unwrap();
    let last = schedule.tiers.last().unwrap();
    assert_eq!(last.reason, "left out: 50 MB/s costs more than the cold store with 200 MB/s");
    assert_eq!(last.cache, Bytes(0));
    let as_fast = Offer { cold: found(Kind::Storage, 60).figures, ..offer.clone() };
    assert_eq!(uses(&inputs(), &as_fast)[2], (Kind::CxlMemory, both), "within 30 %");
    let rough = Figures { is_rough: true, ..offer.cold.clone() };
    for cold in [Figures::none(), rough] {
        let offer = Offer { cold, ..offer.clone() };
        assert!(
            uses(&inputs(), &offer).iter().all(|(_, role)| *role == both),
            "nothing to compare"
        );
    }
}

#[test]
fn a_directory_on_the_disk_of_the_dataset_is_left_out() {
    let mut offer = offer(None);
    offer.tiers[3].device = Device::OfTheDataset;
    assert_eq!(uses(&inputs(), &offer)[3], (Kind::Storage, Role::LeftOut));
    let reason = of(&inputs(), &offer).unwrap().tiers.pop().unwrap().reason;
    assert!(reason.starts_with("left out: /nvme lies on the disk that holds the"), "{reason}");
}

#[test]
fn the_use_of_a_tier_follows_from_policy_and_look_ahead() {
    let role = |policy, look_ahead, limits_writes| {
        let inputs = ScheduleInputs { policy, limits_writes, look_ahead, ..inputs() };
        let uses = uses(&inputs, &offer(None));
        (uses[0].1, uses[3].1)
    };
    let both = Role::RetentionAndLookAhead;
    let (gap, none) = (policy::Kind::Gap, policy::Kind::None);
    assert_eq!(role(gap, LookAhead::Auto, false), (both, Role::Retention), "a disk wears out");
    assert_eq!(role(gap, LookAhead::Auto, true), (both, both));
    assert_eq!(role(gap, LookAhead::Off, true), (Role::Retention, Role::Retention));
    let room = LookAhead::Room(Bytes(0));
    assert_eq!(role(none, room, false), (Role::LookAhead, Role::LookAhead));
    assert_eq!(role(none, LookAhead::Off, false), (Role::Staging, Role::LeftOut));
}

#[test]
fn the_depth_follows_from_step_time_and_cold_store_within_what_the_job_and_memory_allow() {
    // 16 MiB a step.
    let depth = |step_ms: Option<u64>, latency_ms: u64, asked, budget| {
        let step_time = step_ms.map(|ms| Nanoseconds(ms * 1_000_000));
        let mut offer = offer(1_000);
        offer.tiers[0].budget = budget;
        offer.cold.latency = Some(Nanoseconds(latency_ms * 1_000_000));
        let schedule =
            of(&ScheduleInputs { step_time, depth_max: asked, ..inputs() }, &offer).unwrap();
        (schedule.depth, schedule.depth_reason)
    };
    let (roomy, reason) = (Bytes::mib(4_096), |text: &str| text.to_owned());
    let unknown = (4, reason("the default: the step time is not known"));
    assert_eq!(depth(None, 1, None, roomy), unknown);
    let asked = (9, reason("as the job file says: the step time is not known"));
    assert_eq!(depth(None, 1, Some(9), roomy), asked);
    let (near, why) = depth(Some(100), 1, None, roomy);
    assert_eq!((near, why.as_str()), (4, "2 are in time in 100 % of all steps"));
    assert_eq!(depth(Some(100), 1, Some(9), roomy).0, 4, "a bound is not a wish");
    assert_eq!(depth(Some(100), 1, Some(2), roomy).0, 2);
    let slow = "the cold store is slower than the steps, however far ahead it is read";
    assert_eq!(depth(Some(10), 1, None, roomy), (4, reason(slow)));
}

#[test]
fn declared_phases_have_room_in_the_first_schedule_if_they_are_worth_some() {
    let second = Nanoseconds(1_000_000_000);
    let cycle = Cycle { consumed: Bytes::mib(400), busy: second, idle: second };
    let phases = Some(Phases { cycle, epoch: Bytes::mib(20_000), step: Bytes::mib(16) });
    let of = |phases, look_ahead, cold: Option<u64>| {
        let schedule =
            of(&ScheduleInputs { look_ahead, phases, ..inputs() }, &offer(cold)).unwrap();
        (schedule.look_ahead, schedule.reason)
    };
    let (room, reason) = of(phases, LookAhead::Auto, Some(250));
    // 400 MiB less the 238 MiB of a second, and a fifth more, less three staged steps.
    assert!(room > Bytes::mib(140) && room < Bytes::mib(150), "{room}");
    let why =
        "as the job file says, trainers pause for 1 s after 1 s in which they consume 400 MiB";
    assert!(reason.starts_with(why), "{reason}");
    let none = (Bytes(0), String::new());
    assert_eq!(of(None, LookAhead::Auto, Some(250)), none);
    assert_eq!(of(phases, LookAhead::Off, Some(250)), none);
    assert_eq!(of(phases, LookAhead::Auto, Some(500)), none, "the store keeps up");
    assert_eq!(of(phases, LookAhead::Auto, Some(1_000)), none, "it is not read ahead");
    assert_eq!(of(phases, LookAhead::Auto, None), none, "its rate is not known");
    let asked = LookAhead::Room(Bytes::mib(3));
    assert_eq!(of(phases, asked, Some(250)), (Bytes::mib(3), String::new()));
}

#[test]
fn staging_comes_before_the_cache_and_the_chunk_fits_what_is_used() {
    let mut offer = offer(None);
    let schedule = of(&inputs(), &offer).unwrap();
    assert_eq!((schedule.arena, schedule.tiers[0].cache), (Bytes::mib(32), Bytes::mib(64)));
    let unsaid = ScheduleInputs { chunk: None, ..inputs() };
    assert_eq!(of(&unsaid, &offer).unwrap().chunk, Bytes::mib(4), "a sixteenth of 64 MiB");
    offer.tiers[0].budget = Bytes::mib(12);
    // Staging could extend into CXL memory.
    offer.tiers.truncate(1);
    let error = of(&inputs(), &offer).unwrap_err().to_string();
    assert!(error.starts_with("tiers.main-memory: 12 MiB cannot hold a batch"), "{error}");
}

#[test]
fn the_window_of_the_cold_store_begins_with_what_its_rate_and_latency_keep_in_flight() {
    let cold = |latency_ms: u64| {
        let mut offer = offer(1_000);
        offer.cold.latency = Some(Nanoseconds(latency_ms * 1_000_000));
        of(&inputs(), &offer).unwrap().windows
    };
    assert_eq!(cold(1), cold(0), "one read of 1 MiB takes as long");
    assert_eq!(cold(1).cold, inputs().reads_at_first.get());
    assert_eq!(cold(100).cold, 96, "100 MB in reads of 1 MiB");
    assert_eq!(cold(100_000).cold, cold(1).cold_max);
}

#[test]
fn two_writers_copy_only_where_they_are_faster_than_one() {
    let rate = |mb: u64| BytesPerSecond(mb * 1_000_000);
    let threads = |one, two| {
        let mut offer = offer(None);
        offer.tiers[1].writes = Some(WriteRates { one: rate(one), two: rate(two) });
        of(&inputs(), &offer).unwrap().tiers[1].copy_threads
    };
    assert_eq!((threads(17_000, 17_100), threads(10_000, 19_000)), (1, 2));
}

prop_compose! {
    fn any_found()(
        kind in prop::sample::select(Kind::ALL.to_vec()),
        mb_per_s in prop::option::of(1_u64..50_000),
        budget in 64_u64..4_096,
        is_of_the_dataset in any::<bool>(),
    ) -> FoundTier {
        let device = if is_of_the_dataset { Device::OfTheDataset } else { Device::Own };
        FoundTier { device, budget: Bytes::mib(budget), ..found(kind, mb_per_s) }
    }
}

prop_compose! {
    fn any_offer()(
        others in prop::collection::vec(any_found(), 0..6),
        main in 64_u64..4_096,
        cold in prop::option::of(1_u64..20_000),
    ) -> Offer {
        let main = FoundTier { budget: Bytes::mib(main), ..found(Kind::MainMemory, None) };
        let others = others.into_iter().filter(|tier| tier.kind != Kind::MainMemory);
        Offer { tiers: [main].into_iter().chain(others).collect(), ..offer(cold) }
    }
}

prop_compose! {
    fn any_terms()(
        step_ms in prop::option::of(1_u64..500),
        depth_max in prop::option::of(2_u32..40),
        chunk_mib in prop::option::of(1_u64..16),
        policy in prop::sample::select(policy::Kind::ALL.to_vec()),
        look_ahead in prop::sample::select(vec![LookAhead::Auto, LookAhead::Off]),
    ) -> ScheduleInputs {
        let step_time = step_ms.map(|ms| Nanoseconds(ms * 1_000_000));
        let chunk = chunk_mib.map(Bytes::mib);
        ScheduleInputs { step_time, depth_max, chunk, policy, look_ahead, ..inputs() }
    }
}

proptest! {
    #[test]
    fn equal_inputs_give_equal_bytes_and_every_tier_has_one_place(
        inputs in any_terms(),
        offer in any_offer(),
    ) {
        let sent = |offer: &Offer| of(&inputs, offer).map(|it| serde_json::to_string(&it).unwrap());
        // Through the network, as the manager gets it.
        let received = serde_json::from_str(&serde_json::to_string(&offer).unwrap()).unwrap();
        prop_assert_eq!(sent(&offer), sent(&received));
        let schedule = of(&inputs, &offer).unwrap();
        let mut places: Vec<u32> = schedule.tiers.iter().map(|tier| tier.offered).collect();
        prop_assert_eq!(places[0], 0, "main memory is the first");
        places.sort_unstable();
        prop_assert!(places.iter().copied().eq(0..u32::try_from(offer.tiers.len()).unwrap()));
        for (tier, found) in schedule.with(&offer) {
            prop_assert!(tier.cache <= found.budget && tier.cache.0 % schedule.chunk.0 == 0);
        }
        prop_assert!(inputs.depth_max.is_none_or(|most| schedule.depth <= most));
        prop_assert!(schedule.arena >= inputs.batch);
    }
}

/// A dataset of 100 MB whose samples are six times as long when they are prepared: then a third of them fits into tiers.
fn transforming() -> ScheduleInputs {
    let transform = TransformTerms {
        settled: None,
        prepared: PreparedLength::Fixed(Bytes(60_000)),
        lengths: None,
        stored: Bytes(10_000),
        samples: 10_000,
        reads: 10_000,
        sharing: 1,
        compute: None,
        later_epochs: 9,
    };
    ScheduleInputs { transform: Some(transform), ..inputs() }
}

/// The transform of a node with this time of a thread, in microseconds, and a cold store of `cold` MB/s.
fn form_of(
    inputs: &ScheduleInputs,
    prepare_us: impl Into<Option<u64>>,
    cold: u64,
) -> TransformSchedule {
    let each = prepare_us
        .into()
        .map(|us| SampleTime { prepare: Nanoseconds(us * 1000), rest: Nanoseconds(100_000) });
    let threads = NonZeroU32::new(2).unwrap();
    let transform = Some(TransformOffer {
        threads,
        each,
        from: String::new(),
        own: None,
        own_unknown: String::new(),
    });
    let tiers = vec![found(Kind::MainMemory, None), found(Kind::Scratch, 2_000)];
    of(inputs, &Offer { tiers, transform, ..offer(cold) }).unwrap().transform.unwrap()
}

#[test]
fn tiers_hold_the_form_that_saves_what_is_short_and_the_schedule_says_why() {
    let slow_threads = form_of(&transforming(), 2_000, 100);
    assert_eq!(slow_threads.form, Form::Prepared);
    let reason = "an epoch takes 10.50 s with stored samples, which the time of threads sets, and";
    assert!(slow_threads.reason.starts_with(reason), "{}", slow_threads.reason);
    assert_eq!(form_of(&transforming(), 10, 1).form, Form::Stored, "the cold store is short");
    let unknown = form_of(&transforming(), None, 100);
    assert_eq!(unknown.form, Form::Stored);
    assert_eq!(unknown.reason, "the time of a transform was not measured");
    let mut nothing = transforming();
    nothing.transform.iter_mut().for_each(|it| it.prepared = PreparedLength::None);
    assert_eq!(form_of(&nothing, 2_000, 100).form, Form::Stored);
}

/// The schedule of a node that looked at images: decoded, they have `mean` bytes, and all of them would be
/// scanned in `scan_s` seconds.
fn of_images(inputs: &ScheduleInputs, mean: u64, scan_s: u64) -> Schedule {
    let transform = TransformOffer {
        each: Some(SampleTime { prepare: Nanoseconds(2_000_000), rest: Nanoseconds(100_000) }),
        own: Some(OwnLengths {
            fingerprint: None,
            mean: Bytes(mean),
            deviation: Bytes(1000),
            scan: (scan_s > 0).then_some(Nanoseconds(scan_s * 1_000_000_000)),
        }),
        ..TransformOffer::of_threads(NonZeroU32::new(2).unwrap())
    };
    let tiers = vec![found(Kind::MainMemory, None), found(Kind::Scratch, 2_000)];
    of(inputs, &Offer { tiers, transform: Some(transform), ..offer(100) }).unwrap()
}

#[test]
fn images_of_own_size_are_held_decoded_if_that_saves_more_than_their_scan_takes() {
    let mut inputs = transforming();
    inputs.transform.iter_mut().for_each(|it| it.prepared = PreparedLength::Own);
    let form = |schedule: &Schedule| schedule.transform.clone().unwrap();
    let (known, quick, long) = (
        of_images(&inputs, 60_000, 0),
        of_images(&inputs, 60_000, 2),
        of_images(&inputs, 60_000, 1_000),
    );
    assert_eq!([&known, &quick].map(|it| form(it).form), [Form::Prepared; 2]);
    let reason = form(&long).reason;
    assert_eq!(form(&long).form, Form::Stored);
    assert!(reason.contains("; scanning the heads of images would take 1000 s"), "{reason}");
    assert!(known.arena > long.arena, "{:?}: room in staging is for what is held", known.arena);
    let mut stored = inputs.clone();
    let settled = Settled { form: Form::Stored, reason: String::new() };
    stored.transform.iter_mut().for_each(|it| it.settled = Some(settled.clone()));
    assert_eq!(of_images(&stored, 60_000, 0).arena, long.arena);
    let nothing = form_of(&inputs, 2_000, 100);
    assert_eq!(nothing.reason, "no agent has looked at the sizes of the images yet");
}

#[test]
fn without_a_later_epoch_nothing_is_saved_and_no_scan_is_spoken_of() {
    let mut inputs = transforming();
    inputs.transform.iter_mut().for_each(|it| it.later_epochs = 0);
    let last = form_of(&inputs, 2_000, 100);
    assert_eq!((last.form, &*last.reason), (Form::Stored, "no epoch comes after the first one"));
}

#[test]
fn a_node_without_room_for_the_form_of_the_first_is_told_of_that_choice() {
    let mut inputs = transforming();
    inputs.transform.iter_mut().for_each(|it| it.prepared = PreparedLength::Own);
    let threads = NonZeroU32::new(2).unwrap();
    let own =
        OwnLengths { fingerprint: None, mean: Bytes::mib(20), deviation: Bytes(0), scan: None };
    let each = Some(SampleTime::default());
    let unknown = TransformOffer::of_threads(threads);
    let transform = Some(TransformOffer { each, own: Some(own), ..unknown });
    let offer = Offer { tiers: vec![found(Kind::MainMemory, None)], transform, ..offer(100) };
    let alone = of(&inputs, &offer).unwrap().transform.unwrap();
    assert_eq!(alone.reason, "main memory has no room to stage batches of prepared samples");
    let first = TransformSchedule { form: Form::Prepared, ..alone };
    inputs.transform.as_mut().unwrap().settle(&first);
    let error = of(&inputs, &offer).unwrap_err().to_string();
    assert!(error.contains("transform.cache: stored"), "{error}");
    assert!(error.contains("the first node of the job chose"), "{error}");
}

#[test]
fn all_nodes_get_the_lengths_of_prepared_samples_that_the_first_one_scanned() {
    let mut inputs = transforming();
    inputs.transform.iter_mut().for_each(|it| it.prepared = PreparedLength::Own);
    let mut lengths_of = |fingerprint: Option<u64>, prepare_us: u64| {
        let transform = TransformOffer {
            each: Some(SampleTime {
                prepare: Nanoseconds(prepare_us * 1000),
                rest: Nanoseconds(100_000),
            }),
            own: Some(OwnLengths {
                fingerprint,
                mean: Bytes(10_000),
                deviation: Bytes(0),
                scan: None,
            }),
            ..TransformOffer::of_threads(NonZeroU32::new(2).unwrap())
        };
        let tiers = vec![found(Kind::MainMemory, None), found(Kind::Scratch, 2_000)];
        let offer = Offer { tiers, transform: Some(transform), ..offer(100) };
        let scheduled = of(&inputs, &offer).unwrap().transform.unwrap();
        inputs.transform.as_mut().unwrap().settle(&scheduled);
        (scheduled.form, scheduled.lengths)
    };
    assert_eq!(lengths_of(None, 2_000), (Form::Prepared, None), "it looked at some images only");
    assert_eq!(lengths_of(Some(7), 2_000), (Form::Prepared, Some(7)));
    assert_eq!(lengths_of(Some(8), 10), (Form::Prepared, Some(7)), "it has others");
}

#[test]
fn all_nodes_hold_the_form_of_the_first_whatever_they_measured() {
    let mut inputs = transforming();
    let first = form_of(&inputs, 2_000, 100);
    inputs.transform.as_mut().unwrap().settle(&first);
    let other = form_of(&inputs, 10, 1);
    assert_eq!((other.form, &other.reason), (Form::Prepared, &first.reason));
}

#[test]
fn no_room_is_kept_free_for_samples_to_come_where_tiers_hold_prepared_ones() {
    let mut inputs = transforming();
    inputs.look_ahead = LookAhead::Room(Bytes::mib(4));
    let room = |form| {
        let mut inputs = inputs.clone();
        let settled = Settled { form, reason: String::new() };
        inputs.transform.as_mut().unwrap().settled = Some(settled);
        let tiers = vec![found(Kind::MainMemory, None), found(Kind::Scratch, 2_000)];
        of(&inputs, &Offer { tiers, ..offer(100) }).unwrap().look_ahead
    };
    assert_eq!([Form::Stored, Form::Prepared].map(room), [Bytes::mib(4), Bytes(0)]);
}
