//! Reads the CPUs of this host and pins threads to them.

use std::io;

use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};

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

#[cfg(test)]
mod tests {
    use super::*;

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
