//! `--tiers [NODES=]FILE`: which nodes of a job are like the machine of a probe report.

use std::{fmt, ops::RangeInclusive, path::PathBuf, str::FromStr};

/// A probe report, and the nodes of the job that it stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodesReport {
    /// `None` for all nodes.
    nodes: Option<Vec<RangeInclusive<u32>>>,
    pub(crate) file: PathBuf,
}

impl FromStr for NodesReport {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_list = |list: &str| {
            !list.is_empty() && list.chars().all(|it| it.is_ascii_digit() || "-,".contains(it))
        };
        let Some((list, file)) = text.split_once('=').filter(|(list, _)| is_list(list)) else {
            return Ok(Self { nodes: None, file: text.into() });
        };
        let wrong = || {
            format!(
                "`{list}` is no list of nodes; write it as 0-3,8=FILE, the lower number of a range first"
            )
        };
        let range = |text: &str| {
            let (from, to) = text.split_once('-').unwrap_or((text, text));
            let (from, to) = (from.parse::<u32>().ok()?, to.parse::<u32>().ok()?);
            (from <= to).then_some(from..=to)
        };
        let nodes = list.split(',').map(range).collect::<Option<Vec<_>>>().ok_or_else(wrong)?;
        Ok(Self { nodes: Some(nodes), file: file.into() })
    }
}

impl fmt::Display for NodesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(nodes) = self.nodes() {
            write!(f, "{nodes}=")?;
        }
        write!(f, "{}", self.file.display())
    }
}

impl NodesReport {
    /// The nodes, as on the command line; `None` for all.
    pub(crate) fn nodes(&self) -> Option<String> {
        let range = |range: &RangeInclusive<u32>| match (range.start(), range.end()) {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}-{last}"),
        };
        Some(self.nodes.as_ref()?.iter().map(range).collect::<Vec<_>>().join(","))
    }

    pub(crate) fn covers(&self, node: u32) -> bool {
        let contains = |nodes: &Vec<RangeInclusive<u32>>| nodes.iter().any(|it| it.contains(&node));
        self.nodes.as_ref().is_none_or(contains)
    }

    pub(crate) fn last(&self) -> Option<u32> {
        self.nodes.as_ref()?.iter().map(|range| *range.end()).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_for_all_nodes_or_for_those_before_it() {
        let all: NodesReport = "fat=node.json".parse().unwrap();
        assert_eq!((all.nodes(), all.covers(99)), (None, true));
        assert_eq!(all.file, PathBuf::from("fat=node.json"));
        let some: NodesReport = "0-3,8=fat=node.json".parse().unwrap();
        assert_eq!(some.file, PathBuf::from("fat=node.json"));
        assert_eq!(some.nodes().as_deref(), Some("0-3,8"));
        let covered: Vec<u32> = (0..12).filter(|node| some.covers(*node)).collect();
        assert_eq!((covered, some.last()), (vec![0, 1, 2, 3, 8], Some(8)));
        assert_eq!(some.to_string().parse(), Ok(some));
    }

    #[test]
    fn a_list_that_is_none_is_refused() {
        for list in ["3-1=x", "-=x", "1,,2=x", "1-2-3=x", "99999999999=x"] {
            let error = list.parse::<NodesReport>().unwrap_err();
            assert!(error.contains("0-3,8=FILE"), "{list}: {error}");
        }
    }
}
