//! Checks the form of a path before it is opened.

use super::Reason;

const STARTS: [&str; 6] = ["s3://", "gs://", "az://", "https://", "http://", "file://"];

/// The reason why `path` is not a usable path, if there is one.
///
/// A job file means the same on every node, so home directories and variables are not expanded. A URL is
/// accepted unchanged.
#[must_use]
pub fn mistake(path: &str) -> Option<Reason> {
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

fn has_variable(path: &str) -> bool {
    let begins_name =
        |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphabetic() || "_{".contains(c));
    path.split('$').skip(1).any(begins_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_syntax_and_a_missing_slash_are_refused() {
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
