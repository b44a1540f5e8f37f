//! The serde types of a file of prices, unchecked.

use serde::Deserialize;

use crate::job_file::{Text, Whole};

pub const FILE_BYTES_MAX: u64 = 64 << 10;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping with the keys of a file of prices")]
pub(super) struct PricesFile {
    pub(super) vm: Text,
    pub(super) disk: Text,
    pub(super) store: Text,
    pub(super) class_a: Text,
    pub(super) class_b: Text,
    pub(super) list_page: Option<Whole>,
    pub(super) system_disk: Option<Text>,
    pub(super) storage_charged: Option<Text>,
}
