//! Finds the known word that a mistyped word is most like.

/// The least similarity of two words, from 0 to 1, at which one may be a typing error for the other.
const LIKENESS_MIN: f64 = 0.6;

/// The word of `known` that is most like `word`, if any is similar; of several the first in the alphabet.
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
    fn a_typing_error_is_found_and_another_word_is_not() {
        check("polcy", Some("policy"));
        check("batchsize", Some("batch_size"));
        check("epoch", Some("epochs"));
        check("sede", Some("seed"));
        check("lur", Some("lru"));
        check("model", None);
        check("", None);
    }
}
