//! Parses a node and a moment of the run: `17@1`, the middle of epoch 1, or `17@1:20`, step 20 of it.

use std::str::FromStr;

use tierfeed_core::{
    id::{Epoch, NodeId, Step},
    order::Spec,
    simulator::whole_job::{Change, ChangeKind},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    node: u32,
    epoch: u32,
    /// `None` is the middle of the epoch.
    step: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}`: expected NODE@EPOCH or NODE@EPOCH:STEP, numbers from 0, such as 17@1 or 17@1:20")]
pub struct MomentError(String);

impl FromStr for Moment {
    type Err = MomentError;

    fn from_str(text: &str) -> Result<Self, MomentError> {
        let number = |part: &str| part.trim().parse::<u32>().ok();
        let parsed = || {
            let (node, at) = text.split_once('@')?;
            let (epoch, step) = match at.split_once(':') {
                Some((epoch, step)) => (epoch, Some(number(step)?)),
                None => (at, None),
            };
            Some(Self { node: number(node)?, epoch: number(epoch)?, step })
        };
        parsed().ok_or_else(|| MomentError(text.to_owned()))
    }
}

impl Moment {
    #[must_use]
    pub fn change(self, order: &Spec, kind: ChangeKind) -> Change {
        let epoch = Epoch(self.epoch);
        let step = self.step.unwrap_or_else(|| order.steps_in(epoch) / 2);
        Change { node: NodeId(self.node), epoch, step: Step(step), kind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_node_an_epoch_and_perhaps_a_step() {
        let moment = |node, epoch, step| Ok(Moment { node, epoch, step });
        assert_eq!("17@1".parse(), moment(17, 1, None));
        assert_eq!("0@12:20".parse(), moment(0, 12, Some(20)));
        for text in ["", "17", "17@", "@1", "17@1:", "17@x", "-1@1", "17@1:2:3", "1.5@2"] {
            assert_eq!(text.parse::<Moment>(), Err(MomentError(text.to_owned())));
        }
    }
}
