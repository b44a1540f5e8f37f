//! Escapes text for markup: no character of a name becomes a tag or an attribute.

/// `text` in a form for XML and HTML, between tags or as an attribute in double quotes; characters
/// that are not allowed there are replaced.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\t' | '\n' | '\r' => escaped.push(' '),
            '\0'..='\x1f' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_ends_a_text_or_an_attribute_is_left() {
        assert_eq!(escape("a<b> & \"c\"\n\0"), "a&lt;b&gt; &amp; &quot;c&quot; \u{fffd}");
        assert_eq!(escape("größer, 数"), "größer, 数");
    }
}
