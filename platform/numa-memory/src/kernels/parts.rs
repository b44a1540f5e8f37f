//! Splits buffers between threads, at the borders of cache lines.

use super::LINE_WORDS;

/// `count` adjacent parts of `words` that cover it, as equal as whole cache lines allow: two parts
/// differ by at most one line, and the last has the words after the last whole line.
///
/// Equal lengths and counts make equal parts, so that several buffers can be split alike.
///
/// # Panics
///
/// If `count` is 0.
#[must_use]
pub fn parts(words: &[u64], count: usize) -> Vec<&[u64]> {
    let mut rest = words;
    lens(words.len(), count)
        .map(|len| {
            let (part, behind) = rest.split_at(len);
            rest = behind;
            part
        })
        .collect()
}

/// As [`parts`], for writing.
///
/// # Panics
///
/// If `count` is 0.
#[must_use]
pub fn parts_mut(words: &mut [u64], count: usize) -> Vec<&mut [u64]> {
    let lens = lens(words.len(), count);
    let mut rest = words;
    lens.map(|len| {
        let (part, behind) = std::mem::take(&mut rest).split_at_mut(len);
        rest = behind;
        part
    })
    .collect()
}

fn lens(words: usize, count: usize) -> impl Iterator<Item = usize> {
    assert!(count > 0, "a buffer is split into at least one part");
    let lines = words / LINE_WORDS;
    let border = move |index: usize| {
        // In 128 bits, because the product may be longer than a word.
        let line = lines as u128 * index as u128 / count as u128;
        let line = usize::try_from(line).expect("it is at most `lines`");
        if index == count { words } else { line * LINE_WORDS }
    };
    (0..count).map(move |index| border(index + 1) - border(index))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parts_cover_all_words_once_in_order(len in 0..5000_usize, count in 1..20_usize) {
            let mut words: Vec<u64> = (0..len as u64).collect();
            prop_assert_eq!(parts(&words, count).concat(), words.clone());
            let of_mut: Vec<usize> = parts_mut(&mut words, count).iter().map(|it| it.len()).collect();
            let of_shared: Vec<usize> = parts(&words, count).iter().map(|it| it.len()).collect();
            prop_assert_eq!(of_mut, of_shared);
        }

        #[test]
        fn parts_are_whole_lines_and_equal_to_a_line(len in 0..5000_usize, count in 1..20_usize) {
            let words = vec![0; len];
            let lens: Vec<usize> = parts(&words, count).iter().map(|it| it.len()).collect();
            let (last, others) = lens.split_last().unwrap();
            prop_assert!(others.iter().all(|it| it.is_multiple_of(LINE_WORDS)));
            let lines = || others.iter().copied().chain([last / LINE_WORDS * LINE_WORDS]);
            prop_assert!(lines().max().unwrap() - lines().min().unwrap() <= LINE_WORDS, "{:?}", lens);
        }
    }
}
