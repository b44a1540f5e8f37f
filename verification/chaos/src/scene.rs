//! The folder of a chaos run: dataset, checksums, job, tiers, and where everybody writes.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};
use tierfeed_core::units::Bytes;
use tierfeed_harness::files;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    calls::Failing,
    group::Group,
    part::RANKS,
    store::{PREFIX, Store},
};

/// Ranks of the job: one is left for a hostile client.
const SEATS: u32 = RANKS + 1;

/// More than a training of an hour gets through.
const EPOCHS: u32 = 20_000;

const CHUNK: &str = "256 KiB";
const SCRATCH_DISK: &str = "size=12m,mode=700";
/// What fits there, and a little more.
pub(crate) const SCRATCH_DISK_BYTES: usize = 16 << 20;

/// Where the scratch tier lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Disk {
    /// On a small RAM disk of its own, which can be filled.
    Own,
    /// In the folder of the run: filling it would fill the disk of everybody.
    Shared {
        /// Why there is no own one.
        reason: String,
    },
}

/// Where the cold store of a run is.
#[derive(Debug)]
pub(crate) enum Source {
    /// In the files themselves.
    Files,
    /// In a bucket with the same objects.
    Bucket(Store),
}

/// The folder of a chaos run.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) folder: PathBuf,
    pub(crate) disk: Disk,
    pub(crate) source: Source,
    /// Whether system calls can be made to fail here, or why not.
    pub(crate) calls: Result<(), String>,
    /// Of the agent, or why it has none.
    pub(crate) group: Result<Group, String>,
    /// The objects of the dataset, by sample number.
    pub(crate) objects: Vec<PathBuf>,
}

impl Scene {
    /// Makes `files` files of 20 to 200 KB, their checksums, a RAM disk and the job. With the program of
    /// a `server` the job reads them from a bucket. `memory` is for the agent.
    pub(crate) fn make(
        folder: &Path,
        files: u64,
        server: Option<&Path>,
        memory: Option<Bytes>,
    ) -> anyhow::Result<Self> {
        let data = folder.join("data");
        for number in 0..files {
            let class = data.join(format!("class{:02}", number % 10));
            let len = 20_000 + (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 180_000;
            files::write_noise(&class.join(format!("{number:05}.jpg")), number, len)?;
        }
        let mut scene = Self {
            folder: folder.to_owned(),
            disk: Disk::Own,
            source: match server {
                Some(program) => Source::Bucket(Store::serve(program, &data)?),
                None => Source::Files,
            },
            group: memory.ok_or_else(String::new).and_then(|limit| {
                Group::make(limit).map_err(|error| format!("no control group: {error}"))
            }),
            calls: Failing::is_impossible().map_or(Ok(()), Err),
            objects: objects_in(&data)?,
        };
        for part in ["logs", "aside", "scratch", "storage"] {
            fs::create_dir(scene.path(part)).with_context(|| part.to_owned())?;
        }
        scene.write_sums()?;
        scene.disk = mount(&scene.path("scratch"));
        fs::create_dir(scene.scratch())?;
        fs::write(scene.job(), scene.job_text())?;
        Ok(scene)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn job(&self) -> PathBuf {
        self.path("job.yaml")
    }

    pub(crate) fn sums(&self) -> PathBuf {
        self.path("sums")
    }

    pub(crate) fn stop(&self) -> PathBuf {
        self.path("stop")
    }

    pub(crate) fn record(&self, rank: u32) -> PathBuf {
        self.path(&format!("record{rank}"))
    }

    /// What the store calls an object.
    pub(crate) fn key(&self, object: &Path) -> anyhow::Result<String> {
        let name = object.strip_prefix(self.path("data"))?;
        Ok(name.to_str().context("names of objects are UTF-8")?.to_owned())
    }

    /// A trainer that finds this starts a process which keeps its socket, and writes its number into
    /// [`Self::orphan`].
    pub(crate) fn fork(&self, rank: u32) -> PathBuf {
        self.path(&format!("fork{rank}"))
    }

    /// The number of the process that a trainer started.
    pub(crate) fn orphan(&self, rank: u32) -> PathBuf {
        self.path(&format!("fork{rank}.pid"))
    }

    /// What the process of this name said on standard error.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.path("logs").join(name)
    }

    pub(crate) fn agent_dir(&self) -> PathBuf {
        self.path("agent")
    }

    pub(crate) fn manager_dir(&self) -> PathBuf {
        self.path("manager")
    }

    /// Where an agent tells Prometheus its address, and a manager.
    pub(crate) fn agent_targets(&self) -> PathBuf {
        self.agent_dir().join("prometheus.json")
    }

    pub(crate) fn manager_targets(&self) -> PathBuf {
        self.manager_dir().join("prometheus-manager.json")
    }

    /// The directory of the scratch tier, inside of its disk so that it can go away.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.path("scratch").join("tier")
    }

    /// What takes the room of the scratch tier when its disk is full.
    pub(crate) fn filler(&self) -> PathBuf {
        self.path("scratch").join("filler")
    }

    pub(crate) fn storage(&self) -> PathBuf {
        self.path("storage")
    }

    fn write_sums(&self) -> anyhow::Result<()> {
        let mut text = String::new();
        for object in &self.objects {
            let bytes = fs::read(object).with_context(|| object.display().to_string())?;
            _ = writeln!(text, "{:016x}", xxh3_64(&bytes));
        }
        Ok(fs::write(self.sums(), text)?)
    }

    fn job_text(&self) -> String {
        let scratch = match self.disk {
            // A share, so that the tier follows what is free on its disk.
            Disk::Own => "reserve: 60 %",
            Disk::Shared { .. } => "size: 6 MiB",
        };
        let source = match &self.source {
            Source::Files => format!(
                "{}\n  emulate: {{ latency: 1 ms, bandwidth: 200 MB/s }}",
                self.path("data").display()
            ),
            Source::Bucket(store) => {
                let endpoint = store.endpoint();
                format!("s3://bucket/{PREFIX}\n  endpoint: {endpoint}\n  anonymous: true")
            }
        };
        format!(
            "name: chaos\n\
             dataset:\n  format: image-folder\n  source: {source}\n\
             order: {{ shuffle: torch-distributed, seed: 42, epochs: {EPOCHS} }}\n\
             batch_size: 8\n\
             world: {{ nodes: 1, ranks_per_node: {SEATS} }}\n\
             chunk: {CHUNK}\n\
             tiers:\n\
             \x20 main-memory: {{ size: 14 MiB }}\n\
             \x20 cxl-memory: {{ size: 6 MiB, emulate: {{ latency: 350 ns, bandwidth: 20 GB/s }} }}\n\
             \x20 scratch: {{ {scratch}, path: {path} }}\n\
             \x20 storage: {{ size: 6 MiB, path: {storage} }}\n",
            path = self.scratch().display(),
            storage = self.storage().display(),
        )
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if self.disk == Disk::Own {
            // It fails if it was never mounted, or goes on until its last user is gone.
            let _ = Command::new("umount").arg("-l").arg(self.path("scratch")).status();
        }
    }
}

/// The files below `data` by the numbers that an image folder gives them: classes by name, then files.
fn objects_in(data: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let sorted = |folder: &Path| -> anyhow::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
        let mut paths = entries.map(|it| Ok(it?.path())).collect::<anyhow::Result<Vec<_>>>()?;
        paths.sort();
        Ok(paths)
    };
    let mut objects = Vec::new();
    for class in sorted(data)? {
        objects.extend(sorted(&class)?);
    }
    Ok(objects)
}

/// A small RAM disk at `path`, if this user may mount one.
fn mount(path: &Path) -> Disk {
    let mounted = || {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", SCRATCH_DISK, "tmpfs"]).arg(path);
        let output = mount.stdin(Stdio::null()).output()?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    };
    match mounted() {
        Ok(()) => Disk::Own,
        Err(error) => Disk::Shared { reason: error.to_string() },
    }
}
