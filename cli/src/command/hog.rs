//! `tierfeed hog`.

use std::time::Duration;

use tierfeed_core::{id::NumaNode, tier::Locality, units::Nanoseconds};
use tierfeed_resource_gatherer::Hog as Held;
use tierfeed_runtime::shutdown;

use crate::{arguments::Hog, failure::Failure};

/// How often a hog looks at what others left.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub(crate) fn run(arguments: &Hog) -> Result<(), Failure> {
    let locality =
        arguments.numa_node.map_or(Locality::Anywhere, |it| Locality::Numa(NumaNode(it)));
    let mut hog = Held::new(locality);
    if let Some(size) = arguments.take {
        hog.take(size).map_err(Failure::work)?;
    }
    super::runtime()?.block_on(async {
        let (trigger, mut asked) = shutdown::channel();
        let signals = tokio::spawn(super::end_on_signal(trigger));
        let end = arguments.duration.map(|Nanoseconds(time)| Duration::from_nanos(time));
        let end = tokio::time::sleep(end.unwrap_or(Duration::MAX));
        tokio::pin!(end);
        let mut looks = tokio::time::interval(LOOK_EVERY);
        tracing::info!(held = %hog.held(), "memory is held");
        let outcome = loop {
            tokio::select! {
                () = asked.recv() => break Ok(()),
                () = &mut end => break Ok(()),
                _ = looks.tick() => {
                    if let Some(left) = arguments.leave
                        && let Err(error) = hog.leave(left)
                    {
                        break Err(Failure::work(error));
                    }
                }
            }
        };
        signals.abort();
        outcome
    })
}
