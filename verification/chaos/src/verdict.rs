//! What is looked at when a chaos run is over: what was left behind, and what grew.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use serde::Serialize;
use tierfeed_core::units::Bytes;

use crate::{
    books::Books,
    footprint::Footprint,
    scene::{Scene, Source},
};

/// Allocators keep pages, and each window and bounce buffer is made when it is needed first; beyond this
/// it is growth.
const MEMORY_GROWTH_MAX: u64 = 12 << 20;

/// Connections and files of the dataset come and go.
const DESCRIPTOR_GROWTH_MAX: u64 = 8;

/// The windows of a disk tier and the bounce buffers of its threads, each made when it is needed first.
const FILE_GROWTH_MAX: u64 = 16;

/// Threads that the runtime starts when it needs them and keeps while there is work: as many as it may.
const THREAD_GROWTH_MAX: u64 = 16;

/// Chunks that come or go between two questions.
const CHUNKS_UNDERWAY: u64 = 1 << 20;

/// What may stay in a run directory: whoever comes back finds it again.
const STAYS: [&str; 10] = [
    "agent.lock",
    "manager.lock",
    "begun",
    "dataset.index",
    "metrics.token",
    "manager.address",
    "report.html",
    "report.json",
    "token",
    "trainer.json",
];

/// What a process held at a quiet moment.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Sample {
    /// Of which part.
    pub(crate) part: String,
    /// Since the run began.
    pub(crate) at_s: f64,
    /// Which process of the part it was: 1 for the first.
    pub(crate) life: u32,
    /// What it held.
    pub(crate) held: Footprint,
    /// What it said that its tiers hold, if it has any.
    pub(crate) books: Option<Books>,
}

impl Sample {
    /// Chunks that nobody has in the books, or that should have been given back, in words. However much a
    /// tier grows and shrinks, what it holds is in the books and within what it may hold.
    pub(crate) fn leak(&self) -> Option<String> {
        let Books { held_bytes, allowed_bytes } = self.books?;
        let real = self.held.cache_bytes;
        let (what, bytes, known) = if real > held_bytes + CHUNKS_UNDERWAY {
            ("has chunks of", real, held_bytes)
        } else if held_bytes > allowed_bytes + CHUNKS_UNDERWAY {
            ("holds chunks of", held_bytes, allowed_bytes)
        } else {
            return None;
        };
        let (bytes, known) = (Bytes(bytes), Bytes(known));
        Some(format!("{} {what} {bytes} in a calm, {known} at most are its due", self.part))
    }
}

/// How much a part held at the beginning and at the end of its longest life.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Growth {
    /// Which part.
    pub(crate) part: String,
    /// The length of the life that was looked at.
    pub(crate) over_s: f64,
    /// Medians of its first third.
    pub(crate) first: Footprint,
    /// Medians of its last third.
    pub(crate) last: Footprint,
}

impl Growth {
    /// Of every part whose longest life has at least three samples.
    pub(crate) fn of_all(samples: &[Sample]) -> Vec<Self> {
        let parts: BTreeSet<&str> = samples.iter().map(|sample| sample.part.as_str()).collect();
        parts.into_iter().filter_map(|part| Self::of(part, samples)).collect()
    }

    /// Of the life with most samples.
    fn of(part: &str, samples: &[Sample]) -> Option<Self> {
        let of_part = || samples.iter().filter(|sample| sample.part == part);
        let lives: BTreeSet<u32> = of_part().map(|sample| sample.life).collect();
        let of_life = |life| of_part().filter(move |sample| sample.life == life);
        let longest = lives.into_iter().max_by_key(|life| of_life(*life).count())?;
        let life: Vec<&Sample> = of_life(longest).collect();
        if life.len() < 3 {
            return None;
        }
        let third = life.len() / 3;
        let over_s = life.last()?.at_s - life.first()?.at_s;
        let (first, last) = (median(&life[..third]), median(&life[life.len() - third..]));
        Some(Self { part: part.to_owned(), over_s, first, last })
    }

    /// What grew more than it may, in words.
    pub(crate) fn excess(&self) -> Vec<String> {
        let limits = [
            ("bytes", self.first.memory_bytes, self.last.memory_bytes, MEMORY_GROWTH_MAX),
            ("descriptors", self.first.descriptors, self.last.descriptors, DESCRIPTOR_GROWTH_MAX),
            ("files", self.first.files, self.last.files, FILE_GROWTH_MAX),
            ("threads", self.first.threads, self.last.threads, THREAD_GROWTH_MAX),
        ];
        let grown = limits.into_iter().filter(|(_, first, last, max)| *last > first + max);
        let sentence = |(what, first, last, max)| {
            format!("{} grew from {first} to {last} {what}; {max} more are allowed", self.part)
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
        cache_bytes: of(|it| it.cache_bytes),
        descriptors: of(|it| it.descriptors),
        files: of(|it| it.files),
        threads: of(|it| it.threads),
    }
}

/// Names in the shared RAM disk of the host.
pub(crate) fn shared_memory() -> BTreeSet<String> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Everything that should not be there after the last process ended, in words.
pub(crate) fn leftovers(scene: &Scene, shared_before: &BTreeSet<String>) -> Vec<String> {
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
    let served_by = match &scene.source {
        Source::Bucket(store) => Some(store.pid()),
        Source::Files => None,
    };
    let left = processes_of(&scene.folder).filter(|(pid, _)| Some(*pid) != served_by);
    found.extend(left.map(|(pid, text)| format!("a process is left: {pid}: {text}")));
    found
}

/// How often an agent gave memory back because too little was free, as its report tells.
pub(crate) fn given_back(report: &Path) -> usize {
    let text = fs::read(report).unwrap_or_default();
    let report: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    let moments = report["memory"]["timeline"].as_array().into_iter().flatten();
    let changes = moments.flat_map(|moment| moment["changes"].as_array().into_iter().flatten());
    let is_short = |change: &&serde_json::Value| {
        change.as_str().is_some_and(|it| it.ends_with("short of what must stay free"))
    };
    changes.filter(is_short).count()
}

fn names(folder: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

/// Processes whose arguments name the folder of the run, with these.
fn processes_of(folder: &Path) -> impl Iterator<Item = (u32, String)> + use<> {
    let folder = folder.display().to_string();
    let pids = names(Path::new("/proc")).filter_map(|name| name.parse::<u32>().ok());
    pids.filter(|pid| *pid != std::process::id()).filter_map(move |pid| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let text = String::from_utf8_lossy(&arguments).replace('\0', " ");
        text.contains(&folder).then_some((pid, text))
    })
}

/// Seconds with a fraction.
pub(crate) fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::process::Stdio;

    use super::*;

    fn sample(part: &str, life: u32, at_s: f64, memory: u64) -> Sample {
        let memory_bytes = memory << 20;
        let held = Footprint { memory_bytes, descriptors: 50, files: 9, ..Footprint::default() };
        Sample { part: part.to_owned(), at_s, life, held, books: None }
    }

    #[test]
    fn growth_is_looked_for_in_the_longest_life_of_each_part() {
        let mut samples = vec![sample("agent", 1, 0.0, 10), sample("agent", 1, 1.0, 500)];
        let grows = |it: u32| sample("agent", 2, f64::from(it), u64::from(it) * 20);
        samples.extend((0..9).map(grows));
        samples.extend((0..30_u32).map(|it| sample("manager", 2, f64::from(it), 7)));
        let growth = Growth::of_all(&samples);
        let [agent, manager] = growth.as_slice() else { panic!("{growth:?}") };
        assert_eq!((agent.first.memory_bytes >> 20, agent.last.memory_bytes >> 20), (20, 140));
        assert_eq!(agent.excess().len(), 1, "{:?}", agent.excess());
        assert_eq!((manager.part.as_str(), manager.excess().len()), ("manager", 0));
    }

    #[test]
    fn each_thing_that_may_leak_is_looked_at() {
        let grow: [fn(&mut Footprint); 4] = [
            |it| it.memory_bytes += MEMORY_GROWTH_MAX + 1,
            |it| it.descriptors += DESCRIPTOR_GROWTH_MAX + 1,
            |it| it.files += FILE_GROWTH_MAX + 1,
            |it| it.threads += THREAD_GROWTH_MAX + 1,
        ];
        for grow in grow {
            let mut samples: Vec<_> = (0..3).map(|_| sample("agent", 1, 0.0, 1)).collect();
            grow(&mut samples[2].held);
            assert_eq!(Growth::of_all(&samples)[0].excess().len(), 1);
        }
    }

    #[test]
    fn a_cache_may_grow_as_far_as_the_books_say() {
        let leak = |real: u64, held: u64, allowed: u64| {
            let mut sample = sample("agent", 1, 0.0, 1);
            sample.held.cache_bytes = real << 20;
            sample.books = Some(Books { held_bytes: held << 20, allowed_bytes: allowed << 20 });
            sample.leak().unwrap_or_default()
        };
        assert_eq!([leak(0, 0, 0), leak(30, 30, 30), leak(3, 30, 30)], ["", "", ""]);
        assert_eq!(leak(31, 30, 29), "", "some come and go");
        assert!(leak(32, 30, 30).starts_with("agent has chunks of 32 MiB in a calm, 30 MiB"));
        assert!(leak(32, 32, 30).starts_with("agent holds chunks of 32 MiB in a calm, 30 MiB"));
        assert_eq!(sample("trainer0", 1, 0.0, 1).leak(), None);
    }

    #[test]
    fn what_is_left_behind_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let scene = Scene::make(folder.path(), 3, None, None).unwrap();
        let shared = shared_memory();
        for run_dir in [scene.agent_dir(), scene.manager_dir()] {
            fs::create_dir(&run_dir).unwrap();
            STAYS.iter().for_each(|name| fs::write(run_dir.join(name), "").unwrap());
        }
        assert_eq!(leftovers(&scene, &shared), Vec::<String>::new());
        for place in [scene.scratch(), scene.storage(), scene.agent_dir(), scene.manager_dir()] {
            fs::write(place.join("forgotten"), "").unwrap();
            let found = leftovers(&scene, &shared);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with("forgotten is left in"), "{found:?}");
            fs::remove_file(place.join("forgotten")).unwrap();
        }
        // Its first byte back says that it runs: until then its arguments may not be in /proc yet.
        let mut cat = std::process::Command::new("cat");
        let cat = cat.arg("-").arg(scene.sums()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = cat.spawn().unwrap();
        process.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        process.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let found = leftovers(&scene, &shared);
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(found.iter().any(|it| it.contains(": cat - ")), "{found:?}");
    }

    #[test]
    fn what_an_agent_gave_back_is_in_its_report() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        assert_eq!(given_back(&path), 0);
        let short = "scratch: 3 to 1 chunks, 2 MiB short of what must stay free";
        let moments = format!(
            r#"[{{"changes":["{short}","{short}"]}},{{}},{{"changes":["staging: 1 to 2 batches"]}}]"#
        );
        fs::write(&path, format!(r#"{{"memory":{{"timeline":{moments}}}}}"#)).unwrap();
        assert_eq!(given_back(&path), 2);
    }

    #[test]
    fn what_stays_the_same_did_not_grow() {
        let samples: Vec<Sample> =
            (0_u32..9).map(|it| sample("agent", 1, f64::from(it), 100)).collect();
        assert_eq!(Growth::of_all(&samples)[0].excess(), Vec::<String>::new());
    }

    #[test]
    fn a_life_of_two_samples_says_nothing() {
        let samples = [sample("agent", 1, 0.0, 1), sample("agent", 1, 1.0, 2)];
        assert!(Growth::of_all(&samples).is_empty());
    }
}
