//! The order of the tiers is the same for every order of the places, and never contradicts their costs.

use super::*;

fn places() -> impl Strategy<Value = Vec<Profile>> {
    let place = (0_usize..4, any::<bool>(), 50.0_f64..100_000.0, 0.5_f64..100.0);
    let place = place.prop_map(|(kind, is_node, latency, rate)| match Kind::ALL[kind] {
        kind @ (Kind::MainMemory | Kind::CxlMemory) if is_node => node(kind, latency, rate),
        kind => alone(kind, latency, rate),
    });
    collection::vec(place, 1..10)
}

fn cost(places: &[Profile], tier: &[usize]) -> f64 {
    places[slowest(places, tier)].rated().chunk_cost_ns().unwrap()
}

proptest! {
    #[test]
    fn a_shuffled_host_has_the_same_tiers_in_the_same_order(
        (places, shuffled) in places().prop_flat_map(|places| {
            let indices: Vec<usize> = (0..places.len()).collect();
            (Just(places), Just(indices).prop_shuffle())
        })
    ) {
        let moved: Vec<Profile> = shuffled.iter().map(|index| places[*index]).collect();
        let mut back = classify(&moved);
        for tier in &mut back {
            tier.iter_mut().for_each(|index| *index = shuffled[*index]);
            tier.sort_unstable();
        }
        prop_assert_eq!(back, classify(&places));
    }

    #[test]
    fn no_tier_stands_before_one_that_is_clearly_cheaper(places in places()) {
        let tiers = classify(&places);
        for (index, tier) in tiers.iter().enumerate() {
            for later in &tiers[index + 1..] {
                prop_assert!(cost(&places, tier) <= cost(&places, later) * RATIO_MAX);
            }
        }
    }
}

#[test]
fn a_faster_ram_disk_on_cxl_stands_before_a_slower_one_whatever_comes_first() {
    let (slow, fast) = (alone(Kind::Scratch, 1_500.0, 9.0), alone(Kind::Scratch, 2_000.0, 10.0));
    assert_eq!(classify(&[slow, fast]), [[1], [0]]);
    assert_eq!(classify(&[fast, slow]), [[0], [1]]);
    let (slow, fast) = (node(Kind::CxlMemory, 300.0, 10.0), node(Kind::CxlMemory, 450.0, 12.0));
    assert_eq!(classify(&[slow, fast]), [[1], [0]]);
}

#[test]
fn the_order_of_the_paper_results_on_an_ordinary_machine() {
    let places = [
        alone(Kind::Storage, 80_000.0, 3.0),
        alone(Kind::Scratch, 1_200.0, 9.0),
        node(Kind::CxlMemory, 280.0, 22.0),
        node(Kind::MainMemory, 108.0, 24.0),
    ];
    assert_eq!(classify(&places), [[3], [2], [1], [0]]);
}
