//! The settings of a bucket, which may hold credentials.

use std::{collections::BTreeMap, fmt};

/// Settings of a bucket by the names of environment variables: those that start with `AWS_`,
/// `GOOGLE_` or `AZURE_`. Names that the client does not know are ignored.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Options(pub BTreeMap<String, String>);

impl Options {
    /// These, and `more` of the same names instead.
    #[must_use]
    pub(crate) fn with(mut self, more: Self) -> Self {
        self.0.extend(more.0);
        self
    }
}

impl fmt::Debug for Options {
    /// Prints the names without the values, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_print_their_names_only() {
        let options = Options([("AWS_TOKEN".to_owned(), "secret".to_owned())].into());
        assert_eq!(format!("{options:?}"), r#"{"AWS_TOKEN"}"#);
    }
}
