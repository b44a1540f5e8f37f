//! Sessions of jobs with a transform hand out rows: in both forms that tiers can hold, and in every order in
//! which operations can end.

use super::*;

/// A row is longer than some stored samples and shorter than others.
const ROW: Bytes = Bytes(100);

/// Prepared samples are longer than most stored ones.
const PREPARED: Bytes = Bytes(300);

fn transforming(settings: Settings, threads: u32, form: Form) -> Settings {
    // Each has its own length, and a few have no prepared form.
    let len = |sample| if sample % 11 == 5 { Bytes(0) } else { Bytes(PREPARED.0 + sample % 7) };
    let lens = || (0..settings.sizes.len() as u64).map(len);
    let prepared = (form == Form::Prepared).then(|| lens().collect());
    settings.with_transform(ROW, NonZeroU32::new(threads).unwrap(), prepared)
}

fn any_form() -> impl Strategy<Value = Form> {
    prop::sample::select(&Form::ALL[..])
}

fn transforms(session: &Session) -> [TransformCount; 2] {
    let epochs = session.progress().epochs.iter().map(|epoch| epoch.transforms);
    epochs.fold([TransformCount::default(); 2], |sum, epoch| {
        [0, 1].map(|form: usize| TransformCount {
            samples: sum[form].samples + epoch[form].samples,
            failed: sum[form].failed + epoch[form].failed,
            read: Bytes(sum[form].read.0 + epoch[form].read.0),
            made: Bytes(sum[form].made.0 + epoch[form].made.0),
            time: Nanoseconds(sum[form].time.0 + epoch[form].time.0),
        })
    })
}

proptest! {
    #[test]
    fn every_batch_is_rows_in_order_whatever_ends_first_and_whatever_fails(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        policy in any_policy(),
        samples in 1_u32..60,
        threads in 1_u32..4,
        faults in 0_usize..30,
        skip: bool,
        form in any_form(),
        look_ahead in any_look_ahead(),
    ) {
        let on_error = if skip { SKIP_ALL } else { OnError::Fail };
        let settings = Settings { look_ahead, ..settings(policy, samples, 2, on_error) };
        let settings = transforming(settings, threads, form);
        let mut world = Play::new(&settings);
        world.play(&picks, faults);
        for rank in 0..2 {
            world.assert_answered(rank);
        }
        prop_assert!(faults > 0 || world.is_all_got());
        let progress = world.session.progress();
        if skip && world.is_all_got() {
            prop_assert_eq!(progress.fault_count, world.skipped);
        }
        for epoch in &progress.epochs {
            prop_assert_eq!(epoch.causes.total(), epoch.stall, "every wait has its causes");
            prop_assert_eq!(epoch.in_place_samples, 0);
        }
        let handed: u64 = progress.epochs.iter().map(|epoch| epoch.samples).sum();
        let [stored, prepared] = transforms(&world.session);
        prop_assert!(stored.samples + prepared.samples >= handed);
        prop_assert!(form == Form::Prepared || prepared == TransformCount::default());
        prop_assert_eq!(stored.made.0 + prepared.made.0, ROW.0 * (stored.samples + prepared.samples));
        let lens = PREPARED.0 * prepared.samples..=(PREPARED.0 + 6) * prepared.samples;
        prop_assert!(lens.contains(&prepared.read.0), "no tier holds what has no prepared form");
        let ended = stored.samples + stored.failed + prepared.samples + prepared.failed;
        prop_assert_eq!(stored.time.0 + prepared.time.0, 500 * ended);
        if faults == 0 {
            prop_assert_eq!(stored.failed + prepared.failed, 0);
            prop_assert_eq!(stored.samples + prepared.samples, handed, "each sample once");
        }
        prop_assert_eq!(world.session.in_flight(), 0);
        prop_assert_eq!(progress.transforms_busy.running(), 0);
    }

    #[test]
    fn stored_bytes_lie_beside_rows_until_their_batch_goes_back(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        policy in any_policy(),
        faults in 0_usize..30,
        look_ahead in any_look_ahead(),
    ) {
        let settings = Settings { look_ahead, ..settings(policy, 40, 2, SKIP_ALL) };
        let row = Row { len: ROW, handed: Handed::RowAndStored };
        let settings = transforming(settings, 2, Form::Stored).with_rows(vec![Some(row)]);
        let mut world = Play::new(&settings);
        world.play(&picks, faults);
        let handed: u64 = world.session.progress().epochs.iter().map(|epoch| epoch.samples).sum();
        let has_empty = settings.stored().contains(&Bytes(0));
        prop_assert!(world.beside > 0 && world.beside <= handed);
        prop_assert!(has_empty || world.beside == handed);
    }

    #[test]
    fn each_dataset_has_rows_of_its_own_or_none(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        policy in any_policy(),
        faults in 0_usize..30,
        skip: bool,
        is_row in [any::<bool>(), any::<bool>(), any::<bool>()],
        look_ahead in any_look_ahead(),
    ) {
        let on_error = if skip { SKIP_ALL } else { OnError::Fail };
        let settings = Settings { look_ahead, ..settings(policy, 30, 2, on_error) };
        let settings = further::with_further(settings, [11, 7], 3);
        let row = |(is_row, len): (bool, u64)| is_row.then_some(Row { len: Bytes(len), handed: Handed::Row });
        let rows = is_row.into_iter().zip([100, 40, 300]).map(row).collect();
        let settings = transforming(settings, 2, Form::Stored).with_rows(rows);
        let mut world = Play::new(&settings);
        world.play(&picks, faults);
        for rank in 0..2 {
            world.assert_answered(rank);
        }
        let [stored, _] = transforms(&world.session);
        prop_assert!(is_row.contains(&true) || stored == TransformCount::default());
        prop_assert_eq!(world.session.in_flight(), 0);
    }

    #[test]
    fn tiers_that_change_and_chunks_that_break_lose_no_row(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        policy in any_policy(),
        resizes in prop::collection::vec((0_u8..3, 0_u32..4), 1..12),
        faults in 1_usize..40,
        form in any_form(),
    ) {
        let settings = transforming(settings(policy, 50, 2, SKIP_ALL), 2, form);
        let mut world = Play::new(&settings);
        for (tier, chunks_max) in resizes {
            for pick in picks.iter().cycle().take(25) {
                world.step(pick.wrapping_mul(0x9e37_79b9_7f4a_7c15), faults);
            }
            world.tell(Event::Resized { tier: TierId(tier), chunks_max });
        }
        world.play(&picks, faults);
        for rank in 0..2 {
            world.assert_answered(rank);
        }
        prop_assert_eq!(world.session.in_flight(), 0);
    }

    #[test]
    fn a_trainer_that_dies_leaves_no_transform_and_the_next_one_gets_the_rows(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        policy in any_policy(),
        dies_after in 0_usize..80,
        form in any_form(),
    ) {
        let settings = transforming(settings(policy, 50, 1, OnError::Fail), 1, form);
        let mut world = Play::new(&settings);
        for pick in picks.iter().cycle().take(dies_after) {
            world.step(pick.wrapping_mul(0x9e37_79b9_7f4a_7c15), 0);
        }
        let dead = core::mem::replace(&mut world.trainers[0], Trainer::new(0));
        world.trainers[0].connection = ConnectionId(99);
        world.tell(Event::Gone { connection: dead.connection });
        let is_copied = |operation: &Operation| {
            matches!(operation, Operation::Transform { prepared: Some(_), .. })
        };
        let running = world.plane.running.len();
        let before = transforms(&world.session);
        world.drain();
        if dead.is_admitted && form == Form::Stored {
            let after = transforms(&world.session);
            let done = after[0].samples - before[0].samples;
            prop_assert!(done <= running as u64, "what was not begun is not transformed");
        }
        prop_assert!(!world.plane.running.iter().any(|(_, operation)| is_copied(operation)));
        world.trainers[0].next = dead.got.last().map_or(
            world.trainers[0].next, |last| settings.order.after(*last),
        );
        world.tell(Event::Attached { connection: ConnectionId(99), rank: Rank(0) });
        world.play(&picks, 0);
        let mut got = dead.got.clone();
        got.extend(&world.trainers[0].got);
        prop_assert_eq!(got, world.expected(0));
        prop_assert_eq!(world.session.in_flight(), 0);
    }

    #[test]
    fn decisions_depend_on_the_form_and_not_on_what_ends_first(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        policy in any_policy(),
        form in any_form(),
    ) {
        let settings = transforming(settings(policy, 50, 1, OnError::Fail), 2, form);
        let decisions = |picks: &[usize]| {
            let mut world = Play::new(&settings);
            world.play(picks, 0);
            world.session.progress().decisions()
        };
        prop_assert_eq!(decisions(&picks), decisions(&[1]));
    }
}

/// The number of operations of which every order is played; later ones end in the order in which they were
/// given out.
const CHOICES: usize = 11;

/// Plays a job of few samples. `choices` select the operation to end; after them it is the first. Returns
/// the number of operations to choose from each time.
fn play_choices(settings: &Settings, choices: &[usize]) -> (Vec<usize>, Play) {
    let mut world = Play::new(settings);
    let mut widths = Vec::new();
    loop {
        while world.take(0) || world.ask(0) {}
        if world.plane.running.is_empty() {
            return (widths, world);
        }
        let choice = choices.get(widths.len()).copied().unwrap_or(0);
        widths.push(world.plane.running.len());
        world.end_one(choice, 0);
    }
}

/// The next choices in the order of an odometer; `None` after the last.
fn next_choices(choices: &[usize], widths: &[usize]) -> Option<Vec<usize>> {
    let mut next: Vec<usize> =
        choices.iter().copied().chain(core::iter::repeat(0)).take(widths.len()).collect();
    while let Some(last) = next.pop() {
        if last + 1 < widths[next.len()] {
            next.push(last + 1);
            return Some(next);
        }
    }
    None
}

#[test]
fn under_every_order_of_completions_rows_are_those_of_their_samples() {
    for (form, policy) in [
        (Form::Stored, policy::Kind::Lru),
        (Form::Prepared, policy::Kind::Lru),
        (Form::Prepared, policy::Kind::Gap),
    ] {
        let mut small = settings(policy, 3, 1, OnError::Fail);
        small.order.batch_size = 1;
        small.order.epochs = 2;
        small.tiers.truncate(1);
        small.tiers[0].chunks_max = 1;
        small.staged_batches = 2;
        small.windows = windows(2, 1);
        small.sizes = [200, 40, 390].map(Bytes).into();
        let small = transforming(small, 1, form);
        let (mut choices, mut orders) = (Vec::new(), 0_u32);
        let (_, first) = play_choices(&small, &[]);
        let decisions = first.session.progress().decisions();
        loop {
            let (widths, world) = play_choices(&small, &choices);
            assert_eq!(world.trainers[0].got, world.expected(0), "{choices:?}");
            assert_eq!(world.session.progress().decisions(), decisions, "{choices:?}");
            assert_eq!(world.session.in_flight(), 0);
            orders += 1;
            let chosen = &widths[..widths.len().min(CHOICES)];
            let Some(next) = next_choices(&choices, chosen) else { break };
            choices = next;
        }

        assert!(orders > 2_000, "{orders} orders of {form:?}, {policy:?}");
    }
}

#[test]
fn a_tier_takes_the_stored_form_while_its_row_is_still_made() {
    let mut settings = settings(policy::Kind::Lru, 8, 1, OnError::Fail);
    settings.sizes = (0..8).map(|_| Bytes(200)).collect();
    let kept = |form| {
        let mut world = Play::new(&transforming(settings.clone(), 1, form));
        loop {
            let running = &world.plane.running;
            let is_transform = |it: &Operation| matches!(it, Operation::Transform { .. });
            if running.iter().any(|(_, it)| matches!(it, Operation::Demote { .. })) {
                return true;
            }
            let Some(at) = running.iter().position(|(_, it)| !is_transform(it)) else {
                return false;
            };
            world.end_one(at, 0);
        }
    };
    assert!(kept(Form::Stored));
    assert!(!kept(Form::Prepared), "the prepared form is there when the row is");
}

impl Play {
    /// Lets operations end until one is a transform, and takes that.
    fn take_transform(&mut self) -> (OpId, SampleId) {
        loop {
            let running = &mut self.plane.running;
            let mut transforms = running.iter().enumerate().filter_map(|(at, (_, it))| match it {
                Operation::Transform { sample, .. } => Some((at, *sample)),
                _ => None,
            });
            if let Some((at, sample)) = transforms.next() {
                return (running.swap_remove(at).0, sample);
            }
            self.end_one(0, 0);
        }
    }
}

#[test]
fn a_sample_that_cannot_be_transformed_is_skipped_or_refuses_its_batch_by_name() {
    for (on_error, form) in [(SKIP_ALL, Form::Stored), (OnError::Fail, Form::Prepared)] {
        let settings = transforming(settings(policy::Kind::Lru, 4, 1, on_error), 1, form);
        let mut world = Play::new(&settings);
        world.ask(0);
        let (op, sample) = world.take_transform();
        let outcome = Err(Fault::Untransformable);
        world.tell(Event::Transformed { op, outcome, took: Nanoseconds(7) });
        world.play(&[3, 5, 7], 0);
        let progress = world.session.progress();
        assert_eq!(progress.faults[0], (sample, Fault::Untransformable));
        assert_eq!(progress.tier_faults, 0, "no tier did anything wrong");
        let refused = &world.trainers[0].refused;
        match on_error {
            OnError::Skip(_) => assert_eq!((world.skipped, refused.len()), (1, 0)),
            OnError::Fail => {
                let reason = Refusal::Unreadable(sample, Fault::Untransformable);
                assert_eq!(refused[0].1, reason);
            }
        }
        assert_eq!(transforms(&world.session)[0].failed, 1);
    }
}

#[test]
fn a_batch_without_a_worker_is_refused_so_that_the_trainer_makes_its_rows() {
    for (on_error, form) in [(SKIP_ALL, Form::Stored), (OnError::Fail, Form::Prepared)] {
        let settings = transforming(settings(policy::Kind::Lru, 4, 1, on_error), 1, form);
        let mut world = Play::new(&settings);
        world.ask(0);
        let (op, _) = world.take_transform();
        let outcome = Err(Fault::NoWorker);
        world.tell(Event::Transformed { op, outcome, took: Nanoseconds(0) });
        world.play(&[3, 5, 7], 0);
        let refused = &world.trainers[0].refused;
        assert_eq!(world.skipped, 0, "{on_error:?}");
        assert_eq!(refused.len(), 1);
        assert_eq!(refused[0].1, Refusal::NoWorker, "{on_error:?}");
    }
}

#[test]
fn what_takes_several_steps_to_transform_is_fetched_so_many_steps_before_its_batch() {
    let mut settings = settings(policy::Kind::None, 8, 1, OnError::Fail);
    settings.order.batch_size = 1;
    settings.staged_batches = 6;
    settings.arena = Bytes(16 * 4096);
    settings.windows = windows(1, 1);
    let order = settings.order.epoch(Epoch(0)).unwrap();
    let slow = order.batch(Rank(0), Step(3)).next().unwrap();
    settings.sizes = (0..8).map(|it| Bytes(if it == slow.0 { 390 } else { 40 })).collect();
    let fetched = |took| {
        let mut world = Play::new(&transforming(settings.clone(), 1, Form::Stored));
        // A step takes a second.
        for number in 1..4 {
            let (batch, now) = (BatchNumber { rank: Rank(0), number }, Nanoseconds(number * 1_000));
            world.session.deadlines.delivered(batch, now, Nanoseconds(0));
        }
        for (len, took) in [(40, 10), (390, took)] {
            let times = &mut world.session.progress.transform_times;
            times.note(Form::Stored, Bytes(len), Nanoseconds(took));
        }
        let mut steps = Vec::new();
        while steps.len() < 6 {
            if let Some((_, Operation::Fetch { sample, .. })) = world.plane.running.first() {
                let step = (0..8)
                    .find(|step| order.batch(Rank(0), Step(*step)).next().as_ref() == Some(sample));
                steps.extend(step);
            }
            world.end_one(0, 0);
        }
        assert_eq!(steps.iter().collect::<BTreeSet<_>>().len(), 6, "each once: {steps:?}");
        steps
    };
    assert_eq!(fetched(10), [0, 1, 2, 3, 4, 5]);
    assert_eq!(fetched(2_500), [0, 1, 3, 2, 4, 5], "two whole steps: beside the second batch");
    assert_eq!(fetched(3_100), [0, 3, 1, 2, 4, 5]);
}
