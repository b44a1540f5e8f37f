//! The testbed of a campaign: a folder with dataset, checksums, job and tiers, into which all processes write,
//! a control group for the agent, a bucket if there is one, and the network of several nodes.

use std::{
    fmt::Write as _,
    fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};
use tierfeed_core::units::Bytes;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    bucket::{Bucket, PREFIX},
    memory_cgroup::MemoryCgroup,
    network::{self, Network},
    role::{Role, World},
    samples::{self, Samples},
    steps::Steps,
    syscall_faults::SyscallFaults,
};

/// More epochs than a training of an hour completes.
const EPOCHS: u32 = 20_000;

const CHUNK: &str = "256 KiB";

/// Four nodes hold more than the dataset of 300 files together, and each of them half of it.
const TIERS_OF_SEVERAL_NODES: &str = "policy: partitioned
tiers:
  main-memory: { size: 14 MiB }
  cxl-memory: { size: 10 MiB, emulate: { latency: 350 ns, bandwidth: 20 GB/s } }
";
const SCRATCH_DISK: &str = "size=12m,mode=700";
/// More than the RAM disk holds.
pub(crate) const SCRATCH_DISK_BYTES: usize = 16 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Disk {
    /// On a small RAM disk of its own, which can be filled up.
    Own,
    /// In the folder of the campaign: filling it would fill a disk that other programs use.
    Shared { reason: String },
}

#[derive(Debug)]
pub(crate) enum Source {
    Files,
    Bucket(Bucket),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup<'a> {
    pub(crate) world: World,
    pub(crate) files: u64,
    /// The program of the S3 server that the job reads from, or `None` to read files.
    pub(crate) server: Option<&'a Path>,
    /// The limit of the agent's control group, or `None` for no group.
    pub(crate) memory: Option<Bytes>,
    pub(crate) samples: Samples,
}

#[derive(Debug)]
pub(crate) struct Testbed {
    pub(crate) folder: PathBuf,
    pub(crate) world: World,
    pub(crate) samples: Samples,
    /// The network of the nodes, or the reason why there is none.
    pub(crate) network: Result<Network, String>,
    pub(crate) disk: Disk,
    pub(crate) source: Source,
    /// `Err` with the reason if system calls cannot be made to fail here.
    pub(crate) calls: Result<(), String>,
    /// The control group of the agent, or the reason why it has none.
    pub(crate) cgroup: Result<MemoryCgroup, String>,
    /// By sample number.
    pub(crate) objects: Vec<PathBuf>,
}

impl Testbed {
    /// Makes files of 20 to 200 KB, their checksums and the job; for one node a RAM disk and a control group,
    /// for several a network, into which this thread and the processes that it starts are moved.
    pub(crate) fn make(folder: &Path, setup: Setup<'_>) -> anyhow::Result<Self> {
        let Setup { world, files: count, server, memory, samples } = setup;
        let data = folder.join("data");
        samples.write(&data, count)?;
        let mut testbed = Self {
            folder: folder.to_owned(),
            world,
            samples,
            network: match world.nodes {
                1 => Err("one node has no links to others; --nodes 4 has some".to_owned()),
                nodes => Network::make(nodes + 1).map_err(|error| format!("no network: {error:#}")),
            },
            disk: Disk::Own,
            source: match server {
                Some(program) => Source::Bucket(Bucket::serve(program, &data)?),
                None => Source::Files,
            },
            cgroup: match memory.filter(|_| world.nodes == 1) {
                None => Err("no control group was asked for".to_owned()),
                Some(limit) => {
                    MemoryCgroup::make(limit).map_err(|error| format!("no control group: {error}"))
                }
            },
            calls: SyscallFaults::obstacle().map_or(Ok(()), Err),
            objects: objects_in(&data)?,
        };
        for name in ["logs", "aside", "scratch", "storage"] {
            fs::create_dir(testbed.path(name)).with_context(|| name.to_owned())?;
        }
        testbed.write_sums()?;
        if world.nodes == 1 {
            testbed.disk = mount(&testbed.path("scratch"));
            fs::create_dir(testbed.scratch())?;
        } else {
            Steps::make(&testbed.steps(), world.ranks())?;
            let reason = "tiers of several nodes are in memory".to_owned();
            testbed.disk = Disk::Shared { reason };
        }
        fs::write(testbed.job(), testbed.job_text())?;
        if let Some(rows) = samples::sums_of_rows(&testbed.job(), &testbed.objects)? {
            fs::write(testbed.rows(), rows)?;
        }
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

    pub(crate) fn rows(&self) -> PathBuf {
        self.path("rows")
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

    /// The folder in which ranks that keep step note the number of their steps.
    pub(crate) fn steps(&self) -> PathBuf {
        self.path("steps")
    }

    /// The host of the manager, which is none of the nodes.
    pub(crate) fn manager_host(&self) -> u32 {
        self.world.nodes
    }

    /// A command on the host of a role, or here if the role has none; an agent joins the control group, if
    /// there is one.
    pub(crate) fn command(&self, role: Role, program: &Path) -> anyhow::Result<Command> {
        match (&self.network, &self.cgroup, role) {
            (Ok(network), _, Role::Manager) => network.command(self.manager_host(), program),
            (Ok(network), _, Role::Agent(node)) => network.command(node, program),
            (Err(_), Ok(cgroup), Role::Agent(_)) => Ok(cgroup.command(program)),
            _ => Ok(Command::new(program)),
        }
    }

    /// The address at which a role listens: that of its host, or of this one.
    pub(crate) fn address(&self, role: Role) -> IpAddr {
        match (&self.network, role) {
            (Ok(_), Role::Manager) => network::address(self.manager_host()).into(),
            (Ok(_), Role::Agent(node)) => network::address(node).into(),
            _ => Ipv4Addr::LOCALHOST.into(),
        }
    }

    pub(crate) fn agent_dir(&self, node: u32) -> PathBuf {
        self.path(&Role::Agent(node).name())
    }

    pub(crate) fn run_dirs(&self) -> impl Iterator<Item = PathBuf> {
        self.world.nodes().map(|node| self.agent_dir(node)).chain([self.manager_dir()])
    }

    pub(crate) fn manager_dir(&self) -> PathBuf {
        self.path("manager")
    }

    /// The file in which the agent of a node gives Prometheus the address of its metrics.
    pub(crate) fn agent_targets(&self, node: u32) -> PathBuf {
        self.agent_dir(node).join("prometheus.json")
    }

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
        let World { nodes, ranks_per_node, spare_ranks } = self.world;
        let ranks = ranks_per_node + spare_ranks;
        let source = match &self.source {
            Source::Files => format!(
                "{}\n  emulate: {{ latency: 1 ms, bandwidth: {} }}",
                self.path("data").display(),
                // A node that is slower than the cold store is not asked.
                if nodes == 1 { "200 MB/s" } else { "20 MB/s" },
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
             world: {{ nodes: {nodes}, ranks_per_node: {ranks} }}\n\
             chunk: {CHUNK}\n\
             {}{}",
            self.samples.job_text(),
            if nodes == 1 { self.tiers_of_one_node() } else { TIERS_OF_SEVERAL_NODES.to_owned() },
        )
    }

    fn tiers_of_one_node(&self) -> String {
        let scratch = match self.disk {
            // A share, so that the tier follows what is free on its disk.
            Disk::Own => "reserve: 60 %",
            Disk::Shared { .. } => "size: 6 MiB",
        };
        format!(
            "tiers:\n\
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
