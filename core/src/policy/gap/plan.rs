//! What lies in which tier after each use of an epoch, decided for the whole epoch.

use alloc::{vec, vec::Vec};

use super::{
    balance::{self, Batch, Candidate, Chooser, Fate, Origin},
    exchange::{Exchange, Turnover},
    quota::{self, Boundaries},
    requests::{Lengths, Threshold},
};
use crate::{
    books::Books,
    horizon::Horizon,
    id::{BatchId, Epoch, NodeId, SampleId, Step, TierId},
    order::{NodeOrder, Spec},
    policy::{Saves, Setting},
    units::Bytes,
};

/// In no tier.
const OUT: u8 = 0xf;

/// Set in a gap if the node reads the sample in the epoch that is planned.
const HERE: u8 = 0x80;

/// Epochs from which a run keeps as much in every epoch, which costs it 0.06 epochs' hits at its ends
/// (three nodes, half of the dataset); shorter ones keep as much as they can.
const LONG_RUN: u32 = 16;

/// Epochs that a gap can count.
const GAP_MAX: u32 = 126;

/// The tiers of samples after their uses: three bytes a sample.
#[derive(Debug)]
pub(super) struct Plan {
    spec: Spec,
    node: NodeId,
    lookahead: u32,
    /// What an epoch after the planned one is expected to read on this node, by gap.
    expected: Vec<u64>,
    wears: Vec<bool>,
    useful: Vec<Bytes>,
    /// Where requests are what must be saved.
    lengths: Option<Lengths>,
    /// After the use in an even epoch in the low half, in an odd one in the high half.
    tiers: Vec<u8>,
    /// After the last use that was planned.
    latest: Vec<u8>,
    /// Epochs from the planned one to the next use after it, if that is looked into; and [`HERE`].
    gaps: Vec<u8>,
    /// Where in the planned epoch each sample is read.
    places: Vec<u32>,
    /// What earlier epochs keep in the first tiers together, by the epoch until which they keep it.
    kept: Vec<Vec<u64>>,
    planned: Epoch,
}

impl Plan {
    pub(super) fn new(setting: &Setting) -> Self {
        let spec = setting.order;
        let samples = setting.sizes.len();
        let total: u64 = setting.sizes.iter().map(|len| len.0).sum();
        let capacity: u64 = setting.capacities.iter().map(|capacity| capacity.0).sum();
        let lookahead = lookahead(&spec, ratio(capacity, total));
        let expected = quota::shares(spec.world.nodes).map(|share| quota::part(total, share));
        let tiers = setting.capacities.len();
        let lengths = match setting.aim.saves {
            Saves::Bytes => None,
            Saves::Requests => Some(Lengths::new(&setting.sizes, spec.world.nodes, lookahead)),
        };
        Self {
            spec,
            node: setting.node,
            lookahead,
            expected: expected.take(lookahead as usize).collect(),
            wears: setting.aim.wears.clone(),
            useful: setting.aim.useful.clone(),
            lengths,
            tiers: vec![OUT << 4 | OUT; samples],
            latest: vec![OUT; samples],
            gaps: vec![0; samples],
            places: vec![0; samples],
            kept: vec![vec![0; lookahead as usize]; tiers],
            planned: spec.start.epoch,
        }
    }

    pub(super) fn lookahead(&self) -> u32 {
        self.lookahead
    }

    /// Where a sample lies after its use in an epoch that is planned, or was just before.
    pub(super) fn tier_after(&self, sample: SampleId, epoch: Epoch) -> Option<TierId> {
        let tiers = self.tiers.get(sample.0 as usize)?;
        let tier = if epoch.0.is_multiple_of(2) { tiers & 0xf } else { tiers >> 4 };
        (tier != OUT).then_some(TierId(tier))
    }

    /// Decides for every sample that the node reads in `epoch`.
    pub(super) fn epoch(&mut self, epoch: Epoch, horizon: &Horizon, books: &Books) {
        let Some(order) = horizon.epoch(epoch) else { return };
        for kept in &mut self.kept {
            let gone = (epoch.0 - self.planned.0).min(self.lookahead) as usize;
            kept.drain(..gone);
            kept.resize(self.lookahead as usize, 0);
        }
        self.planned = epoch;
        self.find_gaps(epoch, horizon);
        match &self.lengths {
            None => self.save_bytes(epoch, horizon, books),
            Some(lengths) => {
                let capacities = self.capacities(books);
                let thresholds = capacities.map(|capacity| lengths.threshold(capacity)).collect();
                self.save_requests(order.samples(), thresholds, books);
            }
        }
        for sample in order.samples() {
            let tier = self.tier_after(*sample, epoch);
            self.latest[sample.0 as usize] = tier.map_or(OUT, |tier| tier.0);
            if let (Some(tier), Some(gap)) = (tier, self.gap(*sample)) {
                for kept in &mut self.kept[usize::from(tier.0)..] {
                    kept[gap - 1] += books.len_of(*sample).0;
                }
            }
        }
    }

    fn save_bytes(&mut self, epoch: Epoch, horizon: &Horizon, books: &Books) {
        let samples = horizon.epoch(epoch).map(NodeOrder::samples).unwrap_or_default();
        let mut supply = vec![0; self.lookahead as usize];
        for sample in samples {
            if let Some(gap) = self.gap(*sample) {
                supply[gap - 1] += books.len_of(*sample).0;
            }
        }
        let classes = self.classes(epoch, &supply, books);
        self.deal(samples, &classes, books);
        for (gap, class) in (1..).zip(&classes) {
            if class.is_partly_kept() {
                self.balance(gap, class, horizon, books);
            }
        }
    }

    /// Keeps what costs least for each request, the cheapest in the fastest tier.
    fn save_requests(&mut self, samples: &[SampleId], thresholds: Vec<Threshold>, books: &Books) {
        let mut seen = vec![0_u64; thresholds.len()];
        for sample in samples {
            let len = books.len_of(*sample).0;
            let tier = self.gap(*sample).and_then(|gap| {
                let cost = len.saturating_mul(gap as u64);
                let stays = |(threshold, seen): (&Threshold, &mut u64)| {
                    cost < threshold.at || cost == threshold.at && threshold.takes(seen, len)
                };
                thresholds.iter().zip(&mut seen).position(stays)
            });
            self.decide(*sample, tier.and_then(|tier| u8::try_from(tier).ok()));
        }
    }

    /// What the first tiers may hold together, for each tier.
    fn capacities(&self, books: &Books) -> impl Iterator<Item = u64> {
        let useful = self.useful.iter().copied().chain(core::iter::repeat(Bytes(u64::MAX)));
        let each = books.levels().iter().zip(useful);
        each.scan(0_u64, |sum, (level, useful)| {
            *sum = sum.saturating_add(level.capacity.min(useful).0);
            Some(*sum)
        })
    }

    fn gap(&self, sample: SampleId) -> Option<usize> {
        let gap = self.gaps[sample.0 as usize] & !HERE;
        (gap != 0).then_some(usize::from(gap))
    }

    fn find_gaps(&mut self, epoch: Epoch, horizon: &Horizon) {
        let here = horizon.epoch(epoch).map(NodeOrder::samples).unwrap_or_default();
        for sample in here {
            self.gaps[sample.0 as usize] = 0;
        }
        for gap in (1..=self.lookahead).rev() {
            let Some(order) = horizon.epoch(Epoch(epoch.0 + gap)) else { continue };
            for sample in order.samples() {
                self.gaps[sample.0 as usize] = u8::try_from(gap).expect("at most GAP_MAX");
            }
        }
        for sample in here {
            self.gaps[sample.0 as usize] |= HERE;
        }
    }

    /// What of each gap stays, and how much of it in each tier.
    fn classes(&self, epoch: Epoch, supply: &[u64], books: &Books) -> Vec<Class> {
        let left = (self.spec.epochs - 1 - epoch.0) as usize;
        let mut classes: Vec<_> = supply.iter().map(|supply| Class::new(*supply)).collect();
        for (capacity, kept) in self.capacities(books).zip(&self.kept) {
            let expected = &self.expected;
            let steady = match self.spec.epochs {
                ..LONG_RUN => vec![0; expected.len()],
                _ => quota::steady(capacity, expected),
            };
            let boundaries = Boundaries { capacity, supply, kept, expected, steady: &steady, left };
            let quota = quota::quota(&boundaries);
            for (class, quota) in classes.iter_mut().zip(quota) {
                class.tiers.push(quota.saturating_sub(class.kept()));
            }
        }
        classes
    }

    /// Gives every sample whose gap is kept in full its tier, and takes the others out.
    fn deal(&mut self, samples: &[SampleId], classes: &[Class], books: &Books) {
        let mut dealt: Vec<_> = classes.iter().map(Class::empty).collect();
        for sample in samples {
            let tier = self.gap(*sample).filter(|gap| classes[gap - 1].is_kept()).map(|gap| {
                let (class, dealt) = (&classes[gap - 1], &mut dealt[gap - 1]);
                class.deal(dealt, books.len_of(*sample).0)
            });
            self.decide(*sample, tier);
        }
    }

    fn decide(&mut self, sample: SampleId, tier: Option<u8>) {
        let (tiers, tier) = (&mut self.tiers[sample.0 as usize], tier.unwrap_or(OUT));
        *tiers = if self.planned.0.is_multiple_of(2) {
            *tiers & 0xf0 | tier
        } else {
            *tiers & 0xf | tier << 4
        };
    }

    /// Decides which samples of a gap stay, by the batches that use them next.
    fn balance(&mut self, gap: usize, class: &Class, horizon: &Horizon, books: &Books) {
        let target = Epoch(self.planned.0 + u32::try_from(gap).expect("at most GAP_MAX"));
        self.find_places(horizon);
        let (batches, is_empty) = self.survey(target, gap, horizon, books);
        let level = balance::level(&batches, class.kept());
        let mut chooser = if is_empty { Chooser::filling(level) } else { Chooser::new(level) };
        let turnover = if self.spec.world.nodes == 1 { Turnover::Own } else { Turnover::Common };
        let mut exchange = Exchange::new(&class.tiers, turnover);
        let mut batches = batches.into_iter();
        let mut candidates = Vec::new();
        let mut stay = Vec::new();
        for_each_batch(&self.spec, self.node, target, horizon, &mut |samples| {
            candidates.clear();
            let open = samples.iter().filter(|it| self.standing(**it, gap) == Standing::Open);
            candidates.extend(open.map(|sample| self.candidate(*sample, books)));
            let batch = batches.next().expect("as many as were surveyed");
            chooser.choose(batch, &mut candidates, &mut |candidate, fate| {
                let lies = self.latest[candidate.sample.0 as usize];
                match fate {
                    Fate::Stays if exchange.stays(lies, candidate.len) => {
                        stay.push((candidate.sample, lies));
                    }
                    Fate::Stays | Fate::Comes => exchange.comes(candidate),
                    Fate::Leaves => exchange.leaves(candidate, lies),
                }
            });
        });
        for (sample, tier) in stay {
            self.decide(sample, Some(tier));
        }
        exchange.settle(&mut |sample, tier| self.decide(sample, Some(tier)));
    }

    /// What is known of each batch of `target`, and whether nothing that may stay lies in a tier yet.
    fn survey(
        &self,
        target: Epoch,
        gap: usize,
        horizon: &Horizon,
        books: &Books,
    ) -> (Vec<Batch>, bool) {
        let (mut batches, mut is_empty) = (Vec::new(), true);
        for_each_batch(&self.spec, self.node, target, horizon, &mut |samples| {
            let mut batch = Batch::default();
            for sample in samples {
                let len = books.len_of(*sample).0;
                match self.standing(*sample, gap) {
                    Standing::Open => {
                        batch.cold += len;
                        batch.open += len;
                        is_empty &= self.latest[sample.0 as usize] == OUT;
                    }
                    Standing::Cold => batch.cold += len,
                    Standing::Kept => {}
                }
            }
            batches.push(batch);
        });
        (batches, is_empty)
    }

    fn find_places(&mut self, horizon: &Horizon) {
        let epoch = self.planned;
        let mut place = 0;
        let places = &mut self.places;
        for_each_batch(&self.spec, self.node, epoch, horizon, &mut |samples| {
            for sample in samples {
                places[sample.0 as usize] = place;
                place += 1;
            }
        });
    }

    /// What is known of a sample that is used `gap` epochs later.
    fn standing(&self, sample: SampleId, gap: usize) -> Standing {
        let known = self.gaps[sample.0 as usize];
        let next = usize::from(known & !HERE);
        if next < gap {
            // Used again in between: a shorter gap than the one in question, which stays.
            Standing::Kept
        } else if known & HERE != 0 {
            Standing::Open
        } else if self.latest[sample.0 as usize] != OUT {
            Standing::Kept
        } else {
            Standing::Cold
        }
    }

    fn candidate(&self, sample: SampleId, books: &Books) -> Candidate {
        let lies = self.latest[sample.0 as usize];
        let origin = match lies {
            OUT => Origin::Cold,
            tier if self.wears.get(usize::from(tier)) == Some(&true) => Origin::Worn,
            _ => Origin::Tier,
        };
        let (len, place) = (books.len_of(sample).0, self.places[sample.0 as usize]);
        Candidate { sample, len, place, origin }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Lies in a tier then, whatever is decided now.
    Kept,
    /// Is decided now.
    Open,
    /// Is read cold then.
    Cold,
}

/// What becomes of the samples whose next use is equally many epochs away.
#[derive(Debug, Clone)]
struct Class {
    supply: u64,
    /// Bytes that stay in each tier.
    tiers: Vec<u64>,
}

/// What was dealt of a class so far.
struct Dealt {
    seen: u64,
    tiers: Vec<u64>,
}

impl Class {
    fn new(supply: u64) -> Self {
        Self { supply, tiers: Vec::new() }
    }

    fn kept(&self) -> u64 {
        self.tiers.iter().sum()
    }

    fn is_kept(&self) -> bool {
        self.supply > 0 && self.kept() >= self.supply
    }

    fn is_partly_kept(&self) -> bool {
        (1..self.supply).contains(&self.kept())
    }

    fn empty(&self) -> Dealt {
        Dealt { seen: 0, tiers: vec![0; self.tiers.len()] }
    }

    /// The tier that is farthest behind its share: so that each fills evenly over the epoch.
    fn deal(&self, dealt: &mut Dealt, len: u64) -> u8 {
        dealt.seen += len;
        let behind = |tier: &usize| {
            let due = u128::from(self.tiers[*tier]) * u128::from(dealt.seen);
            let given = u128::from(dealt.tiers[*tier]) * u128::from(self.supply);
            (due.saturating_sub(given), core::cmp::Reverse(*tier))
        };
        let tier = (0..self.tiers.len()).max_by_key(behind).expect("what stays has a tier");
        dealt.tiers[tier] += len;
        u8::try_from(tier).expect("tiers are counted in a byte")
    }
}

/// Calls `see` with the batches of a node in the order in which ranks in lock-step read them.
fn for_each_batch(
    spec: &Spec,
    node: NodeId,
    epoch: Epoch,
    horizon: &Horizon,
    see: &mut dyn FnMut(&[SampleId]),
) {
    for step in (0..spec.steps_in(epoch)).map(Step) {
        for rank in spec.world.ranks_of(node) {
            see(horizon.batch(BatchId { epoch, step, rank }).unwrap_or_default());
        }
    }
}

/// Epochs to look into: those in which something stays in a long run, and some more, because at the
/// start and towards the end of a run there is room for longer gaps.
fn lookahead(spec: &Spec, cached: f64) -> u32 {
    let most = GAP_MAX.min(spec.epochs.saturating_sub(1)).max(1);
    let last = quota::last_gap(cached, spec.world.nodes, most);
    if spec.world.nodes == 1 { 1 } else { (last + last / 2 + 2).min(most) }
}

#[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
