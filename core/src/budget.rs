//! Decides how many bytes each tier of a job may take, from its requests and from the free bytes.
//!
//! Tiers may draw on the same memory: main memory, an emulated CXL tier and a RAM disk on one NUMA
//! node do. They name it as a [`Pool`], and together never get more than is free in it. Pure: the caller
//! measures the free bytes and subtracts the limits of its cgroup.
//!
//! Invariants:
//!
//! 1. The budgets of a pool and its reserve ([`Free::kept`]) sum to at most the bytes that were free.
//! 2. A size is granted whole or refused; only a share adapts.

mod holdings;
mod page_cache;
mod staging;

use alloc::{collections::BTreeMap, vec::Vec};

pub use holdings::{
    CacheRange, Change, Holdings, Reading, Reason, StagingLimit, Step, TierLimit, TierReading,
    chunks_in, chunks_max,
};
pub use page_cache::page_cache_limit;
pub use staging::{Infeasible, MainMemory, Staging};

use crate::{tier::Kind, units::Bytes};

/// Memory or storage that several tiers may draw on: a NUMA node, a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pool(pub u32);

/// A whole number of hundredths, 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(u8);

impl Percent {
    /// The initial share of `DeepMemoryDL`, and the default of a job file.
    pub const DEFAULT: Self = Self(20);

    /// `value` percent; `None` above 100.
    #[must_use]
    pub const fn new(value: u8) -> Option<Self> {
        if value <= 100 { Some(Self(value)) } else { None }
    }

    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// This share of `whole`, rounded down.
    #[must_use]
    pub fn of(self, whole: Bytes) -> Bytes {
        let percent = u64::from(self.0);
        Bytes(whole.0 / 100 * percent + whole.0 % 100 * percent / 100)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    Size(Bytes),
    /// A share of the free bytes, which adapts while the job runs.
    Share(Percent),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    pub kind: Kind,
    pub pool: Pool,
    pub request: Request,
    /// The minimum that it needs: a share gets at least this much if the pool has it.
    pub least: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Free {
    /// Free bytes within the limits of the cgroup.
    pub bytes: Bytes,
    /// The reserve that must stay free, so that the node does not swap.
    pub kept: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    #[error("tier {kind} asks for {asked}; {left} are left for it; ask for less, or for a share")]
    TooLarge { kind: Kind, asked: Bytes, left: Bytes },
    #[error("nothing is known about the free bytes of pool {} of tier {kind}", .pool.0)]
    UnknownPool { kind: Kind, pool: Pool },
}

/// Gives each claim its budget, in the order of the claims.
///
/// Shares refer to the bytes that were free before any claim, so their order does not matter; where sizes
/// leave less than that, a share gets the remainder. A share below [`Claim::least`] is raised to it.
///
/// # Errors
///
/// [`BudgetError::TooLarge`] if the sizes of a pool do not fit, and [`BudgetError::UnknownPool`] for a
/// claim on a pool without an entry in `free`.
pub fn allot(claims: &[Claim], free: &BTreeMap<Pool, Free>) -> Result<Vec<Bytes>, BudgetError> {
    let mut left: BTreeMap<Pool, u64> =
        free.iter().map(|(pool, it)| (*pool, it.bytes.0.saturating_sub(it.kept.0))).collect();
    for claim in claims {
        let left = left
            .get_mut(&claim.pool)
            .ok_or(BudgetError::UnknownPool { kind: claim.kind, pool: claim.pool })?;
        if let Request::Size(asked) = claim.request {
            *left = left.checked_sub(asked.0).ok_or(BudgetError::TooLarge {
                kind: claim.kind,
                asked,
                left: Bytes(*left),
            })?;
        }
    }
    let mut budget_of = |claim: &Claim| match claim.request {
        Request::Size(asked) => asked,
        Request::Share(share) => {
            let left = left.entry(claim.pool).or_default();
            let whole = free.get(&claim.pool).map_or(Bytes(0), |it| it.bytes);
            let granted = share.of(whole).max(claim.least).0.min(*left);
            *left -= granted;
            Bytes(granted)
        }
    };
    Ok(claims.iter().map(&mut budget_of).collect())
}

/// The new budget of a tier that asked for a share and holds `held`. Other tiers with a share of the same
/// memory hold `others`; `free` is left beside all of them.
///
/// The sum of the three would be free without these tiers, as at the start of the job ([`allot`]). The new
/// budget is the share of that sum, but leaves at least `free.kept` free. Unless the memory is short, a
/// result within one `chunk` of `held` returns `held`, so that noise changes nothing.
#[must_use]
pub fn adapt(share: Percent, held: Bytes, others: Bytes, free: Free, chunk: Bytes) -> Bytes {
    let at_most = held.0.saturating_add(free.bytes.0);
    let whole = at_most.saturating_add(others.0);
    let wanted = share.of(Bytes(whole)).0.min(at_most.saturating_sub(free.kept.0));
    let is_pressed = free.bytes < free.kept;
    if !is_pressed && wanted.abs_diff(held.0) < chunk.0 { held } else { Bytes(wanted) }
}

#[cfg(test)]
mod tests {
    use alloc::{string::ToString, vec};

    use proptest::prelude::*;

    use super::*;

    const DRAM: Pool = Pool(0);

    fn free(bytes: u64, kept: u64) -> Free {
        Free { bytes: Bytes::mib(bytes), kept: Bytes::mib(kept) }
    }

    fn claim(kind: Kind, request: Request) -> Claim {
        Claim { kind, pool: DRAM, request, least: Bytes(0) }
    }

    fn share(percent: u8) -> Request {
        Request::Share(Percent::new(percent).unwrap())
    }

    #[test]
    fn a_share_is_of_what_was_free_at_first() {
        let claims = [
            claim(Kind::MainMemory, share(20)),
            claim(Kind::Scratch, Request::Size(Bytes::mib(300))),
            claim(Kind::CxlMemory, share(20)),
        ];
        let budgets = allot(&claims, &BTreeMap::from([(DRAM, free(1_000, 0))]));
        assert_eq!(budgets, Ok(vec![Bytes::mib(200), Bytes::mib(300), Bytes::mib(200)]));
    }

    #[test]
    fn sizes_come_first_and_shares_get_what_is_left() {
        let claims = [
            claim(Kind::MainMemory, share(50)),
            claim(Kind::Scratch, Request::Size(Bytes::mib(800))),
        ];
        let budgets = allot(&claims, &BTreeMap::from([(DRAM, free(1_000, 100))]));
        assert_eq!(budgets, Ok(vec![Bytes::mib(100), Bytes::mib(800)]));
    }

    #[test]
    fn a_share_that_is_too_small_gets_the_least_that_does_where_there_is_as_much() {
        let staging = |least| Claim { least, ..claim(Kind::MainMemory, share(20)) };
        let budget = |least, free| allot(&[staging(least)], &BTreeMap::from([(DRAM, free)]));
        assert_eq!(budget(Bytes::mib(40), free(100, 0)), Ok(vec![Bytes::mib(40)]));
        assert_eq!(budget(Bytes::mib(40), free(100, 80)), Ok(vec![Bytes::mib(20)]));
        assert_eq!(budget(Bytes::mib(10), free(100, 0)), Ok(vec![Bytes::mib(20)]));
    }

    #[test]
    fn a_size_that_does_not_fit_is_refused_with_what_would() {
        let claims = [claim(Kind::Scratch, Request::Size(Bytes::mib(950)))];
        let error = allot(&claims, &BTreeMap::from([(DRAM, free(1_000, 100))])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "tier scratch asks for 950 MiB; 900 MiB are left for it; ask for less, or for a share"
        );
    }

    #[test]
    fn a_pool_that_was_not_measured_is_an_error() {
        let claims = [claim(Kind::Storage, share(20))];
        let error = BudgetError::UnknownPool { kind: Kind::Storage, pool: DRAM };
        assert_eq!(allot(&claims, &BTreeMap::new()), Err(error));
    }

    #[test]
    fn a_share_is_rounded_down() {
        assert_eq!(Percent(20).of(Bytes(99)), Bytes(19));
        assert_eq!(Percent(90).of(Bytes(u64::MAX)), Bytes(16_602_069_666_338_596_453));
    }

    #[test]
    fn noise_moves_nothing_and_pressure_takes_back() {
        let held = Bytes::mib(200);
        let chunk = Bytes::mib(16);
        let twenty = Percent::DEFAULT;
        assert_eq!(adapt(twenty, held, Bytes(0), free(810, 100), chunk), held);
        assert_eq!(adapt(twenty, held, Bytes(0), free(1_800, 100), chunk), Bytes::mib(400));
        assert_eq!(adapt(twenty, held, Bytes(0), free(50, 100), chunk), Bytes::mib(50));
        assert_eq!(adapt(Percent(100), held, Bytes(0), free(50, 100), chunk), Bytes::mib(150));
    }

    #[test]
    fn shares_of_one_memory_are_as_large_full_as_they_were_granted() {
        let half = Percent::new(45).unwrap();
        let held = Bytes::mib(450);
        assert_eq!(adapt(half, held, held, free(100, 50), Bytes::mib(16)), held);
    }

    prop_compose! {
        fn any_claim()(kind in 0_usize..4, pool in 0_u32..2, is_size in any::<bool>(),
                       size in 0_u64..4_000, percent in 0_u8..=100, least in 0_u64..4_000) -> Claim {
            let size = Request::Size(Bytes(size));
            let request = if is_size { size } else { Request::Share(Percent(percent)) };
            Claim { kind: Kind::ALL[kind], pool: Pool(pool), request, least: Bytes(least) }
        }
    }

    proptest! {
        #[test]
        fn budgets_never_pass_what_is_free(
            claims in prop::collection::vec(any_claim(), 0..6),
            free in prop::collection::vec((0_u64..10_000, 0_u64..2_000), 2),
        ) {
            let free: BTreeMap<_, _> = (0..)
                .zip(free)
                .map(|(pool, (bytes, kept))| {
                    (Pool(pool), Free { bytes: Bytes(bytes), kept: Bytes(kept) })
                })
                .collect();
            if let Ok(budgets) = allot(&claims, &free) {
                for (pool, it) in free {
                    let granted: u64 = claims
                        .iter()
                        .zip(&budgets)
                        .filter(|(claim, _)| claim.pool == pool)
                        .map(|(_, budget)| budget.0)
                        .sum();
                    prop_assert!(granted <= it.bytes.0.saturating_sub(it.kept.0), "invariant 1");
                }
                for (claim, budget) in claims.iter().zip(budgets) {
                    if let Request::Size(asked) = claim.request {
                        prop_assert_eq!(asked, budget, "invariant 2");
                    }
                }
            }
        }

        #[test]
        fn an_adapted_budget_leaves_what_must_stay_free(
            percent in 0_u8..=100,
            held in 0_u64..10_000,
            others in 0_u64..10_000,
            bytes in 0_u64..10_000,
            kept in 0_u64..2_000,
        ) {
            let now = Free { bytes: Bytes(bytes), kept: Bytes(kept) };
            let budget = adapt(Percent(percent), Bytes(held), Bytes(others), now, Bytes(16)).0;
            prop_assert!(budget <= (held + bytes).saturating_sub(kept) || budget == held);
            prop_assert!(bytes >= kept || budget <= (held + bytes).saturating_sub(kept));
        }
    }
}
