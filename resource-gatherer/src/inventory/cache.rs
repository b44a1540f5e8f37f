//! Reads the CPU caches: a benchmark of memory must use more bytes than they hold.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::number_list;
use crate::sysroot::{Sysroot, numbered_entries, optional, optional_number};

/// A cache for data, listed once however many CPUs share it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cache {
    /// 1 is nearest to the CPU.
    pub level: u8,
    /// As the kernel (in a virtual machine: the hypervisor) states it.
    pub size_bytes: u64,
    pub cpus: Vec<u32>,
}

/// All caches for data. A CPU that does not describe a cache is skipped.
pub(crate) fn read_all(sysroot: Sysroot<'_>) -> Vec<Cache> {
    let root = sysroot.join("sys/devices/system/cpu");
    let mut caches: Vec<Cache> = numbered_entries(&root, "cpu")
        .into_iter()
        .map(|cpu| root.join(format!("cpu{cpu}/cache")))
        .flat_map(|caches| {
            let indices = numbered_entries(&caches, "index");
            indices.into_iter().filter_map(move |i| read_one(&caches.join(format!("index{i}"))))
        })
        .collect();
    caches.sort_unstable();
    caches.dedup();
    caches
}

fn read_one(directory: &Path) -> Option<Cache> {
    if optional(&directory.join("type"))? == "Instruction" {
        return None;
    }
    Some(Cache {
        level: u8::try_from(optional_number(&directory.join("level"))?).ok()?,
        size_bytes: size(&optional(&directory.join("size"))?)?,
        cpus: number_list::parse(&optional(&directory.join("shared_cpu_list"))?)?,
    })
}

/// `32768K`, as the kernel writes sizes of caches.
fn size(text: &str) -> Option<u64> {
    let (number, scale) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    number.parse::<u64>().ok()?.checked_mul(scale)
}
