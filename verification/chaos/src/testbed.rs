//! The testbed of a campaign: a folder with dataset, checksums, job and tiers, into which all processes write,
//! a control group for the agent, and a bucket if there is one.

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
    bucket::{Bucket, PREFIX},
    memory_cgroup::MemoryCgroup,
    role::RANKS,
    syscall_faults::SyscallFaults,
};

/// Ranks of the job, including the one of the hostile client.
const JOB_RANKS: u32 = RANKS + 1;

/// More epochs than a training of an hour completes.
const EPOCHS: u32 = 20_000;

const CHUNK: &str = "256 KiB";
const SCRATCH_DISK: &str = "size=12m,mode=700";
/// What fits on the RAM disk, and a little more, in bytes.
pub(crate) const SCRATCH_DISK_BYTES: usize = 16 << 20;

/// Where the scratch tier lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Disk {
    /// On a small RAM disk of its own, which can be filled up.
    Own,
    /// In the folder of the campaign: to fill it would fill a disk that other programs use.
    Shared {
        /// Why there is no RAM disk.
        reason: String,
    },
}

/// The cold store of the dataset.
#[derive(Debug)]
pub(crate) enum Source {
    /// The files of the dataset.
    Files,
    /// A bucket with the same objects.
    Bucket(Bucket),
}

/// Everything that the processes under test use.
#[derive(Debug)]
pub(crate) struct Testbed {
    pub(crate) folder: PathBuf,
    pub(crate) disk: Disk,
    pub(crate) source: Source,
    /// Whether system calls can be made to fail here, or why not.
    pub(crate) calls: Result<(), String>,
    /// The control group of the agent, or why it has none.
    pub(crate) cgroup: Result<MemoryCgroup, String>,
    /// The objects of the dataset, by sample number.
    pub(crate) objects: Vec<PathBuf>,
}

impl Testbed {
    /// Makes `count` files of 20 to 200 KB, their checksums, a RAM disk and the job. With the program of
    /// a `server` the job reads them from a bucket. `memory` limits the control group of the agent.
    pub(crate) fn make(
        folder: &Path,
        count: u64,
        server: Option<&Path>,
        memory: Option<Bytes>,
    ) -> anyhow::Result<Self> {
        let data = folder.join("data");
        files::write_image_folder(&data, count)?;
        let mut testbed = Self {
            folder: folder.to_owned(),
            disk: Disk::Own,
            source: match server {
                Some(program) => Source::Bucket(Bucket::serve(program, &data)?),
                None => Source::Files,
            },
            cgroup: memory.ok_or_else(String::new).and_then(|limit| {
                MemoryCgroup::make(limit).map_err(|error| format!("no control group: {error}"))
            }),
            calls: SyscallFaults::obstacle().map_or(Ok(()), Err),
            objects: objects_in(&data)?,
        };
        for role in ["logs", "aside", "scratch", "storage"] {
            fs::create_dir(testbed.path(role)).with_context(|| role.to_owned())?;
        }
        testbed.write_sums()?;
        testbed.disk = mount(&testbed.path("scratch"));
        fs::create_dir(testbed.scratch())?;
        fs::write(testbed.job(), testbed.job_text())?;
        Ok(testbed)
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

    /// The key of an object in the bucket, without the prefix.
    pub(crate) fn key(&self, object: &Path) -> anyhow::Result<String> {
        let name = object.strip_prefix(self.path("data"))?;
        Ok(name.to_str().context("names of objects are UTF-8")?.to_owned())
    }

    /// A trainer that finds this file starts a process that keeps its socket, and writes its number to
    /// [`Self::orphan`].
    pub(crate) fn fork(&self, rank: u32) -> PathBuf {
        self.path(&format!("fork{rank}"))
    }

    /// The file with the number of the process that a trainer started.
    pub(crate) fn orphan(&self, rank: u32) -> PathBuf {
        self.path(&format!("fork{rank}.pid"))
    }

    /// The standard error of the process of this name.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.path("logs").join(name)
    }

    pub(crate) fn agent_dir(&self) -> PathBuf {
        self.path("agent")
    }

    pub(crate) fn manager_dir(&self) -> PathBuf {
        self.path("manager")
    }

    /// The file in which the agent tells Prometheus the address of its metrics.
    pub(crate) fn agent_targets(&self) -> PathBuf {
        self.agent_dir().join("prometheus.json")
    }

    /// As [`Self::agent_targets`], of the manager.
    pub(crate) fn manager_targets(&self) -> PathBuf {
        self.manager_dir().join("prometheus-manager.json")
    }

    /// The directory of the scratch tier, inside of its disk so that it can be moved away.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.path("scratch").join("tier")
    }

    /// The file that fills the disk of the scratch tier.
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
             world: {{ nodes: 1, ranks_per_node: {JOB_RANKS} }}\n\
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

impl Drop for Testbed {
    fn drop(&mut self) {
        if self.disk == Disk::Own {
            // It fails if it was never mounted, or lasts until its last user is gone.
            let _ = Command::new("umount").arg("-l").arg(self.path("scratch")).status();
        }
    }
}

/// The files below `data` in the order of sample numbers of an image folder: by class, then by name.
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
