//! Samples of several fields, of which a transform takes one and trainers get the others.

use serde::{Deserialize, Serialize};

/// How the fields of a sample lie in its bytes. `tierfeed-dataset` takes them apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Container {
    /// The members of a tar.
    WebDataset,
    /// The features of a `tf.train.Example`.
    TfRecord,
    /// The columns of a row of MDS, or the leaves of an item of LitData, which lie in the same way.
    Columns {
        /// All columns, in the order in which they lie.
        columns: Vec<Column>,
    },
}

/// A column of MDS or a leaf of LitData, as `index.json` describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// The key under which samples have it.
    pub name: String,
    /// The name of its encoding in MDS, such as `jpeg` or `int`.
    pub encoding: String,
    /// Its bytes in each sample; `None` if each sample says how many they are.
    pub size: Option<u64>,
}
