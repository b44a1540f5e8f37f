//! Finds what is wrong with a path before anything looks whether it is there.

use crate::job::Reason;

/// What URLs that tierfeed reads start with.
const STARTS: [&str; 6] = ["s3://", "gs://", "az://", "https://", "http://", "file://"];

/// Why `path` is no path as its user means it, if so.
///
/// A job file says the same on every node, so nothing of the user or the environment gets into it. A URL is
/// taken as it stands.
pub(crate) fn mistake(path: &str) -> Option<Reason> {
    if path.is_empty() {
        return Some(Reason::EmptyPath);
    }
    if path.contains("://") {
        return None;
    }
    if path == "~" || path.starts_with("~/") || has_variable(path) {
        return Some(Reason::ForShells);
    }
    let lacks_slash = |start: &&'static str| path.starts_with(start.trim_end_matches('/'));
    STARTS.into_iter().find(lacks_slash).map(|right| Reason::OneSlash { right })
}

/// `$NAME` or `${NAME}`.
fn has_variable(path: &str) -> bool {
    let begins_name =
        |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphabetic() || "_{".contains(c));
    path.split('$').skip(1).any(begins_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_for_shells_and_what_lacks_a_slash_is_no_path() {
        for path in ["~", "~/data", "$DATA/train", "/data/${SPLIT}", "/data/$_x"] {
            assert_eq!(mistake(path), Some(Reason::ForShells), "{path}");
        }
        for (path, right) in [("s3:/x", "s3://"), ("file:/data", "file://"), ("gs:x", "gs://")] {
            assert_eq!(mistake(path), Some(Reason::OneSlash { right }), "{path}");
        }
        assert_eq!(mistake(""), Some(Reason::EmptyPath));
        for path in ["/data/5$", "data~", "/data/~x", "s3", "s3x:/y", "file:///a$b", "./~"] {
            assert_eq!(mistake(path), None, "{path}");
        }
    }
}
