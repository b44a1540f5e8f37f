//! The tier of each sample after each of its uses in an epoch, decided for the whole epoch.
//!
//! A plan depends on the orders, the capacities of the tiers and the plan of the previous epoch, so
//! it can be made on any thread, ahead of the epoch ([`super::job`]).

use alloc::{vec, vec::Vec};

use super::{
    balance::{Batch, Candidate, Chooser, Decision, Fill, Origin},
    class::Class,
    exchange::{Exchange, Turnover},
    quota::{self, Boundaries},
    requests::{Lengths, Threshold},
    state::{GAP_MAX, Standing, State, States, TIERS_MAX, for_each_batch},
    table::Table,
};
use crate::{
    id::{Epoch, SampleId},
    order::Spec,
    retention::{
        future_accesses::Orders,
        policy::{Saves, Setting},
        residency::TierMap,
    },
    space::Space,
    units::{Bytes, float},
};

/// From this number of epochs on a run keeps equally much in every epoch, which costs it 0.06
/// epochs' hits at its start and end (three nodes, half of the dataset); shorter runs keep as much
/// as they can.
const LONG_RUN: u32 = 16;

#[derive(Debug)]
pub(super) struct Plan {
    spec: Spec,
    lookahead: u32,
    room: Room,
    /// Bytes that an epoch after the planned one is expected to read on this node, by gap.
    expected: Vec<u64>,
    wears: Vec<bool>,
    lengths: Option<Lengths>,
    samples: States,
    /// Bytes that earlier epochs keep in the first tiers together, by the last epoch for which they keep
    /// them.
    kept: Vec<Vec<u64>>,
    planned: Epoch,
    /// The last epoch whose reads the samples know; `None` unless they know all epochs from the planned one
    /// on.
    known: Option<Epoch>,
}

/// The room that the dataset needs in the tiers.
#[derive(Debug, Clone)]
pub(super) struct Room {
    useful: Vec<Bytes>,
    total: u64,
    saves: Saves,
}

impl Room {
    pub(super) fn fits(&self, capacities: impl Iterator<Item = Bytes>) -> bool {
        let all = self.sums(capacities).last();
        self.saves == Saves::Bytes && all.is_some_and(|all| all >= self.total)
    }

    fn sums(&self, capacities: impl Iterator<Item = Bytes>) -> impl Iterator<Item = u64> {
        let useful = self.useful.iter().copied().chain(core::iter::repeat(Bytes(u64::MAX)));
        let each = capacities.take(TIERS_MAX).zip(useful);
        each.scan(0_u64, |sum, (capacity, useful)| {
            *sum = sum.saturating_add(capacity.min(useful).0);
            Some(*sum)
        })
    }
}

impl Plan {
    pub(super) fn new(setting: &Setting) -> Self {
        let spec = setting.order;
        let total: u64 = setting.sizes.iter().map(|len| Space::rounded(*len).0).sum();
        let capacity: u64 = setting.capacities.iter().map(|capacity| capacity.0).sum();
        let lookahead = lookahead(&spec, ratio(capacity, total));
        let expected = quota::shares(spec.world.nodes).map(|share| quota::part(total, share));
        let lengths = match setting.aim.saves {
            Saves::Bytes => None,
            Saves::Requests => Some(Lengths::new(&setting.sizes, spec.world.nodes, lookahead)),
        };
        Self {
            spec,
            lookahead,
            expected: expected.take(lookahead as usize).collect(),
            wears: setting.aim.wears.clone(),
            room: Room { useful: setting.aim.useful.clone(), total, saves: setting.aim.saves },
            lengths,
            samples: States::new(setting.sizes.iter().map(|len| State::new(*len))),
            kept: vec![vec![0; lookahead as usize]; setting.capacities.len().min(TIERS_MAX)],
            planned: spec.start.epoch,
            known: None,
        }
    }

    pub(super) fn lookahead(&self) -> u32 {
        self.lookahead
    }

    pub(super) fn room(&self) -> &Room {
        &self.room
    }

    /// Starts anew from the residency after a jump of the trainer. Returns the samples that must leave
    /// their tier because they are not used in the epochs looked into: no later plan would evict them.
    pub(super) fn restart(
        &mut self,
        epoch: Epoch,
        orders: &Orders,
        tier_map: &TierMap,
    ) -> Vec<SampleId> {
        let mut is_used = vec![false; self.samples.len()];
        for epoch in epoch.0..=epoch.0.saturating_add(self.lookahead) {
            let order = orders.get(&Epoch(epoch)).map(|order| order.samples());
            for sample in order.unwrap_or_default() {
                is_used[sample.0 as usize] = true;
            }
        }
        let mut unused = Vec::new();
        for (sample, is_used) in (0..self.spec.all_samples()).map(SampleId).zip(is_used) {
            let lies = tier_map.tier_of(sample);
            if lies.is_some() && !is_used {
                unused.push(sample);
            }
            self.samples.get_mut(sample).forget_plan(lies.filter(|_| is_used));
        }
        self.kept.iter_mut().for_each(|kept| kept.fill(0));
        self.planned = epoch;
        self.known = None;
        unused
    }

    pub(super) fn epoch(&mut self, epoch: Epoch, orders: &Orders, capacities: &[Bytes]) -> Table {
        for kept in &mut self.kept {
            let gone = (epoch.0 - self.planned.0).min(self.lookahead) as usize;
            kept.drain(..gone);
            kept.resize(self.lookahead as usize, 0);
        }
        if self.known.is_some() && self.planned.0 + 1 != epoch.0 {
            self.samples.iter_mut().for_each(State::forget_uses);
            self.known = None;
        }
        self.planned = epoch;
        let supply = self.find_gaps(orders);
        let sums: Vec<_> = self.room.sums(capacities.iter().copied()).collect();
        match &self.lengths {
            None => self.save_bytes(&supply, orders, &sums),
            Some(lengths) => {
                let thresholds: Vec<_> = sums.iter().map(|sum| lengths.threshold(*sum)).collect();
                self.save_requests(&thresholds, orders);
            }
        }
        self.conclude(orders)
    }

    /// Finds the next use of each sample that the epoch reads.
    ///
    /// The reads of an epoch are recorded once, when it comes into view.
    fn find_gaps(&mut self, orders: &Orders) -> Supply {
        let (epoch, samples) = (self.planned, &mut self.samples);
        let mut supply = Supply::none(self.lookahead as usize, self.kept.len());
        let mut place = 0;
        for_each_batch(&self.spec, orders, epoch, &mut |batch| {
            samples.visit_mut(batch, |_, state| {
                if state.enter(epoch, place)
                    && let Some(gap) = state.gap(epoch)
                {
                    supply.add(gap, state);
                }
                place += 1;
            });
        });
        let last = epoch.0.saturating_add(self.lookahead);
        let new = self.known.map_or(epoch.0, |known| known.0) + 1..=last;
        for (later, order) in new.filter_map(|later| Some((later, orders.get(&Epoch(later))?))) {
            let gap = (later - epoch.0) as usize;
            samples.visit_mut(order.samples(), |_, state| {
                if state.is_used_in(Epoch(later)) {
                    supply.add(gap, state);
                }
            });
        }
        self.known = Some(Epoch(last));
        supply
    }

    fn save_bytes(&mut self, supply: &Supply, orders: &Orders, capacities: &[u64]) {
        let classes = self.classes(&supply.of_gap, capacities);
        if classes.iter().any(Class::is_kept) {
            self.deal(&classes, &supply.resident, orders);
        }
        for (gap, class) in (1..).zip(&classes) {
            if class.is_partly_kept() {
                self.balance(gap, class, orders);
            }
        }
    }

    fn save_requests(&mut self, thresholds: &[Threshold], orders: &Orders) {
        let Some(order) = orders.get(&self.planned) else { return };
        let planned = self.planned;
        self.samples.visit_mut(order.samples(), |sample, state| {
            let tier = state.gap(planned).and_then(|gap| {
                let cost = state.len().saturating_mul(gap as u64);
                thresholds.iter().position(|threshold| threshold.keeps(sample, cost))
            });
            state.decide(tier.and_then(|tier| u8::try_from(tier).ok()));
        });
    }

    /// The bytes of each gap that stay, by tier.
    fn classes(&self, supply: &[u64], capacities: &[u64]) -> Vec<Class> {
        let left = (self.spec.epochs - 1 - self.planned.0) as usize;
        let mut classes: Vec<_> = supply.iter().map(|supply| Class::new(*supply)).collect();
        for (&capacity, kept) in capacities.iter().zip(&self.kept) {
            let expected = &self.expected;
            let steady = match self.spec.epochs {
                ..LONG_RUN => vec![0; expected.len()],
                _ => quota::steady(capacity, expected),
            };
            let boundaries = Boundaries { capacity, supply, kept, expected, steady: &steady, left };
            for (class, quota) in classes.iter_mut().zip(quota::quota(&boundaries)) {
                class.tiers.push(quota.saturating_sub(class.kept()));
            }
        }
        classes
    }

    /// Assigns a tier to every sample whose gap is kept in full: its present tier where possible.
    fn deal(&mut self, classes: &[Class], resident: &[Vec<u64>], orders: &Orders) {
        let Some(order) = orders.get(&self.planned) else { return };
        let planned = self.planned;
        let distributions =
            classes.iter().zip(resident).map(|(class, resident)| class.distribution(resident));
        let mut distributions: Vec<_> = distributions.collect();
        self.samples.visit_mut(order.samples(), |_, state| {
            if let Some(gap) = state.gap(planned).filter(|gap| classes[gap - 1].is_kept()) {
                let (distribution, len) = (&mut distributions[gap - 1], state.len());
                let stays = state.tier().filter(|tier| distribution.stays(*tier, len));
                let tier = stays.unwrap_or_else(|| distribution.enters(len));
                state.decide(Some(tier));
            }
        });
    }

    /// Decides which samples of a gap stay, by the batches that use them next.
    fn balance(&mut self, gap: usize, class: &Class, orders: &Orders) {
        let target = Epoch(self.planned.0 + u32::try_from(gap).expect("at most GAP_MAX"));
        let Survey { batches, shortest, fill } = self.survey(target, gap, orders);
        let mut chooser = Chooser::new(&batches, class.kept(), shortest, fill);
        let turnover = if self.spec.world.nodes == 1 { Turnover::Own } else { Turnover::Common };
        let mut exchange = Exchange::new(&class.tiers, turnover);
        let mut batches = batches.into_iter();
        let mut candidates = Vec::new();
        let (states, planned) = (&mut self.samples, self.planned);
        for_each_batch(&self.spec, orders, target, &mut |samples| {
            candidates.clear();
            states.visit(samples, |sample, state| {
                if state.standing(planned, gap) == Standing::Open {
                    candidates.push(candidate(sample, state, &self.wears));
                }
            });
            let batch = batches.next().expect("as many as were surveyed");
            chooser.choose(batch, &mut candidates, &mut |candidate, decision| {
                let state = states.get_mut(candidate.sample);
                match (decision, state.tier()) {
                    (Decision::Stays, Some(tier)) if exchange.stays(tier, candidate.len) => {
                        state.decide(Some(tier));
                    }
                    (Decision::Leaves, Some(tier)) => exchange.leaves(candidate, tier),
                    _ => exchange.enters(candidate),
                }
            });
        });
        exchange.settle(&mut |sample, tier| {
            self.samples.get_mut(sample).decide(Some(tier));
        });
    }

    fn survey(&self, target: Epoch, gap: usize, orders: &Orders) -> Survey {
        let mut survey = Survey { batches: Vec::new(), shortest: u64::MAX, fill: Fill::Empty };
        for_each_batch(&self.spec, orders, target, &mut |samples| {
            let mut batch = Batch::default();
            self.samples.visit(samples, |_, state| match state.standing(self.planned, gap) {
                Standing::Open => {
                    batch.cold += state.len();
                    batch.open += state.len();
                    survey.shortest = survey.shortest.min(state.len());
                    if state.tier().is_some() {
                        survey.fill = Fill::Full;
                    }
                }
                Standing::Cold => batch.cold += state.len(),
                Standing::Kept => {}
            });
            survey.batches.push(batch);
        });
        survey
    }

    fn conclude(&mut self, orders: &Orders) -> Table {
        let mut table = Table::new(self.samples.len());
        let Some(order) = orders.get(&self.planned) else { return table };
        let Self { samples, kept, planned, .. } = self;
        samples.visit_mut(order.samples(), |sample, state| {
            if let (Some(tier), Some(gap)) = (state.decided(), state.gap(*planned)) {
                for kept in &mut kept[usize::from(tier)..] {
                    kept[gap - 1] += state.len();
                }
            }
            table.set(sample, state.decided());
            state.leave();
        });
        table
    }
}

/// The bytes that an epoch reads and that are used again in view.
struct Supply {
    of_gap: Vec<u64>,
    /// For each gap, the bytes that lie in a tier when they are read, by tier.
    resident: Vec<Vec<u64>>,
}

impl Supply {
    fn none(gaps: usize, tiers: usize) -> Self {
        Self { of_gap: vec![0; gaps], resident: vec![vec![0; tiers]; gaps] }
    }

    fn add(&mut self, gap: usize, state: &State) {
        self.of_gap[gap - 1] += state.len();
        if let Some(tier) = state.tier() {
            self.resident[gap - 1][usize::from(tier)] += state.len();
        }
    }
}

/// The bytes of the batches of an epoch that can be decided now.
struct Survey {
    batches: Vec<Batch>,
    /// The length of the shortest sample that may stay.
    shortest: u64,
    /// Whether any of those samples lies in a tier.
    fill: Fill,
}

fn candidate(sample: SampleId, state: &State, wears: &[bool]) -> Candidate {
    let origin = match state.tier() {
        None => Origin::Cold,
        Some(tier) if wears.get(usize::from(tier)) == Some(&true) => Origin::Worn,
        Some(_) => Origin::Tier,
    };
    Candidate { sample, len: state.len(), place: state.place, origin }
}

/// Epochs to look into: those whose samples stay in a long run, and some more, because at the start
/// and towards the end of a run there is room for longer gaps.
fn lookahead(spec: &Spec, cached: f64) -> u32 {
    if cached >= 1.0 {
        return 1;
    }
    let most = GAP_MAX.min(spec.epochs.saturating_sub(1)).max(1);
    let last = quota::last_gap(cached, spec.world.nodes, most);
    if spec.world.nodes == 1 { 1 } else { (last + last / 2 + 2).min(most) }
}

fn ratio(part: u64, whole: u64) -> f64 {
    float(part) / float(whole.max(1))
}
