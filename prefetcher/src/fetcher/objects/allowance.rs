//! Decides how many requests may be made beyond those that are needed: a share of what was asked lately.
//!
//! A store that is slow or refuses must not get more work for it than it has anyway. Pure: what counts is
//! requests, not time.
//!
//! 1. Over any stretch, the extra requests are at most the share of those made in it, and what was saved
//!    before, which is at most [`Share::saved_max`].

/// A share of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Extra requests for each thousand.
    pub per_mille: u32,
    /// Extra requests that can be saved up.
    pub saved_max: u32,
}

/// What is left of a share.
#[derive(Debug)]
pub(crate) struct Allowance {
    share: Share,
    /// In thousandths of a request.
    left: u64,
}

const REQUEST: u64 = 1_000;

impl Allowance {
    /// With nothing saved.
    pub(crate) fn empty(share: Share) -> Self {
        Self { share, left: 0 }
    }

    /// With as much saved as can be.
    pub(crate) fn full(share: Share) -> Self {
        Self { share, left: u64::from(share.saved_max) * REQUEST }
    }

    /// A request was made that was needed.
    pub(crate) fn earn(&mut self) {
        let most = u64::from(self.share.saved_max) * REQUEST;
        self.left = self.left.saturating_add(u64::from(self.share.per_mille)).min(most);
    }

    /// Whether an extra one may be made, which is taken to be made.
    pub(crate) fn spend(&mut self) -> bool {
        let left = self.left.checked_sub(REQUEST);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_in_twenty_is_one_in_twenty() {
        let mut allowance = Allowance::empty(Share { per_mille: 50, saved_max: 8 });
        let extra = (0..2_000).filter(|_| {
            allowance.earn();
            allowance.spend()
        });
        assert_eq!(extra.count(), 100);
    }

    proptest! {
        #[test]
        fn no_stretch_has_more_than_its_share_and_what_was_saved(
            per_mille in 0_u32..400,
            saved_max in 0_u32..20,
            earned in prop::collection::vec(any::<bool>(), 1..400),
        ) {
            let mut allowance = Allowance::full(Share { per_mille, saved_max });
            // How many were made and how many extra, after each step.
            let mut steps = vec![(0, 0)];
            for earns in earned {
                let (mut made, mut extra) = *steps.last().unwrap();
                if earns {
                    allowance.earn();
                    made += 1;
                } else {
                    extra += u64::from(allowance.spend());
                }
                steps.push((made, extra));
            }
            for (first, (made, extra)) in steps.iter().enumerate() {
                for (later_made, later_extra) in &steps[first..] {
                    let bound = u64::from(per_mille) * (later_made - made)
                        + u64::from(saved_max) * REQUEST;
                    prop_assert!((later_extra - extra) * REQUEST <= bound, "invariant 1");
                }
            }
        }
    }
}
