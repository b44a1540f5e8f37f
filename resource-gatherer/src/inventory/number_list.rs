//! Reads and writes the kernel's notation for sets of CPUs and nodes: `0-3,8,10-11`.

/// The numbers of a list in ascending order, or `None` if the text is no such list.
///
/// An empty list is an empty text. At most [`NUMBERS_MAX`] numbers, so that a broken file cannot
/// take all memory.
pub(crate) fn parse(text: &str) -> Option<Vec<u32>> {
    let mut numbers: Vec<u32> = Vec::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let first: u32 = first.trim().parse().ok()?;
        let last: u32 = last.trim().parse().ok()?;
        if first > last || last >= NUMBERS_MAX {
            return None;
        }
        numbers.extend(first..=last);
    }
    numbers.sort_unstable();
    numbers.dedup();
    Some(numbers)
}

/// The numbers must be in ascending order.
pub(crate) fn print(numbers: &[u32]) -> String {
    let follows = |a: &u32, b: &u32| a.checked_add(1) == Some(*b);
    let range = |run: &[u32]| match run {
        [only] => only.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    };
    numbers.chunk_by(follows).map(range).collect::<Vec<_>>().join(",")
}

/// Numbers below this are accepted: sixteen times the largest CPU count that Linux can be built for.
const NUMBERS_MAX: u32 = 131_072;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_single_numbers_mix() {
        assert_eq!(parse("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse("0,1,3"), Some(vec![0, 1, 3]));
    }

    #[test]
    fn what_is_printed_is_read_again() {
        for text in ["", "0", "0-3,8,10-11"] {
            assert_eq!(print(&parse(text).unwrap()), text);
        }
    }

    #[test]
    fn an_empty_text_is_an_empty_set() {
        assert_eq!(parse("\n"), Some(vec![]));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["a", "3-1", "0-", "-", "0-4294967295", "1,x"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
