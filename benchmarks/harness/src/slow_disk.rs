//! A slow disk: an ext4 image on a loop device whose reads the kernel throttles.
//!
//! The limit holds for processes that [`SlowDisk::enter`] starts, by cgroup v1 (`blkio`) or v2 (`io`), and for what is
//! read from the device: the page cache of the files is as fast as ever, so it is emptied before each measurement.
//! Needs root, loop devices, `mkfs.ext4` and util-linux.

use std::{
    ffi::OsStr,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail, ensure};
use nix::{
    fcntl::{PosixFadviseAdvice, posix_fadvise},
    unistd::syncfs,
};
use tierfeed_core::units::{Bytes, BytesPerSecond, Nanoseconds};

use crate::{cgroup, clock::now};

/// Room that ext4 needs beside the files.
const OVERHEAD: Bytes = Bytes::mib(64);

/// A disk is ahead of its limit by less than this: what fits into a slice of the kernel comes as soon as the
/// slice begins. At most 93 to 95 ms were measured, at 40 and 80 MB/s on Linux 6.18.
///
/// # Source
///
/// `block/blk-throttle.c` of Linux: slices of `HZ / 10`.
pub const SLICE: Nanoseconds = Nanoseconds(100_000_000);

/// The mean time by which a disk is ahead of its limit, from the first read after it was idle on. Measured
/// were 34, 39 and 41 ms while 100 MiB were read at 40 MB/s, in pieces of 1 MiB, 64 KiB and 256 KiB.
pub const AHEAD: Nanoseconds = Nanoseconds(40_000_000);

/// A mounted image, and the control group whose reads of it are limited.
#[derive(Debug)]
pub struct SlowDisk {
    image: PathBuf,
    mount: PathBuf,
    /// For instance `/dev/loop0`.
    device: String,
    /// For instance `7:0`.
    number: String,
    group: Group,
}

#[derive(Debug)]
struct Group {
    path: PathBuf,
    /// The group that processes join: this one, or one below it.
    joined: PathBuf,
    /// The file that takes limits, and the text between device and rate in it.
    limits: (&'static str, &'static str),
}

/// Runs `experiment` on a new disk below `folder` that has room for files of `room`, and removes the disk
/// even if the experiment fails.
///
/// # Errors
///
/// If a program that makes the disk fails, with its message, or the experiment fails.
pub fn on_slow_disk<T>(
    folder: &Path,
    room: Bytes,
    experiment: impl FnOnce(&SlowDisk) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let disk = SlowDisk::make(folder, room)?;
    let outcome = experiment(&disk);
    let taken_down = disk.take_down();
    let outcome = outcome?;
    taken_down?;
    Ok(outcome)
}

impl SlowDisk {
    fn make(folder: &Path, room: Bytes) -> anyhow::Result<Self> {
        let (image, mount) = (folder.join("disk.img"), folder.join("disk"));
        fs::create_dir_all(&mount)?;
        let file = fs::File::create(&image)?;
        // Inode tables and journal grow with the image.
        file.set_len(room.0 + room.0 / 8 + OVERHEAD.0)?;
        run("mkfs.ext4", [OsStr::new("-q"), "-F".as_ref(), image.as_ref()])?;
        let device = run("losetup", [OsStr::new("--find"), "--show".as_ref(), image.as_ref()])?;
        let number = run("lsblk", ["--noheadings", "--nodeps", "--output", "MAJ:MIN", &device])?;
        let disk = Self { image, mount, device, number, group: Group::make()? };
        disk.mount()?;
        Ok(disk)
    }

    fn take_down(&self) -> anyhow::Result<()> {
        run("umount", [&self.mount])?;
        run("losetup", ["--detach", &self.device])?;
        fs::remove_file(&self.image)?;
        let Group { path, joined, .. } = &self.group;
        let mut groups = vec![joined, path];
        groups.dedup();
        for group in groups {
            fs::remove_dir(group).with_context(|| format!("{}: left behind", group.display()))?;
        }
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// Limits the rate at which processes of the group read from it.
    ///
    /// # Errors
    ///
    /// If the kernel or a program refuses it.
    pub fn limit(&self, rate: BytesPerSecond) -> anyhow::Result<()> {
        let (file, key) = self.group.limits;
        let line = format!("{} {key}{}", self.number, rate.0);
        fs::write(self.group.path.join(file), line).with_context(|| format!("cannot set {file}"))
    }

    /// Empties the page cache of its files. Mounting anew would not, if another mount namespace has the disk
    /// too.
    ///
    /// # Errors
    ///
    /// If a file cannot be opened, or the kernel refuses it.
    pub fn forget_cached(&self) -> anyhow::Result<()> {
        // Only what is written can be dropped.
        syncfs(File::open(&self.mount)?)?;
        forget_below(&self.mount)
    }

    /// Reads all files of `folder` through the page cache, which is empty before, and as much of the device past it, as
    /// the limited group does. Returns both rates.
    ///
    /// # Errors
    ///
    /// If a program cannot read it.
    pub fn stopwatch(&self, folder: &Path) -> anyhow::Result<[BytesPerSecond; 2]> {
        let before = self.read()?;
        let through = self.time(folder, "find . -type f -print0 | xargs -0 -n64 -P4 cat")?;
        let mebibytes = ((self.read()?.0 - before.0) >> 20) + 1;
        let past =
            format!("dd if={} bs=1M count={mebibytes} iflag=direct status=none", self.device);
        let past = self.time(folder, &past)?;
        self.forget_cached()?;
        Ok([through, past])
    }

    fn time(&self, folder: &Path, command: &str) -> anyhow::Result<BytesPerSecond> {
        self.forget_cached()?;
        let mut shell = self.enter(Path::new("sh"));
        shell.args(["-c", command]).current_dir(folder).stdout(Stdio::null());
        let (start, before) = (now(), self.read()?);
        let status = shell.status().context("sh cannot be started")?;
        let (elapsed, bytes) = (now() - start, self.read()?.0 - before.0);
        ensure!(status.success(), "{command} failed ({status})");
        let rate = u128::from(bytes) * 1_000_000_000 / elapsed.as_nanos().max(1);
        Ok(BytesPerSecond(u64::try_from(rate)?))
    }

    /// Bytes that were read from the device since it was made.
    ///
    /// # Errors
    ///
    /// If the kernel or a program refuses it.
    pub fn read(&self) -> anyhow::Result<Bytes> {
        let path = format!("/sys/dev/block/{}/stat", self.number);
        let text = fs::read_to_string(&path)?;
        let sectors = text.split_whitespace().nth(2).and_then(|field| field.parse::<u64>().ok());
        Ok(Bytes(sectors.with_context(|| format!("{path} is not as it should be"))? * 512))
    }

    /// The control group that limits reads, its own and of groups below it.
    pub fn group(&self) -> &Path {
        &self.group.path
    }

    pub fn throttle(&self) -> &'static str {
        self.group.limits.0
    }

    /// A command for `program` whose reads, and those of its children, are limited.
    pub fn enter(&self, program: &Path) -> Command {
        cgroup::command_in(std::slice::from_ref(&self.group.joined), program)
    }

    fn mount(&self) -> anyhow::Result<()> {
        // Mounted so that only the files are read: no access times, no journal replay.
        let options = ["-o", "noatime"].map(OsStr::new);
        let places = [OsStr::new(&self.device), self.mount.as_ref()];
        run("mount", options.into_iter().chain(places)).map(drop)
    }
}

fn forget_below(folder: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            forget_below(&entry.path())?;
        } else if kind.is_file() {
            let file = File::open(entry.path())?;
            posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        }
    }
    Ok(())
}

impl Group {
    fn make() -> anyhow::Result<Self> {
        let name = cgroup::unused_name("disk");
        let root = Path::new("/sys/fs/cgroup");
        let is_v1 = root.join("blkio").is_dir();
        let (path, limits) = if is_v1 {
            (root.join("blkio").join(name), ("blkio.throttle.read_bps_device", ""))
        } else {
            let controllers = fs::read_to_string(root.join("cgroup.controllers"));
            let controllers = controllers.context("no control groups below /sys/fs/cgroup")?;
            ensure!(controllers.contains("io"), "the kernel has no io controller");
            cgroup::turn_on(root, "io")?;
            (root.join(name), ("io.max", "rbps="))
        };
        // Of version 2, groups below this one have limits of memory too, so that no process may be in this one.
        let joined = if is_v1 { path.clone() } else { path.join("alone") };
        fs::create_dir_all(&joined)
            .with_context(|| format!("cannot make {}; this needs root", joined.display()))?;
        Ok(Self { path, joined, limits })
    }
}

/// Runs a program to its end and returns what it printed.
fn run(
    program: &str,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> anyhow::Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("{program} cannot be started"))?;
    if !output.status.success() {
        bail!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
