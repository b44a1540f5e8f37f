//! The checks at the end of a campaign: growth of processes, leaked chunks, and what was left behind.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde::Serialize;
use tierfeed_core::units::Bytes;

use crate::{
    bucket::Bucket, footprint::Footprint, metrics::TierUsage, role::Role, testbed::Testbed, workers,
};

/// A fault that was drawn this often should have had an effect at least once.
pub(crate) const DRAWN_MIN: u64 = 3;

/// In bytes: allocators keep pages, and each window and bounce buffer is made when it is first needed.
const MEMORY_GROWTH_MAX: u64 = 12 << 20;

/// Connections and files of the dataset are opened and closed all the time.
const DESCRIPTOR_GROWTH_MAX: u64 = 8;

/// Connections to another node and from it, each made when it is needed and closed when it is idle.
const CONNECTIONS_PER_PEER: u64 = 8;

/// The windows of a disk tier and the bounce buffers of its threads, each made when it is first needed.
const FILE_GROWTH_MAX: u64 = 16;

/// The threads that the runtime may start when it needs them, and keeps while there is work.
const THREAD_GROWTH_MAX: u64 = 16;

/// The time from the first measurement of a process to the first that counts. In an agent that transforms images
/// memory of its own grew from 22 to 30 MiB in the first 30 to 50 s, and by 2 MiB in the next 70 s.
const WARM_UP_S: f64 = 40.0;

/// Chunks that are taken or given back between two measurements, in bytes.
const CHUNKS_IN_FLIGHT: u64 = 1 << 20;

/// Files that may stay in a run directory: a restarted process uses them again.
const KEPT_FILES: [&str; 12] = [
    "agent.lock",
    "manager.lock",
    "begun",
    "dataset.index",
    "metrics.token",
    "manager.address",
    "memberships.json",
    "report.html",
    "report.json",
    "token",
    "trainer.json",
    "schedules.jsonl",
];

#[derive(Debug, Clone)]
pub(crate) struct Measurement {
    pub(crate) role: Role,
    pub(crate) at_s: f64,
    /// The number of the process among those of its role: 1 for the first.
    pub(crate) incarnation: u32,
    pub(crate) held: Footprint,
    /// The tiers by the metrics of an agent; `None` for other roles.
    pub(crate) tier_usage: Option<TierUsage>,
}

impl Measurement {
    /// A sentence about chunks that the agent does not account for, or should have given back. While a tier
    /// grows and shrinks, all its chunks are in the metrics of the agent and within the capacity.
    pub(crate) fn leak(&self) -> Option<String> {
        let TierUsage { held_bytes, allowed_bytes } = self.tier_usage?;
        let real = self.held.cache_bytes;
        let (what, bytes, known) = if real > held_bytes + CHUNKS_IN_FLIGHT {
            ("has chunks of", real, held_bytes)
        } else if held_bytes > allowed_bytes + CHUNKS_IN_FLIGHT {
            ("holds chunks of", held_bytes, allowed_bytes)
        } else {
            return None;
        };
        let (bytes, known) = (Bytes(bytes), Bytes(known));
        Some(format!(
            "{} {what} {bytes} while no fault is active; {known} at most are allowed",
            self.role
        ))
    }
}

/// The resources of a role at the beginning and at the end of its longest-lived process.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Growth {
    #[serde(rename = "part")]
    pub(crate) role: String,
    pub(crate) over_s: f64,
    /// Medians of the first third of the measurements.
    pub(crate) first: Footprint,
    /// Medians of the last third.
    pub(crate) last: Footprint,
}

impl Growth {
    /// The growth of every role whose longest-lived process was measured at least three times once it was warm.
    pub(crate) fn of_all(measurements: &[Measurement]) -> Vec<Self> {
        let mut by_role: BTreeMap<Role, BTreeMap<u32, Vec<&Measurement>>> = BTreeMap::new();
        for it in measurements {
            by_role.entry(it.role).or_default().entry(it.incarnation).or_default().push(it);
        }
        let longest = |it: BTreeMap<u32, Vec<_>>| it.into_values().max_by_key(Vec::len);
        by_role.into_values().filter_map(longest).filter_map(|it| Self::of(&it)).collect()
    }

    /// The growth of one process.
    fn of(measurements: &[&Measurement]) -> Option<Self> {
        let warm_at_s = measurements.first()?.at_s + WARM_UP_S;
        let found: Vec<_> =
            measurements.iter().copied().filter(|it| it.at_s >= warm_at_s).collect();
        let third = found.len() / 3;
        let (begin, end) = (found.first()?, found.last()?);
        (third > 0).then(|| Self {
            role: begin.role.to_string(),
            over_s: end.at_s - begin.at_s,
            first: median(&found[..third]),
            last: median(&found[found.len() - third..]),
        })
    }

    /// Sentences about resources that grew more than they may beside `peers` other nodes.
    pub(crate) fn excess(&self, peers: u32) -> Vec<String> {
        let descriptors_max = DESCRIPTOR_GROWTH_MAX + u64::from(peers) * CONNECTIONS_PER_PEER;
        let limits = [
            ("bytes", self.first.memory_bytes, self.last.memory_bytes, MEMORY_GROWTH_MAX),
            ("descriptors", self.first.descriptors, self.last.descriptors, descriptors_max),
            ("files", self.first.files, self.last.files, FILE_GROWTH_MAX),
            ("threads", self.first.threads, self.last.threads, THREAD_GROWTH_MAX),
        ];
        let grown = limits.into_iter().filter(|(_, first, last, max)| *last > first + max);
        let sentence = |(what, first, last, max)| {
            format!("{} grew from {first} to {last} {what}; {max} more are allowed", self.role)
        };
        grown.map(sentence).collect()
    }
}

fn median(measurements: &[&Measurement]) -> Footprint {
    let of = |field: fn(&Footprint) -> u64| {
        let mut values: Vec<u64> =
            measurements.iter().map(|measurement| field(&measurement.held)).collect();
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

pub(crate) fn shared_memory() -> BTreeSet<String> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Sentences about everything that should not be there after the last process ended.
pub(crate) fn leftovers(testbed: &Testbed, shared_before: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    let folder = &testbed.folder;
    for tier in [folder.scratch(), folder.storage()] {
        found.extend(names(&tier).map(|name| format!("{name} is left in tier {}", tier.display())));
    }
    for run_dir in testbed.world.servers().map(|it| folder.run_dir(it)) {
        let is_kept = |name: &String| KEPT_FILES.contains(&name.as_str());
        let left = names(&run_dir).filter(|name| !is_kept(name));
        found.extend(left.map(|name| format!("{name} is left in {}", run_dir.display())));
    }
    let shared = shared_memory().into_iter().filter(|it| !shared_before.contains(it));
    let ours = shared.filter(|name| name.contains("tierfeed"));
    found.extend(ours.map(|name| format!("{name} is left in /dev/shm")));
    let served_by = testbed.bucket.as_ref().map(Bucket::pid);
    let orphans = workers::of(1).into_iter();
    found.extend(orphans.map(|pid| format!("a transform worker is left: {pid}")));
    let left = processes_of(folder.path()).filter(|(pid, _)| Some(*pid) != served_by);
    found.extend(left.map(|(pid, text)| format!("a process is left: {pid}: {text}")));
    found
}

/// The number of times that an agent gave memory back because too little was free, according to its report.
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

/// Processes whose arguments name the folder, with their arguments.
fn processes_of(folder: &Path) -> impl Iterator<Item = (u32, String)> + use<> {
    let folder = folder.display().to_string();
    let processes = procfs::process::all_processes().into_iter().flatten().flatten();
    let named = processes.filter_map(|it| Some((it.pid().cast_unsigned(), it.cmdline().ok()?)));
    let named = named.map(|(pid, arguments)| (pid, arguments.join(" ")));
    named.filter(move |(pid, text)| *pid != std::process::id() && text.contains(&folder))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::process::Stdio;

    use super::*;
    use crate::testbed::Setup;

    const AGENT: Role = Role::Agent(0);

    fn measurement(role: Role, incarnation: u32, at_s: f64, memory: u64) -> Measurement {
        let memory_bytes = memory << 20;
        let held = Footprint { memory_bytes, descriptors: 50, files: 9, ..Footprint::default() };
        Measurement { role, at_s, incarnation, held, tier_usage: None }
    }

    #[test]
    fn growth_is_measured_on_the_longest_lived_process_of_each_role() {
        let mut measurements =
            vec![measurement(AGENT, 1, 0.0, 10), measurement(AGENT, 1, 1.0, 500)];
        let warm_at = |it: u32| WARM_UP_S + f64::from(it);
        measurements.extend([measurement(AGENT, 2, 0.0, 1), measurement(AGENT, 2, 39.0, 1)]);
        let grows = |it: u32| measurement(AGENT, 2, warm_at(it), u64::from(it) * 20);
        measurements.extend((0..9).map(grows));
        measurements.push(measurement(Role::Manager, 2, 0.0, 1));
        measurements.extend((0..30_u32).map(|it| measurement(Role::Manager, 2, warm_at(it), 7)));
        let growth = Growth::of_all(&measurements);
        let [manager, agent] = growth.as_slice() else { panic!("{growth:?}") };
        assert_eq!((agent.first.memory_bytes >> 20, agent.last.memory_bytes >> 20), (20, 140));
        assert_eq!(agent.excess(0).len(), 1, "{:?}", agent.excess(0));
        assert_eq!((manager.role.as_str(), manager.excess(0).len()), ("manager", 0));
    }

    #[test]
    fn each_resource_that_may_leak_is_checked() {
        let grow: [fn(&mut Footprint); 4] = [
            |it| it.memory_bytes += MEMORY_GROWTH_MAX + 1,
            |it| it.descriptors += DESCRIPTOR_GROWTH_MAX + 1,
            |it| it.files += FILE_GROWTH_MAX + 1,
            |it| it.threads += THREAD_GROWTH_MAX + 1,
        ];
        for grow in grow {
            let times = [0.0, WARM_UP_S, WARM_UP_S, WARM_UP_S];
            let mut measurements = times.map(|at_s| measurement(AGENT, 1, at_s, 1)).to_vec();
            grow(&mut measurements[3].held);
            assert_eq!(Growth::of_all(&measurements)[0].excess(0).len(), 1);
        }
    }

    #[test]
    fn a_cache_may_grow_as_far_as_its_metrics_say() {
        let leak = |real: u64, held: u64, allowed: u64| {
            let mut measurement = measurement(AGENT, 1, 0.0, 1);
            measurement.held.cache_bytes = real << 20;
            measurement.tier_usage =
                Some(TierUsage { held_bytes: held << 20, allowed_bytes: allowed << 20 });
            measurement.leak().unwrap_or_default()
        };
        assert_eq!([leak(0, 0, 0), leak(30, 30, 30), leak(3, 30, 30)], ["", "", ""]);
        assert_eq!(leak(31, 30, 29), "", "chunks in flight");
        assert!(
            leak(32, 30, 30)
                .starts_with("agent0 has chunks of 32 MiB while no fault is active; 30 MiB")
        );
        assert!(
            leak(32, 32, 30)
                .starts_with("agent0 holds chunks of 32 MiB while no fault is active; 30 MiB")
        );
        assert_eq!(measurement(Role::Trainer(0), 1, 0.0, 1).leak(), None);
    }

    #[test]
    fn files_and_processes_that_are_left_behind_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let testbed = Testbed::make(folder.path(), Setup::plain(3)).unwrap();
        let run_dirs = [Role::Manager, AGENT].map(|it| testbed.folder.run_dir(it));
        let shared = shared_memory();
        for run_dir in &run_dirs {
            fs::create_dir(run_dir).unwrap();
            KEPT_FILES.iter().for_each(|name| fs::write(run_dir.join(name), "").unwrap());
        }
        assert_eq!(leftovers(&testbed, &shared), Vec::<String>::new());
        let tiers = [testbed.folder.scratch(), testbed.folder.storage()];
        for place in tiers.iter().chain(&run_dirs) {
            fs::write(place.join("forgotten"), "").unwrap();
            let found = leftovers(&testbed, &shared);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with("forgotten is left in"), "{found:?}");
            fs::remove_file(place.join("forgotten")).unwrap();
        }
        // Its first byte shows that it runs: before, its arguments may not be in /proc yet.
        let mut cat = std::process::Command::new("cat");
        let cat =
            cat.arg("-").arg(testbed.folder.sums()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = cat.spawn().unwrap();
        process.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        process.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let found = leftovers(&testbed, &shared);
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(found.iter().any(|it| it.contains(": cat - ")), "{found:?}");
    }

    #[test]
    fn memory_that_an_agent_gave_back_is_counted_from_its_report() {
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
    fn equal_measurements_show_no_growth() {
        let measurements: Vec<Measurement> =
            (0_u32..90).map(|it| measurement(AGENT, 1, f64::from(it), 100)).collect();
        assert_eq!(Growth::of_all(&measurements)[0].excess(0), Vec::<String>::new());
    }

    #[test]
    fn two_measurements_show_nothing() {
        let measurements = [measurement(AGENT, 1, 0.0, 1), measurement(AGENT, 1, 1.0, 2)];
        assert!(Growth::of_all(&measurements).is_empty());
    }
}
