//! Loads CPUs: one thread on each computes without touching memory.

use std::{
    hint::black_box,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread::{Builder, JoinHandle},
};

use tierfeed_numa_memory::affinity::pin_current_thread;

/// Threads that compute until this value is dropped.
#[derive(Debug)]
pub(super) struct Burner {
    fire: Arc<Fire>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Fire {
    is_over: AtomicBool,
    rounds: AtomicU64,
}

impl Burner {
    /// Starts one thread on each of `cpus`, and returns when all of them compute.
    pub(super) fn start(cpus: &[usize]) -> io::Result<Self> {
        let mut burner = Self { fire: Arc::default(), threads: Vec::new() };
        for cpu in cpus.iter().copied() {
            let (report, burning) = mpsc::sync_channel(1);
            let fire = Arc::clone(&burner.fire);
            let thread = Builder::new().name(format!("burner-{cpu}")).spawn(move || {
                let pinned = pin_current_thread(&[cpu]);
                let is_pinned = pinned.is_ok();
                // The starter waits for this report, so it cannot be gone.
                let _ = report.send(pinned);
                if is_pinned {
                    burn(&fire);
                }
            })?;
            burner.threads.push(thread);
            burning.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
        }
        Ok(burner)
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        self.fire.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It only computes, and so ends without a panic.
            let _ = thread.join();
        }
    }
}

fn burn(fire: &Fire) {
    let mut state = 1_u64;
    while !fire.is_over.load(Ordering::Relaxed) {
        for _ in 0..10_000 {
            state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
        fire.rounds.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::thread::yield_now;

    use tierfeed_numa_memory::affinity::allowed_cpus;

    use super::*;

    #[test]
    fn a_burner_burns_until_it_is_dropped() {
        let burner = Burner::start(&allowed_cpus().unwrap()[..1]).unwrap();
        let fire = Arc::clone(&burner.fire);
        while fire.rounds.load(Ordering::Relaxed) < 3 {
            yield_now();
        }
        drop(burner);
        assert_eq!(Arc::strong_count(&fire), 1, "no thread is left");
    }

    #[test]
    fn a_burner_for_an_absent_cpu_does_not_start() {
        assert!(Burner::start(&[1000]).is_err());
    }
}
