//! What is looked at when a chaos run is over: what was left behind, and what grew.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use serde::Serialize;

use super::{footprint::Footprint, scene::Scene};

/// Caches fill and allocators keep pages; beyond this it is growth.
const MEMORY_GROWTH_MAX: u64 = 24 << 20;

/// Connections and files of the dataset come and go.
const DESCRIPTOR_GROWTH_MAX: u64 = 8;

/// Threads that the runtime starts when it needs them.
const THREAD_GROWTH_MAX: u64 = 4;

/// What may stay in a run directory: whoever comes back finds it again.
const STAYS: [&str; 7] = [
    "agent.lock",
    "manager.lock",
    "dataset.index",
    "manager.address",
    "report.json",
    "token",
    "trainer.json",
];

/// What a process held at a quiet moment.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Sample {
    /// Since the run began.
    pub at_s: f64,
    /// Which process of the agent it was: 1 for the first.
    pub life: u32,
    /// What it held.
    pub held: Footprint,
}

/// How much an agent held at the beginning and at the end of its longest life.
#[derive(Debug, Clone, Serialize)]
pub struct Growth {
    /// The length of the life that was looked at.
    pub over_s: f64,
    /// Medians of its first third.
    pub first: Footprint,
    /// Medians of its last third.
    pub last: Footprint,
}

impl Growth {
    /// Of the life with most samples; `None` if it has fewer than three.
    pub(super) fn of(samples: &[Sample]) -> Option<Self> {
        let lives: BTreeSet<u32> = samples.iter().map(|sample| sample.life).collect();
        let of_life = |life| samples.iter().filter(move |sample| sample.life == life);
        let longest = lives.into_iter().max_by_key(|life| of_life(*life).count())?;
        let life: Vec<&Sample> = of_life(longest).collect();
        if life.len() < 3 {
            return None;
        }
        let third = life.len() / 3;
        let over_s = life.last()?.at_s - life.first()?.at_s;
        let (first, last) = (median(&life[..third]), median(&life[life.len() - third..]));
        Some(Self { over_s, first, last })
    }

    /// What grew more than it may, in words.
    pub(super) fn excess(&self) -> Vec<String> {
        let limits = [
            ("bytes", self.first.memory_bytes, self.last.memory_bytes, MEMORY_GROWTH_MAX),
            ("descriptors", self.first.descriptors, self.last.descriptors, DESCRIPTOR_GROWTH_MAX),
            ("threads", self.first.threads, self.last.threads, THREAD_GROWTH_MAX),
        ];
        let grown = limits.into_iter().filter(|(_, first, last, max)| *last > first + max);
        let sentence = |(what, first, last, max)| {
            format!("the agent grew from {first} to {last} {what}; {max} more are allowed")
        };
        grown.map(sentence).collect()
    }
}

fn median(samples: &[&Sample]) -> Footprint {
    let of = |field: fn(&Footprint) -> u64| {
        let mut values: Vec<u64> = samples.iter().map(|sample| field(&sample.held)).collect();
        values.sort_unstable();
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    Footprint {
        memory_bytes: of(|it| it.memory_bytes),
        descriptors: of(|it| it.descriptors),
        threads: of(|it| it.threads),
    }
}

/// Names in the shared RAM disk of the host.
pub(super) fn shared_memory() -> BTreeSet<String> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Everything that should not be there after the last process ended, in words.
pub(super) fn leftovers(scene: &Scene, shared_before: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    for tier in [scene.scratch(), scene.storage()] {
        found.extend(names(&tier).map(|name| format!("{name} is left in tier {}", tier.display())));
    }
    for run_dir in [scene.agent_dir(), scene.manager_dir()] {
        let stays = |name: &String| STAYS.contains(&name.as_str());
        let left = names(&run_dir).filter(|name| !stays(name));
        found.extend(left.map(|name| format!("{name} is left in {}", run_dir.display())));
    }
    let shared = shared_memory().into_iter().filter(|it| !shared_before.contains(it));
    let ours = shared.filter(|name| name.contains("tierfeed"));
    found.extend(ours.map(|name| format!("{name} is left in /dev/shm")));
    found.extend(processes_of(&scene.folder).map(|it| format!("a process is left: {it}")));
    found
}

fn names(folder: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

/// Processes whose arguments name the folder of the run.
fn processes_of(folder: &Path) -> impl Iterator<Item = String> + use<> {
    let folder = folder.display().to_string();
    let own = std::process::id().to_string();
    names(Path::new("/proc")).filter(move |pid| *pid != own).filter_map(move |pid| {
        let arguments = fs::read(Path::new("/proc").join(&pid).join("cmdline")).ok()?;
        let text = String::from_utf8_lossy(&arguments).replace('\0', " ");
        text.contains(&folder).then(|| format!("{pid}: {text}"))
    })
}

/// Seconds with a fraction.
pub(super) fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(life: u32, at_s: f64, memory: u64) -> Sample {
        let held = Footprint { memory_bytes: memory << 20, descriptors: 50, threads: 20 };
        Sample { at_s, life, held }
    }

    #[test]
    fn growth_is_looked_for_in_the_longest_life() {
        let mut samples = vec![sample(1, 0.0, 10), sample(1, 1.0, 500)];
        samples.extend((0_u32..9).map(|it| sample(2, f64::from(it), u64::from(it) * 20)));
        let growth = Growth::of(&samples).unwrap();
        assert_eq!((growth.first.memory_bytes >> 20, growth.last.memory_bytes >> 20), (20, 140));
        assert_eq!(growth.excess().len(), 1, "{:?}", growth.excess());
    }

    #[test]
    fn what_stays_the_same_did_not_grow() {
        let samples: Vec<Sample> = (0_u32..9).map(|it| sample(1, f64::from(it), 100)).collect();
        assert_eq!(Growth::of(&samples).unwrap().excess(), Vec::<String>::new());
    }

    #[test]
    fn a_life_of_two_samples_says_nothing() {
        assert!(Growth::of(&[sample(1, 0.0, 1), sample(1, 1.0, 2)]).is_none());
    }
}
