//! Why a dataset cannot be read by ranges.

/// Why a dataset cannot be read by ranges.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum IndexError {
    /// libhdf5 reported an error.
    #[error("{0}")]
    Library(#[source] hdf5_metno::Error),
    /// The file has no such dataset.
    #[error("no dataset `{wanted}`; the file has {there}")]
    Missing {
        /// The requested path of the dataset.
        wanted: String,
        /// The members of the group that should hold it.
        there: String,
    },
    /// The name is that of a group.
    #[error("`{wanted}` is a group; it has {there}, name a dataset such as `{wanted}/NAME`")]
    IsGroup {
        /// The requested path of the dataset.
        wanted: String,
        /// The members of the group.
        there: String,
    },
    /// There is such a name, and libhdf5 cannot open it.
    #[error(
        "libhdf5 {version} cannot open `{wanted}`, which is there ({source}): a link to another file is not followed, \
         and what a newer HDF5 wrote with `libver=\"latest\"` has to be written with `libver=(\"earliest\", \"v110\")`"
    )]
    Unopened {
        /// The requested path of the dataset.
        wanted: String,
        /// The version of libhdf5.
        version: String,
        /// The error of libhdf5.
        #[source]
        source: hdf5_metno::Error,
    },
    /// The dataset is a single value.
    #[error("the dataset has no axes, so no rows; give one that has samples along its first axis")]
    NoAxes,
    /// The elements point to their bytes.
    #[error(
        "elements of the type `{dtype}` point to bytes elsewhere; store them at a fixed length"
    )]
    Pointers {
        /// The type, as libhdf5 names it.
        dtype: String,
    },
    /// The layout has no ranges in this file.
    #[error("the dataset is {layout}; {instead}")]
    Layout {
        /// The name of the layout.
        layout: &'static str,
        /// What the user can do.
        instead: &'static str,
    },
    /// The dataset was never written.
    #[error("the dataset has no bytes in the file: nothing was written; write it, or leave it out")]
    Unwritten,
}
