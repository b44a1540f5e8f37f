//! Belady's rule compared with every other choice.

use super::*;

/// All orders of `len` reads in which sample n is read for the first time after all below n, with
/// at most `samples` different ones: every order up to renaming.
fn orders(len: usize, samples: u32) -> Vec<Vec<u32>> {
    let mut orders = vec![Vec::new()];
    for _ in 0..len {
        let longer = |order: Vec<u32>| {
            let new = order.iter().max().map_or(0, |max| max + 1).min(samples - 1);
            (0..=new).map(move |sample| [&order[..], &[sample]].concat())
        };
        orders = orders.into_iter().flat_map(longer).collect();
    }
    orders
}

/// The most hits that any choice of what to keep achieves, with a cache of `room` samples of at
/// most 8.
fn hits_max(order: &[u32], room: u32) -> u32 {
    // Hits by the set of kept samples, as bits.
    let mut best = [None; 256];
    best[0] = Some(0);
    for sample in order {
        let mut next = [None; 256];
        for (kept, hits) in best.iter().enumerate().filter_map(|(kept, it)| Some((kept, (*it)?))) {
            let hits = hits + u32::from(kept & 1 << sample != 0);
            let candidates = kept | 1 << sample;
            for chosen in (0..256_usize).filter(|it| it & !candidates == 0) {
                if chosen.count_ones() <= room {
                    next[chosen] = next[chosen].max(Some(hits));
                }
            }
        }
        best = next;
    }
    best.into_iter().flatten().max().unwrap_or(0)
}

const TIERS: [&[u32]; 7] = [&[1], &[2], &[3], &[1, 1], &[2, 1], &[1, 2], &[1, 1, 1]];

#[test]
fn no_choice_has_more_hits_in_the_first_tiers_than_belady_however_many_they_are() {
    for order in orders(7, 4) {
        let best: Vec<_> = (0..4).map(|room| hits_max(&order, room)).collect();
        for tiers in TIERS {
            for kind in [Kind::Belady, Kind::LobsterLazy, Kind::Lobster] {
                let mut stage = Stage::published(kind, &order, 1, tiers);
                let mut hits = vec![0; tiers.len()];
                for place in 0..7 {
                    let (_, tier) = stage.read(0, place);
                    let counted = tier.map_or(tiers.len(), |tier| usize::from(tier.0));
                    hits[counted..].iter_mut().for_each(|hits| *hits += 1);
                }
                let mut room = 0;
                for (tier, hits) in tiers.iter().zip(hits) {
                    room += tier;
                    let best = best[room as usize];
                    assert_eq!(hits, best, "{kind}, {order:?}, {tiers:?}: {room} together");
                }
            }
        }
    }
}

/// The first tiers hit as often as one tier of their joint size, though they look less far ahead.
#[test]
fn tiers_of_belady_are_one_cache_on_several_nodes_too() {
    let order = order(3_000, 3, 12);
    let hits = |tiers: &[u32]| {
        let mut stage = Stage::new(Kind::Belady, &setting(order, tiers));
        let mut hits = vec![0; tiers.len()];
        for epoch in 0..12 {
            for place in 0..1_000 {
                let (_, tier) = stage.read(epoch, place);
                tier.into_iter().for_each(|tier| hits[usize::from(tier.0)] += 1_u32);
            }
        }
        hits
    };
    let tiers = hits(&[300, 600]);
    let [first, joint] = [&[300][..], &[900]].map(|tiers| hits(tiers)[0]);
    assert!(tiers[0].abs_diff(first) <= 12, "{tiers:?}, {first}");
    assert!((tiers[0] + tiers[1]).abs_diff(joint) <= 12, "{tiers:?}, {joint}");
}

/// Eight nodes whose caches bridge twenty epochs: it looks ahead for 22 of 40.
#[test]
fn belady_looks_as_far_ahead_as_it_must() {
    let setting = setting(order(4_000, 8, 40), &[3_000]);
    let cold = |ahead: u32| {
        let mut stage = Stage::new(Kind::Belady, &setting);
        stage.future = FutureAccesses::new(setting.order, setting.node, ahead);
        let mut reads = (0..40).flat_map(|epoch| (0..500).map(move |place| (epoch, place)));
        reads.by_ref().filter(|(epoch, place)| stage.read(*epoch, *place).1.is_none()).count()
    };
    let ahead = build(Kind::Belady, &setting).lookahead();
    assert_eq!(ahead, 22);
    let (cold_as_built, cold_least) = (cold(ahead), cold(40));
    assert!(cold_as_built.abs_diff(cold_least) <= 20, "{cold_as_built} and {cold_least} of 20,000");
    assert!(cold(2) > cold_least + 1_000, "with less it must guess");
}
