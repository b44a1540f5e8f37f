//! Reads the literals of Python: numbers, and strings with their escapes.

/// `1_000`, `0xFF`; `None` if it does not fit.
pub(super) fn int(text: &str) -> Option<i64> {
    let digits = text.replace('_', "").to_ascii_lowercase();
    let radix = |prefix: &str, radix| {
        digits.strip_prefix(prefix).map(|rest| i64::from_str_radix(rest, radix).ok())
    };
    radix("0x", 16)
        .or_else(|| radix("0o", 8))
        .or_else(|| radix("0b", 2))
        .unwrap_or_else(|| digits.parse().ok())
}

/// `1e-3`, `.5`, `1_0.`; `None` for imaginary ones.
pub(super) fn float(text: &str) -> Option<f64> {
    text.replace('_', "").parse().ok()
}

/// The text between quotes, without escapes. An escape that is none stays as it is, as in Python.
pub(super) fn unescaped(content: &str) -> String {
    let mut text = String::with_capacity(content.len());
    let mut rest = content.chars();
    while let Some(next) = rest.next() {
        if next != '\\' {
            text.push(next);
            continue;
        }
        match rest.next() {
            Some('\n') => {}
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('r') => text.push('\r'),
            Some('0') => text.push('\0'),
            Some(quoted @ ('\\' | '\'' | '"')) => text.push(quoted),
            Some('x') => coded(&mut rest, 2, 'x', &mut text),
            Some('u') => coded(&mut rest, 4, 'u', &mut text),
            Some('U') => coded(&mut rest, 8, 'U', &mut text),
            Some(other) => text.extend(['\\', other]),
            None => text.push('\\'),
        }
    }
    text
}

fn coded(rest: &mut std::str::Chars<'_>, digits: usize, letter: char, text: &mut String) {
    let code = rest.as_str().get(..digits).and_then(|code| u32::from_str_radix(code, 16).ok());
    if let Some(decoded) = code.and_then(char::from_u32) {
        text.push(decoded);
        *rest = rest.as_str()[digits..].chars();
    } else {
        text.extend(['\\', letter]);
    }
}
