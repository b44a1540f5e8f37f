//! Reads a label that is text, as Python's `int` does.

/// The whole number that `text` is; `None` for other text, and for a number that a label cannot be.
///
/// Blanks around it, a sign, zeros in front and single underscores between digits are allowed.
pub(super) fn of_text(text: &[u8]) -> Option<i64> {
    let text = text.trim_ascii();
    let (sign, digits) = match text {
        [sign @ (b'+' | b'-'), digits @ ..] => (*sign, digits),
        digits => (b'+', digits),
    };
    let mut number = 0_i64;
    for part in digits.split(|byte| *byte == b'_') {
        if part.is_empty() || !part.iter().all(u8::is_ascii_digit) {
            return None;
        }
        for digit in part {
            let digit = i64::from(digit - b'0');
            let digit = if sign == b'-' { -digit } else { digit };
            number = number.checked_mul(10)?.checked_add(digit)?;
        }
    }
    (number != i64::MIN).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values were printed by `int(…)` of Python 3.11.
    #[test]
    fn labels_are_what_python_reads() {
        for (text, expected) in [
            ("0", 0),
            ("-1", -1),
            ("-100", -100),
            ("+5", 5),
            ("1_000", 1_000),
            (" 7\t\r\n", 7),
            ("007", 7),
            ("4294967295", 4_294_967_295),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775807", -i64::MAX),
        ] {
            assert_eq!(of_text(text.as_bytes()), Some(expected), "{text:?}");
        }
        let no_label =
            ["", " ", "cat", "1.0", "0x10", "1e3", "5\0", "1__0", "_1", "1_", "--1", "+"];
        for text in no_label.into_iter().chain(["9223372036854775808", "-9223372036854775808"]) {
            assert_eq!(of_text(text.as_bytes()), None, "{text:?}");
        }
    }
}
