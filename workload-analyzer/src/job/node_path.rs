//! A path on the node, absolute or from the directory of the job file.

use std::path::{Path, PathBuf};

use tierfeed_dataset::keys::{Reason, mistake};

use crate::yaml::scalar::Scalar;

#[derive(Debug, Clone)]
pub(crate) struct NodePath(PathBuf);

impl NodePath {
    pub(crate) fn below(&self, directory: &Path) -> PathBuf {
        directory.join(&self.0)
    }
}

impl Scalar for NodePath {
    type Reason = Reason;

    fn parse(typed: &str) -> Result<Self, Reason> {
        if let Some(path) = typed.strip_prefix("file://").filter(|path| path.starts_with('/')) {
            return Ok(Self(path.into()));
        }
        let url = typed.contains("://").then_some(Reason::UrlForPath);
        url.or_else(|| mistake(typed)).map_or_else(|| Ok(Self(typed.into())), Err)
    }
}
