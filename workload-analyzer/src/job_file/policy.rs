//! The keys that adjust a policy, each in a mapping with the name of the policy.

use serde::Deserialize;

use super::{Text, Whole};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ threshold: 90 %, iterations: 500 }`")]
pub(crate) struct DeepMemoryFile {
    pub(crate) threshold: Option<Text>,
    pub(crate) iterations: Option<Whole>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ reuse_distance: 2 epochs }`")]
pub(crate) struct LobsterFile {
    pub(crate) reuse_count: Option<Whole>,
    pub(crate) reuse_distance: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ fetch_size: 50 %, threshold: 50 % }`")]
pub(crate) struct DeliFile {
    pub(crate) fetch_size: Option<Text>,
    pub(crate) threshold: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ source: fastest }`")]
pub(crate) struct NoPfsFile {
    pub(crate) source: Option<Text>,
}
