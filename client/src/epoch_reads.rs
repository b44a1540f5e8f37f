//! The part of an epoch that a trainer read without its agent, for one warning at its end.

/// A warning is given if at least one in so many batches of an epoch was read directly.
const TOLD_FROM: u64 = 100;

/// The warning about an epoch of so many `batches`, of which the trainer read some directly; `None` if hardly any.
/// `why` is the reason for the last one of them, or empty.
pub fn direct_reads_warning(epoch: u32, batches: u64, direct: u64, why: &str) -> Option<String> {
    if direct == 0 || direct * TOLD_FROM < batches {
        return None;
    }
    let percent = (200 * direct + batches) / (2 * batches);
    let why = if why.is_empty() { "no agent delivered them" } else { why };
    Some(format!(
        "reading directly: {direct} of {batches} batches of epoch {epoch} ({percent}%) were read from the cold \
         store by this process, which is slower: {why}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_has_the_share_and_the_reason() {
        let said = direct_reads_warning(7, 13, 7, "the agent is gone").unwrap();
        assert!(said.starts_with("reading directly: 7 of 13 batches of epoch 7 (54%) "), "{said}");
        assert!(said.ends_with("slower: the agent is gone"), "{said}");
        let said = direct_reads_warning(0, 13, 13, "").unwrap();
        assert!(said.contains(" (100%) ") && said.ends_with("no agent delivered them"), "{said}");
    }

    #[test]
    fn what_is_less_than_a_hundredth_is_not_worth_a_word() {
        for (batches, direct, is_told) in
            [(0, 0, false), (13, 0, false), (1000, 9, false), (1000, 10, true)]
        {
            assert_eq!(direct_reads_warning(0, batches, direct, "").is_some(), is_told);
        }
    }
}
