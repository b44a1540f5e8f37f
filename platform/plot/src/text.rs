//! Estimates the width of text, and wraps it, since SVG does not.
//!
//! The fonts of the reader are not known, so that the estimate is that of a wide one.

/// The width of `text` in pixels, in letters of `size` pixels.
#[must_use]
pub fn text_width(text: &str, size: f64) -> f64 {
    text.chars().map(|letter| share_of_size(letter) * size).sum()
}

/// Lines of at most `width` pixels. A word that is longer is cut into several lines.
#[must_use]
pub fn wrap(text: &str, width: f64, size: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        if let Some(line) = lines.last_mut()
            && text_width(line, size) + text_width(" ", size) + text_width(word, size) <= width
        {
            line.push(' ');
            line.push_str(word);
            continue;
        }
        let mut line = String::new();
        for letter in word.chars() {
            if !line.is_empty() && text_width(&line, size) + text_width("m", size) > width {
                lines.push(std::mem::take(&mut line));
            }
            line.push(letter);
        }
        lines.push(line);
    }
    lines
}

/// # Source
///
/// Of `DejaVu Sans`, rounded up.
fn share_of_size(letter: char) -> f64 {
    match letter {
        'f' | 'i' | 'j' | 'l' | 'r' | 't' | 'I' | '|' | '!' | '.' | ',' | ':' | ';' | '\'' => 0.42,
        ' ' | '(' | ')' | '[' | ']' | '/' | '-' => 0.4,
        // From U+1100 on, letters may be as wide as they are high.
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '\u{1100}'.. => 1.0,
        'A'..='Z' => 0.75,
        _ => 0.64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_no_wider_than_asked_and_lose_no_letter() {
        let text =
            "data loader with sixteen workers, WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW and 数数数数";
        for width in [60.0, 100.0, 400.0, 4000.0] {
            let lines = wrap(text, width, 13.0);
            assert!(lines.iter().all(|line| text_width(line, 13.0) <= width), "{lines:?}");
            let letters = |text: &str| text.split_whitespace().collect::<String>();
            assert_eq!(letters(&lines.concat()), letters(text));
        }
        assert_eq!(wrap("two words", 1000.0, 13.0), ["two words"]);
        assert_eq!(wrap("  ", 1000.0, 13.0), [""; 0]);
    }

    #[test]
    fn a_line_narrower_than_a_letter_still_ends() {
        assert_eq!(wrap("ab", 1.0, 13.0), ["a", "b"]);
    }
}
