//! Finds what a mistyped word may have meant.

/// Words that differ in more than this share of their letters are other words.
const LIKENESS_MIN: f64 = 0.6;

/// The one of `known` that is most like `word`, if any is like it. Of several the first in the alphabet.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let like = |other: &&'a str| strsim::normalized_damerau_levenshtein(word, other);
    let near = known.into_iter().map(|other| (like(&other), other));
    let near = near.filter(|(likeness, other)| *likeness >= LIKENESS_MIN && *other != word);
    near.max_by(|(a, one), (b, other)| a.total_cmp(b).then(other.cmp(one))).map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(word: &str, expected: Option<&str>) {
        let known = ["batch_size", "policy", "epochs", "seed", "lru", "fifo"];
        assert_eq!(nearest(word, known), expected, "{word}");
    }

    #[test]
    fn a_slip_of_the_finger_is_found_and_another_word_is_not() {
        check("polcy", Some("policy"));
        check("batchsize", Some("batch_size"));
        check("epoch", Some("epochs"));
        check("sede", Some("seed"));
        check("lur", Some("lru"));
        check("model", None);
        check("", None);
    }
}
