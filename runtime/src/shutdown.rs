//! A shutdown signal for loops.

use tokio::sync::watch;

/// Requests the shutdown. Dropping all triggers requests it too.
#[derive(Debug, Clone)]
pub struct Trigger(watch::Sender<bool>);

#[derive(Debug, Clone)]
pub struct Shutdown(watch::Receiver<bool>);

#[must_use]
pub fn channel() -> (Trigger, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (Trigger(sender), Shutdown(receiver))
}

impl Trigger {
    /// Requests the shutdown; idempotent.
    pub fn pull(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.has_changed().is_err() || *self.0.borrow()
    }

    /// Returns once the shutdown was requested, immediately if it was before.
    pub async fn recv(&mut self) {
        // An error means that all triggers were dropped, which requests the shutdown too.
        let _ = self.0.wait_for(|is_over| *is_over).await;
    }
}
