//! The numbers of nodes and ranks of a job file with their lines, for messages that compare them with the
//! launcher.

use std::path::Path;

use tierfeed_core::fleet::launch::JobWorld;

use super::Job;
use crate::yaml::location;

impl Job {
    /// The world of this job, with the lines of its keys in `text`, the text of `file`.
    #[must_use]
    pub fn post(&self, text: &str, file: &Path) -> JobWorld {
        let at = |key: &str| match location::exact_line_of(text, &["world", key]) {
            Some(line) => format!("{}:{line}", file.display()),
            None => format!("{}, by default", file.display()),
        };
        JobWorld {
            world: self.world,
            nodes_at: at("nodes"),
            ranks_per_node_at: at("ranks_per_node"),
            node: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_named_with_its_line_or_as_a_default() {
        let text = "name: x\ndataset: { source: /data, format: image-folder }\n\
                    order: { shuffle: sequential, epochs: 1 }\nbatch_size: 1\nworld:\n  \
                    ranks_per_node: 2\n";
        let file = Path::new("job.yaml");
        let post = Job::parse(text, file).unwrap().post(text, file);
        assert_eq!(post.ranks_per_node_at, "job.yaml:6");
        assert_eq!(post.nodes_at, "job.yaml, by default");
        assert_eq!((post.world.nodes, post.world.ranks_per_node), (1, 2));
    }
}
