//! Does independent pieces of work on all cores and gives the results in the order of the work.

use std::{
    num::NonZero,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Applies `work` to each of `items`; `step` gets the number of finished items whenever one finishes.
///
/// No result depends on which thread had which item, so equal items give equal results.
///
/// # Panics
///
/// If `work` or `step` panics.
pub fn each<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
    step: &mut (dyn FnMut(usize) + Send),
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new((Vec::with_capacity(items.len()), step));
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(items.len());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((at, item)) = take(items, &next) {
                    let result = work(item);
                    let mut done = done.lock().expect("a thread that panics ends the scope");
                    let (results, step) = &mut *done;
                    results.push((at, result));
                    step(results.len());
                }
            });
        }
    });
    let (mut results, _) = done.into_inner().expect("no thread panicked");
    results.sort_unstable_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

fn take<'a, T>(items: &'a [T], next: &AtomicUsize) -> Option<(usize, &'a T)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    items.get(at).map(|item| (at, item))
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn results_stand_in_the_order_of_the_work() {
        let items: Vec<u64> = (0..100).collect();
        let mut told = Vec::new();
        // The first takes longest, so that others are done before it where there are cores.
        let square =
            |item: &u64| (0..(100 - item) * 10_000).fold(item * item, |it, _| black_box(it));
        let squares = each(&items, square, &mut |done| told.push(done));
        assert!(squares.iter().zip(&items).all(|(square, item)| *square == item * item));
        assert_eq!(squares.len(), 100);
        assert_eq!(told, (1..=100).collect::<Vec<_>>());
        assert!(each(&[], |item: &u64| *item, &mut |_| {}).is_empty());
    }
}
