//! Reads how a RAM disk is limited and where its pages go.

use std::iter;

use serde::{Deserialize, Serialize};

use super::number_list;

/// The options of a `tmpfs`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MemoryDisk {
    /// The most that it holds; `None` for the kernel's default, half of the memory of the host.
    pub size_bytes: Option<u64>,
    /// Where its pages go; `None` where the writer's own policy decides.
    pub policy: Option<MemoryPolicy>,
    /// When it uses huge pages, for instance `within_size`; `None` for never.
    pub huge: Option<String>,
}

/// A memory policy as mount options write it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPolicy {
    /// For instance `bind`, `prefer`, `interleave`, `local`.
    pub mode: String,
    /// What stands behind the mode, for instance `static`: then the numbers of nodes are not moved
    /// along with the cpuset.
    pub flags: Option<String>,
    /// The nodes.
    pub nodes: Vec<u32>,
}

/// The options `rw,size=512k,mpol=bind=static:0,2-3,huge=always`.
///
/// Source: `shmem_show_options` in Linux's `mm/shmem.c`.
pub(crate) fn parse(options: &str) -> MemoryDisk {
    let value = |key: &str| options.split(',').find_map(|option| option.strip_prefix(key));
    MemoryDisk {
        size_bytes: value("size=").and_then(size),
        policy: options.split_once("mpol=").and_then(|(_, rest)| policy(rest)),
        huge: value("huge=").filter(|huge| *huge != "never").map(str::to_owned),
    }
}

fn size(text: &str) -> Option<u64> {
    let (digits, scale) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1 << 10),
        b'm' | b'M' => (&text[..text.len() - 1], 1 << 20),
        b'g' | b'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(scale)
}

/// The commas between nodes are those between options too, so the list ends where no number starts.
fn policy(text: &str) -> Option<MemoryPolicy> {
    let is_number = |part: &&str| part.starts_with(|first: char| first.is_ascii_digit());
    let mut parts = text.split(',');
    let first = parts.next()?;
    let (head, first) = first.split_once(':').unwrap_or((first, ""));
    let list: Vec<&str> = iter::once(first).chain(parts.take_while(is_number)).collect();
    let (mode, flags) = head.split_once('=').unzip();
    Some(MemoryPolicy {
        mode: mode.unwrap_or(head).to_owned(),
        flags: flags.map(str::to_owned),
        nodes: number_list::parse(&list.join(","))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_ends_where_the_next_option_starts() {
        let disk = parse("rw,size=24684092k,mpol=bind=static:0,2-3,huge=within_size,noswap");
        assert_eq!(disk.size_bytes, Some(24_684_092 << 10));
        assert_eq!(disk.huge.as_deref(), Some("within_size"));
        let policy = disk.policy.unwrap();
        assert_eq!((policy.mode.as_str(), policy.flags.as_deref()), ("bind", Some("static")));
        assert_eq!(policy.nodes, [0, 2, 3]);
    }

    #[test]
    fn a_policy_may_name_no_nodes() {
        let policy = parse("rw,mpol=local,inode64").policy.unwrap();
        assert_eq!((policy.mode.as_str(), policy.nodes.len()), ("local", 0));
        assert_eq!(parse("rw,size=50%,huge=never"), MemoryDisk::default());
    }
}
