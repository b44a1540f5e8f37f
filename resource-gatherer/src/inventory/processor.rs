//! Reads what the processors are: make, cores, threads, frequencies, and the features that decide how
//! fast memory can be copied.
//!
//! Two hardware threads of a core share its load buffers, so benchmarks and copies take one thread of
//! each ([`Processor::one_thread_per_core`]).

use std::{collections::BTreeSet, path::Path};

use serde::{Deserialize, Serialize};

use super::number_list;
use crate::sysroot::{ReadError, Sysroot, numbered_entries, optional, optional_number, parsed};

/// The processors of a host, which all are of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Processor {
    /// Who made it, as the kernel names it: `GenuineIntel`, or `0x41` on Arm.
    pub make: Option<String>,
    /// Which one it is.
    pub model: Option<String>,
    /// How many sockets are in use.
    pub sockets: u32,
    /// The cores in use, by their first thread.
    pub cores: Vec<Core>,
    /// The lowest frequency that a core may be set to, `None` where the kernel does not set it.
    pub frequency_min_hz: Option<u64>,
    /// The frequency without boost, `None` where the kernel does not tell.
    pub frequency_base_hz: Option<u64>,
    /// The highest frequency, boost included, `None` where the kernel does not set it.
    pub frequency_max_hz: Option<u64>,
    /// What of [`FEATURES`] it has.
    pub features: Vec<String>,
    /// Whether a hypervisor is below; then caches and frequencies are as it states them. `None` on
    /// processors that do not tell.
    pub is_virtual: Option<bool>,
}

/// One physical core.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Core {
    /// Its hardware threads, as CPU numbers.
    pub threads: Vec<u32>,
    /// Its socket, `None` where the firmware does not number them.
    pub socket: Option<u32>,
}

/// What matters for copying and for timing, under the kernel's names: wide and streaming stores, cache
/// line control, fast string copies, steady clocks, huge pages.
pub const FEATURES: [&str; 17] = [
    "avx2",
    "avx512f",
    "amx_tile",
    "movdiri",
    "movdir64b",
    "clflushopt",
    "clwb",
    "erms",
    "fsrm",
    "constant_tsc",
    "nonstop_tsc",
    "pdpe1gb",
    "asimd",
    "sve",
    "sve2",
    "dcpop",
    "mops",
];

impl Processor {
    /// How many hardware threads are in use.
    #[must_use]
    pub fn thread_count(&self) -> usize {
        self.cores.iter().map(|core| core.threads.len()).sum()
    }

    /// The first hardware thread of each core.
    #[must_use]
    pub fn one_thread_per_core(&self) -> Vec<u32> {
        self.cores.iter().filter_map(|core| core.threads.first().copied()).collect()
    }
}

/// The processors that are online.
pub(crate) fn read(sysroot: Sysroot<'_>) -> Result<Processor, ReadError> {
    let root = sysroot.join("sys/devices/system/cpu");
    let cores = cores(&root)?;
    let sockets: BTreeSet<Option<u32>> = cores.iter().map(|core| core.socket).collect();
    let (frequency_min_hz, frequency_base_hz, frequency_max_hz) = frequencies(&root);
    let text = optional(&sysroot.join("proc/cpuinfo")).unwrap_or_default();
    let flags = value(&text, &["flags"]);
    let words = flags.or_else(|| value(&text, &["Features"])).unwrap_or_default();
    let has = |feature: &&&str| words.split_whitespace().any(|word| word == **feature);
    Ok(Processor {
        make: value(&text, &["vendor_id", "CPU implementer"]).map(str::to_owned),
        model: value(&text, &["model name", "cpu", "uarch", "CPU part"]).map(str::to_owned),
        sockets: u32::try_from(sockets.len()).unwrap_or(u32::MAX),
        cores,
        frequency_min_hz,
        frequency_base_hz,
        frequency_max_hz,
        features: FEATURES.iter().filter(has).map(|&feature| feature.to_owned()).collect(),
        is_virtual: flags.map(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor")),
    })
}

/// The CPUs that are online, as the kernel lists them or else as it numbers them.
pub(crate) fn online(root: &Path) -> Result<Vec<u32>, ReadError> {
    let listed = parsed(&root.join("online"), "a list of CPUs such as 0-3,8", number_list::parse)?;
    Ok(listed.unwrap_or_else(|| numbered_entries(root, "cpu")))
}

/// Each CPU belongs to one core, also where the lists of two CPUs contradict each other.
fn cores(root: &Path) -> Result<Vec<Core>, ReadError> {
    let mut cores = Vec::new();
    let mut left: BTreeSet<u32> = online(root)?.into_iter().collect();
    while let Some(&cpu) = left.first() {
        let topology = root.join(format!("cpu{cpu}/topology"));
        let siblings = topology.join("thread_siblings_list");
        let siblings = parsed(&siblings, "a list of CPUs such as 0,64", number_list::parse)?;
        let mut threads = siblings.unwrap_or_else(|| vec![cpu]);
        threads.retain(|thread| left.contains(thread));
        if !threads.contains(&cpu) {
            threads = vec![cpu];
        }
        left.retain(|other| !threads.contains(other));
        let socket = optional(&topology.join("physical_package_id"));
        cores.push(Core { threads, socket: socket.and_then(|number| number.parse().ok()) });
    }
    Ok(cores)
}

/// Lowest, base and highest over all policies: cores of one socket may differ. The kernel counts kHz.
fn frequencies(root: &Path) -> (Option<u64>, Option<u64>, Option<u64>) {
    let root = root.join("cpufreq");
    let policies = numbered_entries(&root, "policy");
    let all = |name: &'static str| {
        let policies = policies.iter().map(|policy| root.join(format!("policy{policy}")));
        let hertz = |policy: std::path::PathBuf| {
            optional_number(&policy.join(name))?.checked_mul(1000).filter(|hertz| *hertz > 0)
        };
        policies.filter_map(hertz).collect::<Vec<u64>>()
    };
    (
        all("cpuinfo_min_freq").into_iter().min(),
        all("base_frequency").into_iter().max(),
        all("cpuinfo_max_freq").into_iter().max(),
    )
}

/// The value of the first of `keys` that the first processor has, as in `model name : Xeon`.
fn value<'text>(text: &'text str, keys: &[&str]) -> Option<&'text str> {
    let first = text.split("\n\n").next()?;
    let pairs = || first.lines().filter_map(|line| line.split_once(':'));
    keys.iter().find_map(|key| {
        let found = pairs().find(|(name, _)| name.trim() == *key)?;
        Some(found.1.trim()).filter(|value| !value.is_empty())
    })
}
