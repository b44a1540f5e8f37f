//! Asks the agent why samples could not be handed over.

use std::time::Duration;

use tierfeed_core::id::SampleId;

use super::{Client, deadline::Deadline, error::ControlError};
use crate::message::{EXPLAINED_MAX, FromAgent, FromClient, SampleReason};

impl Client {
    /// Asks why samples could not be handed over, and waits for the reasons that the agent still knows:
    /// sentences without their end.
    pub fn explain(
        &self,
        samples: &[SampleId],
        timeout: Duration,
    ) -> Result<Vec<(SampleId, String)>, ControlError> {
        let connection = &self.connection;
        connection.check_process()?;
        let deadline = Deadline::after(timeout);
        let mut control = connection.control();
        let mut explained = Vec::with_capacity(samples.len());
        for asked in samples.chunks(EXPLAINED_MAX) {
            let request = control.next_request();
            let samples = asked.iter().map(|sample| sample.0).collect();
            connection.send_control(&control, &FromClient::Explain { request, samples }, &[])?;
            let reasons = loop {
                match connection.receive(&deadline)?.0 {
                    FromAgent::Explained { request: answered, reasons } if answered == request => {
                        break reasons;
                    }
                    other => connection.handle_late(&mut control, &other),
                }
            };
            let reasons = reasons
                .into_iter()
                .map(|SampleReason { sample, reason }| (SampleId(sample), reason));
            explained.extend(reasons);
        }
        Ok(explained)
    }
}
