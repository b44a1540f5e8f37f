//! The number of cores that an agent uses for transforms and copies if the job does not say it.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    thread,
};

/// The cores that this process may use, less one for each trainer of the node, and at least one.
///
/// Affinity and the quota of control groups count, as the calling thread has them: it must not be pinned.
#[must_use]
pub fn auto_threads(local_ranks: NonZeroU32) -> NonZeroUsize {
    let cores = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    left_by(local_ranks, cores)
}

fn left_by(local_ranks: NonZeroU32, cores: NonZeroUsize) -> NonZeroUsize {
    let left = cores.get().saturating_sub(local_ranks.get() as usize);
    NonZeroUsize::new(left).unwrap_or(NonZeroUsize::MIN)
}

#[cfg(test)]
mod tests {
    use tierfeed_numa_memory::affinity::{allowed_cpus, pin_current_thread};

    use super::*;

    #[test]
    fn each_trainer_keeps_a_core_and_one_is_always_left() {
        let left = |ranks, cores| {
            left_by(NonZeroU32::new(ranks).unwrap(), NonZeroUsize::new(cores).unwrap()).get()
        };
        assert_eq!([left(1, 8), left(4, 8), left(8, 8), left(16, 8), left(1, 1)], [7, 4, 1, 1, 1]);
    }

    #[test]
    fn cores_that_the_affinity_excludes_do_not_count() {
        let one = allowed_cpus().unwrap()[..1].to_vec();
        let threads = thread::spawn(move || {
            pin_current_thread(&one).unwrap();
            auto_threads(NonZeroU32::MIN)
        });
        assert_eq!(threads.join().unwrap(), NonZeroUsize::MIN);
    }
}
