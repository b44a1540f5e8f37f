//! The testbed of a campaign: dataset, checksums, job and tiers in a folder, a control group for the agent, a
//! bucket if there is one, and the network of several nodes.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use tierfeed_core::units::Bytes;
use tierfeed_harness::memory_group::MemoryGroup;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    bucket::{Bucket, PREFIX},
    folder::Folder,
    network::{self, Network},
    role::{Role, World},
    samples::{self, Samples},
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

#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) world: World,
    pub(crate) files: u64,
    /// The program of the S3 server that the job reads from, or `None` to read files.
    pub(crate) server: Option<PathBuf>,
    /// Memory that is taken at a time, and the limit of the agent's control group; `None` for no group, as an
    /// agent in a group looks at it again and again.
    pub(crate) pressure: Option<Bytes>,
    pub(crate) samples: Samples,
}

impl Setup {
    /// One node that reads files of noise, without a control group.
    pub(crate) fn plain(files: u64) -> Self {
        let (world, samples) = (World::ONE_NODE, Samples::Noise);
        Self { world, files, server: None, pressure: None, samples }
    }
}

/// A place or right that a testbed may lack here: then the reason why.
pub(crate) type Available<T> = Result<T, String>;

#[derive(Debug)]
pub(crate) struct Testbed {
    pub(crate) folder: Folder,
    pub(crate) world: World,
    pub(crate) samples: Samples,
    /// The network of several nodes.
    pub(crate) network: Available<Network>,
    /// Whether the scratch tier is on a small RAM disk of its own, which can be filled up. In the folder of the
    /// campaign that would fill a disk that other programs use.
    pub(crate) own_disk: Available<()>,
    pub(crate) bucket: Option<Bucket>,
    /// Whether system calls can be made to fail.
    pub(crate) failing_calls: Available<()>,
    pub(crate) group: Available<MemoryGroup>,
    /// As [`Setup::pressure`].
    pub(crate) pressure: Option<Bytes>,
    /// By sample number.
    pub(crate) objects: Vec<PathBuf>,
}

impl Testbed {
    /// Makes files of 20 to 200 KB, their checksums and the job; for one node a RAM disk and a control group,
    /// for several a network, into which this thread and the processes that it starts are moved.
    pub(crate) fn make(path: &Path, setup: Setup) -> anyhow::Result<Self> {
        let Setup { world, files, server, pressure, samples } = setup;
        let folder = Folder::at(path);
        let objects = samples.write(&folder.data(), files)?;
        for name in ["logs", "aside", "scratch", "storage"] {
            fs::create_dir(folder.join(name)).with_context(|| name.to_owned())?;
        }
        let has_one_node = world.nodes == 1;
        let own_disk = if has_one_node {
            mount(&folder.join("scratch"))
        } else {
            Err("tiers of several nodes are in memory".to_owned())
        };
        let testbed = Self {
            world,
            samples,
            network: if has_one_node {
                Err("one node has no links to others; --nodes 4 has some".to_owned())
            } else {
                Network::make(world.nodes + 1).map_err(|error| format!("no network: {error:#}"))
            },
            own_disk,
            bucket: server.map(|it| Bucket::serve(&it, &folder.data())).transpose()?,
            failing_calls: SyscallFaults::are_possible(),
            group: match pressure {
                Some(limit) if has_one_node => {
                    group(limit).map_err(|error| format!("no control group: {error:#}"))
                }
                _ => Err("one node is tested with it".to_owned()),
            },
            pressure,
            objects,
            folder,
        };
        testbed.write_sums()?;
        if has_one_node {
            fs::create_dir(testbed.folder.scratch())?;
        }
        fs::write(testbed.folder.job(), testbed.job_text())?;
        if let Some(rows) = samples::sums_of_rows(&testbed.folder.job(), &testbed.objects)? {
            fs::write(testbed.folder.rows(), serde_json::to_vec(&rows)?)?;
        }
        Ok(testbed)
    }

    /// The host of the manager, which is none of the nodes.
    fn manager_host(&self) -> u32 {
        self.world.nodes
    }

    /// A command on the host of a role, or here if the role has none; an agent joins the control group, if
    /// there is one.
    pub(crate) fn command(&self, role: Role, program: &Path) -> anyhow::Result<Command> {
        match (&self.network, &self.group, role) {
            (Ok(network), _, Role::Manager) => network.command(self.manager_host(), program),
            (Ok(network), _, Role::Agent(node)) => network.command(node, program),
            (Err(_), Ok(group), Role::Agent(_)) => Ok(group.enter(program)),
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

    fn write_sums(&self) -> anyhow::Result<()> {
        let sums: io::Result<Vec<u64>> =
            self.objects.iter().map(|it| fs::read(it).map(|bytes| xxh3_64(&bytes))).collect();
        Ok(fs::write(self.folder.sums(), serde_json::to_vec(&sums?)?)?)
    }

    fn job_text(&self) -> String {
        let World { nodes, ranks_per_node, spare_ranks } = self.world;
        let ranks = ranks_per_node + spare_ranks;
        let source = match &self.bucket {
            None => format!(
                "{}\n  emulate: {{ latency: 1 ms, bandwidth: {} }}",
                self.folder.data().display(),
                // A node that is slower than the cold store is not asked.
                if nodes == 1 { "200 MB/s" } else { "20 MB/s" },
            ),
            Some(bucket) => {
                let endpoint = bucket.endpoint();
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
        // A share, so that the tier follows what is free on its disk.
        let scratch = if self.own_disk.is_ok() { "reserve: 60 %" } else { "size: 6 MiB" };
        format!(
            "tiers:\n\
             \x20 main-memory: {{ size: 14 MiB }}\n\
             \x20 cxl-memory: {{ size: 6 MiB, emulate: {{ latency: 350 ns, bandwidth: 20 GB/s }} }}\n\
             \x20 scratch: {{ {scratch}, path: {path} }}\n\
             \x20 storage: {{ size: 6 MiB, path: {storage} }}\n",
            path = self.folder.scratch().display(),
            storage = self.folder.storage().display(),
        )
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if self.own_disk.is_ok() {
            // It lasts until its last user is gone.
            let _ = Command::new("umount").arg("-l").arg(self.folder.join("scratch")).status();
        }
    }
}

fn group(limit: Bytes) -> anyhow::Result<MemoryGroup> {
    let group = MemoryGroup::make(None)?;
    group.limit(limit)?;
    Ok(group)
}

/// Mounts a small RAM disk at `path`, if this user may.
fn mount(path: &Path) -> Available<()> {
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", SCRATCH_DISK, "tmpfs"]).arg(path);
    network::complete(&mut mount).map_err(|error| format!("{error:#}"))
}
