//! Rules of the published texts that no table shows.

use super::*;

/// Reads of samples 0 to 7, for tiers of equal samples.
fn any_reads() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(0_u32..8, 8..60)
}

fn places(reads: &[u32]) -> core::ops::Range<u32> {
    0..u32::try_from(reads.len()).unwrap()
}

/// The first samples of `order` by tier, each sorted.
fn cut(order: &[u32], tiers: &[usize]) -> Vec<Vec<u32>> {
    let mut rest = order.iter().copied();
    let of_tier = tiers.iter().map(|room| {
        let mut samples: Vec<_> = rest.by_ref().take(*room).collect();
        samples.sort_unstable();
        samples
    });
    of_tier.collect()
}

proptest! {
    #[test]
    fn lru_is_one_order_of_recency_cut_into_tiers(reads in any_reads()) {
        let mut stage = Stage::published(Kind::Lru, &reads, 1, &[2, 3, 1]);
        let mut latest: Vec<u32> = Vec::new();
        for place in places(&reads) {
            let (sample, _) = stage.read(0, place);
            latest.retain(|other| *other != sample.0);
            latest.insert(0, sample.0);
            prop_assert_eq!(stage.contents(), cut(&latest, &[2, 3, 1]));
        }
    }

    #[test]
    fn fifo_is_one_order_of_entry_cut_into_tiers(reads in any_reads()) {
        let mut stage = Stage::published(Kind::Fifo, &reads, 1, &[2, 3, 1]);
        let mut latest: Vec<u32> = Vec::new();
        for place in places(&reads) {
            let (sample, tier) = stage.read(0, place);
            if tier.is_none() {
                latest.insert(0, sample.0);
                latest.truncate(6);
            }
            prop_assert_eq!(stage.contents(), cut(&latest, &[2, 3, 1]));
        }
    }

    #[test]
    fn deli_keeps_what_fifo_keeps_and_moves_nothing(reads in any_reads()) {
        let [mut deli, mut fifo] =
            [Kind::Deli, Kind::Fifo].map(|kind| Stage::published(kind, &reads, 1, &[2, 3, 1]));
        for place in places(&reads) {
            let before: Vec<_> = (0..8).map(|sample| deli.tier(sample)).collect();
            deli.read(0, place);
            fifo.read(0, place);
            for (sample, before) in (0..8).zip(before) {
                let now = deli.tier(sample);
                prop_assert_eq!(now.is_some(), fifo.tier(sample).is_some());
                prop_assert!(before.is_none() || now.is_none() || before == now);
            }
        }
    }
}

#[test]
fn pinned_keeps_what_came_first_for_ever() {
    let mut stage = Stage::new(Kind::Pinned, &setting(order(80, 1, 3), &[9, 5]));
    let read: Vec<_> = (0..80).map(|place| stage.read(0, place).0.0).collect();
    let expected = cut(&read, &[9, 5]);
    assert_eq!(stage.contents(), expected);
    for place in 0..160 {
        stage.read(1 + place / 80, place % 80);
        assert_eq!(stage.contents(), expected);
    }
}

#[test]
fn nopfs_keeps_what_is_read_most_in_the_fastest_tier_and_gives_nothing_up() {
    let setting = setting(order(300, 3, 6), &[20, 60]);
    let mut counts = vec![0_u32; 300];
    for epoch in (0..6).map(Epoch) {
        for sample in setting.order.epoch_of(NodeId(0), epoch).unwrap().samples() {
            counts[sample.0 as usize] += 1;
        }
    }
    let mut stage = Stage::new(Kind::NoPfs, &setting);
    let mut before = stage.contents();
    for place in 0..600 {
        stage.read(place / 100, place % 100);
        let now = stage.contents();
        assert!(before.iter().zip(&now).all(|(old, new)| old.iter().all(|it| new.contains(it))));
        before = now;
    }
    let least = |tier: u8| {
        (0..300).filter(|it| stage.tier(*it) == Some(tier)).map(|it| counts[it as usize]).min()
    };
    let most =
        |tier| (0..300).filter(|it| stage.tier(*it) == tier).map(|it| counts[it as usize]).max();
    assert_eq!(before.iter().map(Vec::len).collect::<Vec<_>>(), [20, 60]);
    assert!(least(0) >= most(Some(1)) && least(1) >= most(None));
    assert!(least(0) > most(None), "the counts differ");
}

#[test]
fn nopfs_pins_what_comes_first_where_there_is_nothing_to_count() {
    let mut stage = Stage::published(Kind::NoPfs, &[3, 1, 3, 2, 0], 1, &[1, 1]);
    for place in 0..5 {
        stage.read(0, place);
    }
    assert_eq!(stage.contents(), [[3], [1]]);
}

#[test]
fn lobster_keeps_with_room_to_spare_just_what_the_next_epoch_uses() {
    let setting = setting(order(300, 3, 6), &[300]);
    let samples =
        |epoch| setting.order.epoch_of(NodeId(0), Epoch(epoch)).unwrap().samples().to_vec();
    let [mut eager, mut lazy] =
        [Kind::Lobster, Kind::LobsterLazy].map(|kind| Stage::new(kind, &setting));
    for epoch in 0..5 {
        let next = samples(epoch + 1);
        let dropped = (0..100).filter(|place| {
            let (sample, _) = eager.read(epoch, *place);
            lazy.read(epoch, *place);
            assert_eq!(eager.tier(sample.0).is_some(), next.contains(&sample));
            assert!(lazy.tier(sample.0).is_some());
            eager.tier(sample.0).is_none()
        });
        assert!(dropped.count() > 50);
    }
    for place in 0..100 {
        eager.read(5, place);
    }
    assert_eq!(eager.residency.kept(), 0, "nothing is used again");
}

#[test]
fn lobster_takes_an_epoch_that_is_not_published_for_one_that_may_use_everything() {
    let order = Spec { shuffle: Shuffle::Published, ..order(10, 1, 2) };
    let mut stage = Stage::new(Kind::Lobster, &setting(order, &[4]));
    let samples: Vec<_> = (0..10).map(SampleId).collect();
    stage.future.publish(Rank(0), Epoch(0), samples.into());
    for place in 0..10 {
        stage.read(0, place);
    }
    assert_eq!(stage.contents(), [[0, 1, 2, 3]]);
}

#[test]
fn lazy_lobster_hits_whenever_belady_does() {
    let setting = setting(order(600, 3, 8), &[50, 80]);
    let [mut lazy, mut belady] =
        [Kind::LobsterLazy, Kind::Belady].map(|kind| Stage::new(kind, &setting));
    for place in 0..8 * 200 {
        let [lazy, belady] = [&mut lazy, &mut belady].map(|it| it.read(place / 200, place % 200).1);
        assert_eq!(lazy.is_some(), belady.is_some(), "read {place}");
    }
}

/// A trainer resumes behind the place in epoch 3 where it would have read what it kept in epoch 0.
#[test]
fn belady_does_not_wait_for_ever_for_what_was_left_out() {
    for seed in 0..20 {
        let order = Spec { seed, ..order(40, 1, 5) };
        let mut stage = Stage::new(Kind::Belady, &setting(order, &[1]));
        let (left_out, _) = stage.read(0, 0);
        let place_of = |sample: SampleId, epoch| {
            let samples = order.epoch_of(NodeId(0), Epoch(epoch)).unwrap().samples().to_vec();
            u32::try_from(samples.iter().position(|other| *other == sample).unwrap()).unwrap()
        };
        let rest = place_of(left_out, 3) + 1..40;
        let mut read: Vec<_> = rest.map(|place| stage.read(3, place).0).collect();
        read.push(left_out);
        let soonest = read.into_iter().min_by_key(|sample| place_of(*sample, 4)).unwrap();
        assert_eq!(stage.contents(), [[soonest.0]]);
    }
}

#[test]
fn the_page_cache_protects_what_is_read_twice_within_its_reach() {
    // Four fit. 1 is read twice in a row; 0 returns after one eviction; 2 after five.
    let reads = [0, 1, 2, 3, 1, 4, 0, 5, 6, 7, 2, 8, 9];
    let mut stage = Stage::published(Kind::PageCache, &reads, 1, &[4]);
    let mut kept = Vec::new();
    for place in places(&reads) {
        stage.read(0, place);
        kept = stage.contents().remove(0);
    }
    assert_eq!(kept, [0, 1, 8, 9]);
}

#[test]
fn the_page_cache_takes_from_its_active_list_when_the_other_one_is_too_short() {
    let reads: Vec<u32> = (0..42).chain(0..41).chain([42, 43]).collect();
    let mut stage = Stage::published(Kind::PageCache, &reads, 1, &[42]);
    for place in places(&reads) {
        stage.read(0, place);
    }
    let kept: Vec<u32> = (1..41).chain([42, 43]).collect();
    assert_eq!(stage.contents(), [kept], "41 was never read twice, and 0 longest ago");
}

#[test]
fn what_deepmemory_gives_up_goes_down_if_it_is_needed_soon() {
    // Five steps of two fill the fastest tier. 0 is needed in step 8, 1 beyond the ten that fit.
    let mut reads: Vec<u32> = (0..40).collect();
    (reads[16], reads[38]) = (0, 1);
    let mut stage = Stage::published(Kind::DeepMemory, &reads, 2, &[10, 10]);
    for place in 0..11 {
        stage.read(0, place);
    }
    assert_eq!(stage.contents(), [(2..11).collect(), vec![0]]);
}

#[test]
fn what_deepmemory_has_no_space_for_enters_one_tier_lower() {
    // Eight of ten are below the threshold, so a step of four finds space for two.
    let reads: Vec<u32> = (0..40).collect();
    let mut stage = Stage::published(Kind::DeepMemory, &reads, 4, &[10, 10]);
    for place in 0..12 {
        stage.read(0, place);
    }
    assert_eq!(stage.contents(), [(0..10).collect::<Vec<_>>(), vec![10, 11]]);
    stage.read(0, 12);
    assert_eq!(stage.contents(), [(2..10).chain([12]).collect::<Vec<_>>(), vec![10, 11]]);
}

fn tuned(setting: &Setting, tuning: Tuning) -> Setting {
    Setting { aim: Aim { tuning, ..Aim::default() }, ..setting.clone() }
}

fn reuse(count: u32, distance: Distance) -> Tuning {
    Tuning { lobster: Reuse { count, distance }, ..Tuning::default() }
}

#[test]
fn lobster_keeps_with_room_to_spare_just_what_the_epochs_of_its_distance_use() {
    let base = setting(order(300, 3, 8), &[300]);
    let samples = |epoch| base.order.epoch_of(NodeId(0), Epoch(epoch)).unwrap().samples().to_vec();
    let mut stage = Stage::new(Kind::Lobster, &tuned(&base, reuse(0, Distance::Epochs(2))));
    for epoch in 0..5 {
        let soon = [samples(epoch + 1), samples(epoch + 2)].concat();
        for place in 0..100 {
            let (sample, _) = stage.read(epoch, place);
            assert_eq!(stage.tier(sample.0).is_some(), soon.contains(&sample));
        }
    }
}

#[test]
fn lobster_keeps_just_what_is_used_within_its_distance_in_steps() {
    // Ten reads a step: what is read in step 9 and in step 0 of the next epoch is one step away.
    let base = setting(order(100, 1, 3), &[100]);
    let samples = |epoch| base.order.epoch_of(NodeId(0), Epoch(epoch)).unwrap().samples().to_vec();
    let next = samples(1);
    let mut stage = Stage::new(Kind::Lobster, &tuned(&base, reuse(0, Distance::Steps(6))));
    let mut kept = 0;
    for place in 0..100 {
        let (sample, _) = stage.read(0, place);
        let again = next.iter().position(|other| *other == sample).unwrap() / 10;
        let is_near = 10 + again - place as usize / 10 <= 6;
        assert_eq!(stage.tier(sample.0).is_some(), is_near, "{sample:?}");
        kept += usize::from(is_near);
    }
    assert!((5..50).contains(&kept), "{kept}");
}

#[test]
fn lobster_evicts_what_has_no_more_uses_left_than_its_count() {
    let base = setting(order(300, 3, 8), &[300]);
    let mut left = vec![0_u32; 300];
    for epoch in (0..8).map(Epoch) {
        for sample in base.order.epoch_of(NodeId(0), epoch).unwrap().samples() {
            left[sample.0 as usize] += 1;
        }
    }
    let tuning = reuse(2, Distance::Epochs(7));
    let mut stage = Stage::new(Kind::Lobster, &tuned(&base, tuning));
    for place in 0..800 {
        let (sample, _) = stage.read(place / 100, place % 100);
        left[sample.0 as usize] -= 1;
        assert_eq!(stage.tier(sample.0).is_some(), left[sample.0 as usize] > 2, "{sample:?}");
    }
}

#[test]
fn lazy_lobster_gives_up_first_what_has_few_uses_left() {
    let base = setting(order(90, 3, 6), &[10]);
    let run = |count| {
        let tuning = reuse(count, Distance::default());
        let mut stage = Stage::new(Kind::LobsterLazy, &tuned(&base, tuning));
        let reads = (0..180).map(|place| stage.read(place / 30, place % 30).1.is_some());
        reads.filter(|hit| *hit).count()
    };
    let (belady, counted) = (run(0), run(1));
    assert!(counted < belady && counted > 0, "{counted} hits beside {belady}");
}
