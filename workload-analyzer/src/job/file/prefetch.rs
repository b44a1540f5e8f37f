//! The serde types of the keys below `prefetch`.

use serde::Deserialize;
use tierfeed_core::session::{LookAhead, assignment::Assignment};
use tierfeed_dataset::keys::{Reason, parse_size};

use super::one_of;
use crate::{
    job::PREFETCH_BATCHES_MAX,
    yaml::scalar::{Checked, Count, Scalar},
};

/// With fewer than two, no batch could be filled while another is read.
const BATCHES_MIN: u32 = 2;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ batches: 4 }`")]
pub(crate) struct PrefetchFile {
    pub(crate) batches: Option<Count<BATCHES_MIN, PREFETCH_BATCHES_MAX>>,
    pub(crate) look_ahead: Option<Checked<LookAhead>>,
    pub(crate) assignment: Option<Checked<Assignment>>,
}

impl Scalar for LookAhead {
    type Reason = Reason;

    fn parse(typed: &str) -> Result<Self, Reason> {
        match typed {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            size => parse_size(size)
                .map(Self::Room)
                .ok_or_else(|| Reason::NotOneOf("auto, off, a size such as 4 GiB".to_owned())),
        }
    }
}

impl Scalar for Assignment {
    type Reason = Reason;

    fn parse(typed: &str) -> Result<Self, Reason> {
        one_of(typed, &Self::ALL, Self::name, "shared, proportional, lobster")
    }
}
