//! A bounded set of tasks for untrusted peers: at the limit, a new task aborts the oldest one.
//!
//! If new peers waited for a free slot instead, a few idle peers would block all others. Here the idle ones
//! are aborted first.

use std::collections::VecDeque;

use tokio::task::{AbortHandle, JoinSet};

#[derive(Debug)]
pub(crate) struct BoundedTasks<T> {
    tasks: JoinSet<T>,
    oldest_first: VecDeque<AbortHandle>,
    tasks_max: usize,
}

impl<T: Send + 'static> BoundedTasks<T> {
    pub(crate) fn new(tasks_max: usize) -> Self {
        Self { tasks: JoinSet::new(), oldest_first: VecDeque::new(), tasks_max }
    }

    pub(crate) fn spawn(&mut self, task: impl Future<Output = T> + Send + 'static) {
        self.oldest_first.retain(|task| !task.is_finished());
        if self.oldest_first.len() >= self.tasks_max
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            oldest.abort();
        }
        self.oldest_first.push_back(self.tasks.spawn(task));
    }

    /// The result of the next task that ends by itself; waits for ever without tasks.
    pub(crate) async fn next(&mut self) -> T {
        loop {
            match self.tasks.join_next().await {
                Some(Ok(outcome)) => return outcome,
                // It was aborted for a newer task.
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_oldest_gives_way() {
        let mut tasks = BoundedTasks::new(2);
        let (first, ends) = tokio::sync::oneshot::channel::<()>();
        tasks.spawn(async move { drop(ends.await) });
        for _ in 0..2 {
            tasks.spawn(std::future::pending());
        }
        // Its end of the channel is dropped with it.
        let mut first = first;
        first.closed().await;
        assert_eq!(tasks.oldest_first.len(), 2);
    }
}
