//! Trees of machines that nobody here owns, for tests.

pub(crate) mod tree;

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

/// A directory with `proc` and `sys` of some machine.
pub(crate) struct FakeSysroot {
    root: TempDir,
}

impl FakeSysroot {
    pub(crate) fn machine(name: &str) -> Self {
        Self::of(&tree::parse(&tree::text(name)))
    }

    pub(crate) fn of(entries: &[(String, tree::Entry)]) -> Self {
        let fake = Self { root: tempfile::tempdir().unwrap() };
        entries.iter().for_each(|(path, entry)| fake.put(path, entry));
        fake
    }

    pub(crate) fn put(&self, path: &str, entry: &tree::Entry) {
        match entry {
            tree::Entry::File(content) => self.write_bytes(path, content),
            tree::Entry::Link(target) => self.link(path, target),
        }
    }

    pub(crate) fn remove(&self, path: &str) {
        if let Err(error) = fs::remove_file(self.at(path)) {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{path}");
        }
    }

    /// A tree with what every Linux has, and no NUMA.
    pub(crate) fn bare() -> Self {
        let fake = Self { root: tempfile::tempdir().unwrap() };
        fake.write("proc/meminfo", "MemTotal: 4096 kB\nMemFree: 1024 kB\nMemAvailable: 2048 kB\n");
        fake.write("proc/self/mountinfo", "27 1 254:0 / / rw - ext4 /dev/vda1 rw\n");
        fake.write("proc/sys/kernel/hostname", "fake\n");
        fake
    }

    /// One node with two CPUs that share a cache of 32 MiB.
    pub(crate) fn single_node() -> Self {
        let fake = Self::bare();
        fake.nodes(&[0], &[&[10]]);
        fake.node(0, "0-1", 4096);
        for cpu in 0..2 {
            fake.cache(cpu, 0, 1, "Data", "48K", &cpu.to_string());
            fake.cache(cpu, 1, 1, "Instruction", "32K", &cpu.to_string());
            fake.cache(cpu, 2, 3, "Unified", "32768K", "0-1");
        }
        fake
    }

    /// Two sockets and a CPU-less CXL node behind the second. The firmware rates all of them; by its
    /// distances, which are cruder, the first socket would be nearer.
    pub(crate) fn cxl_node() -> Self {
        let fake = Self::bare();
        fake.nodes(&[0, 1, 2], &[&[10, 21, 14], &[21, 10, 24], &[255, 255, 10]]);
        fake.node(0, "0-3", 4096);
        fake.node(1, "4-7", 4096);
        fake.node(2, "", 4096);
        fake.rate(0, "access1", 0, [100, 204_800]);
        fake.rate(1, "access1", 1, [100, 204_800]);
        fake.rate(2, "access0", 0, [900, 1]);
        fake.rate(2, "access1", 1, [250, 51_200]);
        fake
    }

    pub(crate) fn path(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        self.write_bytes(path, text.as_bytes());
    }

    pub(crate) fn write_bytes(&self, path: &str, bytes: &[u8]) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub(crate) fn link(&self, path: &str, target: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    pub(crate) fn nodes(&self, ids: &[u32], distances: &[&[u8]]) {
        let list: Vec<String> = ids.iter().map(u32::to_string).collect();
        self.write("sys/devices/system/node/online", &(list.join(",") + "\n"));
        for (id, row) in ids.iter().zip(distances) {
            let row: Vec<String> = row.iter().map(u8::to_string).collect();
            self.write(&format!("{}/distance", node_path(*id)), &(row.join(" ") + "\n"));
        }
    }

    pub(crate) fn node(&self, id: u32, cpus: &str, kibibytes: u64) {
        let free = kibibytes / 2;
        let memory = format!("Node {id} MemTotal: {kibibytes} kB\nNode {id} MemFree: {free} kB\n");
        self.write(&format!("{}/meminfo", node_path(id)), &memory);
        self.write(&format!("{}/cpulist", node_path(id)), &format!("{cpus}\n"));
    }

    /// Rates a node: latency in ns, bandwidth in MiB/s, the same for reads and writes.
    pub(crate) fn rate(&self, id: u32, class: &str, initiator: u32, [latency, rate]: [u64; 2]) {
        let initiators = format!("{}/{class}/initiators", node_path(id));
        for (name, value) in [
            ("read_latency", latency),
            ("write_latency", latency),
            ("read_bandwidth", rate),
            ("write_bandwidth", rate),
        ] {
            self.write(&format!("{initiators}/{name}"), &format!("{value}\n"));
        }
        let target = format!("../../../node{initiator}");
        self.link(&format!("{initiators}/node{initiator}"), &target);
    }

    fn cache(&self, cpu: u32, index: u32, level: u32, kind: &str, size: &str, shared: &str) {
        let cache = format!("sys/devices/system/cpu/cpu{cpu}/cache/index{index}");
        self.write(&format!("{cache}/level"), &format!("{level}\n"));
        self.write(&format!("{cache}/type"), &format!("{kind}\n"));
        self.write(&format!("{cache}/size"), &format!("{size}\n"));
        self.write(&format!("{cache}/shared_cpu_list"), &format!("{shared}\n"));
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }
}

fn node_path(id: u32) -> String {
    format!("sys/devices/system/node/node{id}")
}
