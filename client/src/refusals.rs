//! What a trainer does about a batch that its agent refuses.

use tierfeed_core::{
    id::SampleId,
    session::{Fault, Refusal},
};

/// The sample of a refused batch that the trainer does not read itself if the agent says why it failed.
pub fn final_sample(refusal: Refusal) -> Option<(SampleId, Fault)> {
    use Fault::{Denied, Io, Untransformable};
    match refusal {
        // To transform it may crash workers or take minutes. For a store the agent has waited as long as the job
        // says. Of all else, reading it says more.
        Refusal::Unreadable(sample, fault @ (Untransformable | Io | Denied)) => {
            Some((sample, fault))
        }
        _ => None,
    }
}
