//! Reads the CPUs of this host and pins threads to them.

use std::{fs, io, path::Path};

use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};
use tierfeed_units::NumaNode;

/// Process number 0 names the calling thread.
const THIS_THREAD: Pid = Pid::from_raw(0);

/// Restricts the calling thread to `cpus`.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidInput`] if `cpus` is empty, or none of them may be used here.
pub fn pin_current_thread(cpus: &[usize]) -> io::Result<()> {
    if cpus.is_empty() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu)?;
    }
    Ok(sched_setaffinity(THIS_THREAD, &set)?)
}

/// The CPUs that the calling thread may run on, in order.
///
/// # Errors
///
/// As `sched_getaffinity(2)`, on hosts with more than 1024 CPUs.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(THIS_THREAD)?;
    Ok((0..CpuSet::count()).filter(|cpu| set.is_set(*cpu) == Ok(true)).collect())
}

/// The CPUs of a NUMA node, in order; empty for a node that is only memory.
///
/// # Errors
///
/// [`io::ErrorKind::NotFound`] if there is no such node, [`io::ErrorKind::InvalidData`] if its list
/// cannot be read.
pub fn cpus_of_node(sysroot: &Path, node: NumaNode) -> io::Result<Vec<usize>> {
    let path = sysroot.join(format!("sys/devices/system/node/node{}/cpulist", node.0));
    parse_list(fs::read_to_string(path)?.trim()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Reads the kernel's form of a set: `0-3,8,10-11`.
fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for range in text.split(',').filter(|it| !it.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        // A corrupt file must not make this loop count to the end of the integers.
        if first > last || last >= CpuSet::count() {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_as_the_kernel_writes_them() {
        assert_eq!(parse_list(""), Some(vec![]));
        assert_eq!(parse_list("5"), Some(vec![5]));
        assert_eq!(parse_list("0-2,8,10-11"), Some(vec![0, 1, 2, 8, 10, 11]));
    }

    #[test]
    fn broken_lists_are_refused() {
        for text in ["x", "1-", "3-1", "0-99999999999", "1 2"] {
            assert_eq!(parse_list(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_node_without_cpus_has_an_empty_list() {
        let root = tempfile::tempdir().unwrap();
        let node = root.path().join("sys/devices/system/node/node2");
        fs::create_dir_all(&node).unwrap();
        fs::write(node.join("cpulist"), "\n").unwrap();
        assert_eq!(cpus_of_node(root.path(), NumaNode(2)).unwrap(), []);
        let absent = cpus_of_node(root.path(), NumaNode(3)).unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_pinned_thread_may_run_on_the_given_cpus_only() {
        let last = *allowed_cpus().unwrap().last().unwrap();
        let seen = std::thread::spawn(move || {
            pin_current_thread(&[last]).unwrap();
            allowed_cpus().unwrap()
        });
        assert_eq!(seen.join().unwrap(), [last]);
    }

    #[test]
    fn pinning_to_no_cpu_is_refused() {
        let error = pin_current_thread(&[]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(pin_current_thread(&[1 << 20]).is_err());
    }
}
