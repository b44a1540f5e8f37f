//! Why a dataset cannot be read by ranges.

/// Why a dataset cannot be read by ranges.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum IndexError {
    /// libhdf5 says so.
    #[error("{0}")]
    Library(#[source] hdf5_metno::Error),
    /// There is no such dataset.
    #[error("no dataset `{wanted}`; the file has {there}")]
    Missing {
        /// As asked for.
        wanted: String,
        /// What the group has that should hold it.
        there: String,
    },
    /// A single value.
    #[error("the dataset has no axes, so no rows; give one that has samples along its first axis")]
    NoAxes,
    /// Elements that point to their bytes.
    #[error(
        "elements of the type `{dtype}` point to bytes elsewhere; store them at a fixed length"
    )]
    Pointers {
        /// As libhdf5 names it.
        dtype: String,
    },
    /// A layout without ranges in this file.
    #[error("the dataset is {layout}; {instead}")]
    Layout {
        /// What it is.
        layout: &'static str,
        /// What the user can do.
        instead: &'static str,
    },
    /// Nothing was ever written.
    #[error("the dataset has no bytes in the file: nothing was written; write it, or leave it out")]
    Unwritten,
}
