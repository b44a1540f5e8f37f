//! An index on a file system of another host, emulated by a FUSE server of one file in this
//! process.
//!
//! The bug: an agent had its index mapped from NFS and ended by `SIGBUS` when the server failed.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
};

use nix::{
    errno::Errno,
    mount::{MntFlags, MsFlags, mount, umount2},
};
use tierfeed_dataset::{Dataset, Format, Index, source::Location};
use tierfeed_test_needs::{Need, skip};

/// `FUSE_ROOT_ID` of `linux/fuse.h`, and the number of the one file.
const ROOT: u64 = 1;
const FILE: u64 = 2;

/// A folder whose only file is served by this process.
struct Remote {
    at: PathBuf,
    server: Option<JoinHandle<()>>,
}

impl Remote {
    /// `None` if this user may not mount, or the kernel has no FUSE.
    fn mount(at: &Path, content: Vec<u8>) -> Option<Self> {
        let device = File::options().read(true).write(true).open("/dev/fuse").ok()?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        mount(Some("remote"), at, Some("fuse"), MsFlags::empty(), Some(options.as_str())).ok()?;
        let server = thread::spawn(move || serve(device, &content));
        Some(Self { at: at.to_owned(), server: Some(server) })
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        umount2(&self.at, MntFlags::MNT_DETACH).unwrap();
        self.server.take().unwrap().join().unwrap();
    }
}

/// Answers the kernel until the file system is unmounted. The numbers are those of `linux/fuse.h`.
fn serve(mut device: File, content: &[u8]) {
    let mut request = vec![0; 1 << 20];
    while let Ok(len) = device.read(&mut request) {
        let number = |at: usize| u64::from_le_bytes(request[at..at + 8].try_into().unwrap());
        let word = |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().unwrap());
        assert!(len >= 40, "a request has a header");
        let (opcode, unique, node) = (word(4), number(8), number(16));
        let answer = match opcode {
            // FUSE_LOOKUP: node, generation, validity of entry and attributes.
            1 => Ok([numbers(&[FILE, 0, 0, 0, 0]), attributes(FILE, content)].concat()),
            // FUSE_FORGET and FUSE_BATCH_FORGET expect no answer.
            2 | 42 => continue,
            // FUSE_GETATTR
            3 => Ok([numbers(&[0, 0]), attributes(node, content)].concat()),
            // FUSE_OPEN
            14 => Ok(numbers(&[0, 0])),
            // FUSE_READ: handle, offset, size.
            15 => {
                let from = usize::try_from(number(48)).unwrap().min(content.len());
                let size = usize::try_from(word(56)).unwrap();
                Ok(content[from..content.len().min(from + size)].to_vec())
            }
            // FUSE_STATFS
            17 => Ok(numbers(&[0, 0, 0, 0, 0, 255 << 32 | 4096, 4096, 0, 0, 0])),
            // FUSE_RELEASE, FUSE_FLUSH
            18 | 25 => Ok(Vec::new()),
            // FUSE_INIT: version 7.31, no flags, pages at a time.
            26 => Ok(numbers(&[31 << 32 | 7, 1 << 16, 4096 << 32, 1, 0, 0, 0, 0])),
            _ => Err(Errno::ENOSYS as i32),
        };
        let (error, payload) = match answer {
            Ok(payload) => (0, payload),
            Err(error) => (-error, Vec::new()),
        };
        let mut reply = u32::try_from(16 + payload.len()).unwrap().to_le_bytes().to_vec();
        reply.extend(error.to_le_bytes());
        reply.extend(unique.to_le_bytes());
        reply.extend(payload);
        // An error means that the request was cancelled.
        drop(device.write_all(&reply));
    }
}

fn numbers(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// `struct fuse_attr` of the folder or of the file.
fn attributes(node: u64, content: &[u8]) -> Vec<u8> {
    let (mode, len) = if node == ROOT { (0o040_755, 0) } else { (0o100_644, content.len() as u64) };
    let times = [0; 3];
    let words = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0_u32];
    let mut bytes = numbers(&[node, len, len.div_ceil(512)]);
    bytes.extend(numbers(&times));
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    bytes
}

fn is_mapped(folder: &Path) -> bool {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.contains(folder.to_str().unwrap())
}

#[test]
fn an_index_on_a_remote_file_system_is_whole_when_its_server_is_gone() {
    let data = tempfile::tempdir().unwrap();
    for (name, len) in [("cat/a.jpg", 10), ("dog/b.jpg", 30)] {
        let path = data.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![b'x'; len]).unwrap();
    }
    let source = Location::Path(data.path().to_owned());
    let dataset = Dataset::new(source, Format::ImageFolder);
    let built = Index::build(&dataset, None, &mut |_| ()).unwrap();
    let (local, remote) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = local.path().join("dataset.index");
    built.save(&path).unwrap();
    let mapped = Index::open(&path).unwrap();
    assert_eq!(mapped, built);
    assert!(is_mapped(local.path()), "this test could see a mapping");

    let Some(server) = Remote::mount(remote.path(), fs::read(&path).unwrap()) else {
        return skip(Need::Fuse, "this user may not mount a FUSE file system");
    };
    let opened = Index::open(&remote.path().join("dataset.index")).unwrap();
    assert!(!is_mapped(remote.path()), "what is mapped ends the process when the server is gone");
    drop(server);
    assert_eq!(opened, built);
}
