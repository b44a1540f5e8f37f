//! A token bucket: limits extra requests (retries, hedges) to a share of the needed ones.
//!
//! Extra requests must not overload a store that is slow or refuses requests. Pure: it counts requests, not
//! time.
//!
//! 1. In any sequence of requests, the extra ones are at most the share of the needed ones in it plus the
//!    tokens that were saved before, at most [`Share::saved_max`].

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Extra requests for each thousand needed ones.
    pub per_mille: u32,
    /// The capacity of the bucket: extra requests that can be saved up.
    pub saved_max: u32,
}

#[derive(Debug)]
pub(crate) struct TokenBucket {
    share: Share,
    /// In thousandths of a request.
    left: u64,
}

const REQUEST: u64 = 1_000;

impl TokenBucket {
    pub(crate) fn empty(share: Share) -> Self {
        Self { share, left: 0 }
    }

    pub(crate) fn full(share: Share) -> Self {
        Self { share, left: u64::from(share.saved_max) * REQUEST }
    }

    pub(crate) fn deposit(&mut self) {
        let most = u64::from(self.share.saved_max) * REQUEST;
        self.left = self.left.saturating_add(u64::from(self.share.per_mille)).min(most);
    }

    pub(crate) fn try_spend(&mut self) -> bool {
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
        let mut bucket = TokenBucket::empty(Share { per_mille: 50, saved_max: 8 });
        let extra = (0..2_000).filter(|_| {
            bucket.deposit();
            bucket.try_spend()
        });
        assert_eq!(extra.count(), 100);
    }

    proptest! {
        #[test]
        fn no_sequence_exceeds_its_share_and_the_saved_tokens(
            per_mille in 0_u32..400,
            saved_max in 0_u32..20,
            earned in prop::collection::vec(any::<bool>(), 1..400),
        ) {
            let mut bucket = TokenBucket::full(Share { per_mille, saved_max });
            // How many were made and how many extra, after each step.
            let mut steps = vec![(0, 0)];
            for earns in earned {
                let (mut made, mut extra) = *steps.last().unwrap();
                if earns {
                    bucket.deposit();
                    made += 1;
                } else {
                    extra += u64::from(bucket.try_spend());
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
