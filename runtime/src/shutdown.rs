//! The wish that a loop end, passed on to all who must know.

use tokio::sync::watch;

/// Asks for an end. The end is also asked for when all of these are dropped.
#[derive(Debug, Clone)]
pub struct Trigger(watch::Sender<bool>);

/// Learns that an end was asked for.
#[derive(Debug, Clone)]
pub struct Shutdown(watch::Receiver<bool>);

/// A connected pair.
#[must_use]
pub fn channel() -> (Trigger, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (Trigger(sender), Shutdown(receiver))
}

impl Trigger {
    /// Asks for the end; more than once is the same as once.
    pub fn pull(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// Returns once the end was asked for, at once if that is past.
    pub async fn recv(&mut self) {
        // An error means that nobody is left to ask: that is the end too.
        let _ = self.0.wait_for(|is_over| *is_over).await;
    }
}
