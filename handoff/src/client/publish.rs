//! Hands the order of an epoch over: asks for a file, fills it, waits until the agent has it.

use std::{os::fd::OwnedFd, time::Duration};

use tierfeed_core::id::{Epoch, SampleId};

use super::{
    deadline::Deadline,
    error::ControlError,
    link::{Control, Link},
    order_file::fill_order,
};
use crate::message::{FromAgent, FromClient, RequestId};

pub(super) fn publish(
    link: &Link,
    epoch: Epoch,
    samples: &[SampleId],
    timeout: Duration,
) -> Result<(), ControlError> {
    link.check_process()?;
    let samples_count = u32::try_from(samples.len()).map_err(|_| ControlError::TooManySamples)?;
    let deadline = Deadline::after(timeout);
    let mut control = link.control();
    // The agent takes one order at a time; an earlier call may have given up waiting for its answer.
    if let Some(earlier) = control.unanswered {
        hear_published(link, &mut control, earlier, &deadline)?;
    }
    let request = control.next_request();
    let wish = FromClient::Publish { request, epoch: epoch.0, samples: samples_count };
    link.tell(&control, &wish, &[])?;
    let file = hear_file(link, &mut control, request, &deadline)?;
    fill_order(file, samples).map_err(ControlError::System)?;
    link.tell(&control, &FromClient::OrderWritten { request }, &[])?;
    control.unanswered = Some(request);
    hear_published(link, &mut control, request, &deadline)
}

fn hear_file(
    link: &Link,
    control: &mut Control,
    request: RequestId,
    deadline: &Deadline,
) -> Result<OwnedFd, ControlError> {
    loop {
        let (answer, descriptors) = link.hear(deadline)?;
        match answer {
            FromAgent::OrderFile { request: answered } if answered == request => {
                return match <[OwnedFd; 1]>::try_from(descriptors) {
                    Ok([file]) => Ok(file),
                    Err(_) => Err(ControlError::Denied { reason: NO_FILE.into() }),
                };
            }
            FromAgent::Denied { request: answered, reason } if answered == request => {
                return Err(ControlError::Denied { reason });
            }
            other => link.settle_late(control, &other),
        }
    }
}

/// What is said of an agent that sends another number of descriptors.
const NO_FILE: &str = "no file came for the order";

fn hear_published(
    link: &Link,
    control: &mut Control,
    request: RequestId,
    deadline: &Deadline,
) -> Result<(), ControlError> {
    loop {
        let (answer, _) = link.hear(deadline)?;
        match answer {
            FromAgent::Published { request: answered } if answered == request => {
                control.unanswered = None;
                return Ok(());
            }
            other => link.settle_late(control, &other),
        }
    }
}
