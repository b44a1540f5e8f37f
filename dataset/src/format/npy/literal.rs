//! Parses the Python literals that headers of `.npy` files consist of.
//!
//! It accepts what `repr` writes for dictionaries with names as keys, tuples, lists, strings, truth
//! values and numbers that are not negative, and no expressions.

use std::ops::Range;

use crate::format::{FormatError, piece::malformed};

const DEPTH_MAX: u32 = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Literal {
    Str(String),
    Int(u64),
    Bool(bool),
    Tuple(Vec<Literal>),
    List(Vec<Literal>),
    /// The entries are in the order of the text.
    Dict(Vec<Entry>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) value: Literal,
    /// Position of the value in the text.
    pub(super) span: Range<usize>,
}

/// Parses the whole of `text`, which starts at byte `at` of its object.
pub(super) fn parse(text: &str, at: u64) -> Result<Literal, FormatError> {
    let mut parser = Parser { text, at: 0 };
    let parsed = parser.literal(DEPTH_MAX).filter(|_| parser.rest().is_empty());
    parsed.ok_or_else(|| {
        let found = match text[parser.at..].chars().next() {
            Some(found) => format!("`{}`", found.escape_debug()),
            None => "its end".to_owned(),
        };
        let right = "a Python literal, as numpy.save writes it";
        malformed("the header", at.saturating_add(parser.at as u64), found, right)
    })
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    /// The remaining text, without leading blanks.
    fn rest(&mut self) -> &str {
        let rest = &self.text[self.at..];
        let trimmed = rest.trim_start_matches([' ', '\n', '\t', '\r']);
        self.at += rest.len() - trimmed.len();
        trimmed
    }

    fn take(&mut self, token: &str) -> Option<()> {
        self.rest().starts_with(token).then(|| self.at += token.len())
    }

    fn literal(&mut self, depth: u32) -> Option<Literal> {
        let depth = depth.checked_sub(1)?;
        match self.rest().chars().next()? {
            '\'' | '"' | 'u' => self.string().map(Literal::Str),
            '0'..='9' => self.number().map(Literal::Int),
            'T' => self.take("True").map(|()| Literal::Bool(true)),
            'F' => self.take("False").map(|()| Literal::Bool(false)),
            '[' => Some(Literal::List(self.sequence("[", "]", depth)?.0)),
            '(' => {
                let (mut items, is_tuple) = self.sequence("(", ")", depth)?;
                let alone = if items.len() == 1 && !is_tuple { items.pop() } else { None };
                Some(alone.unwrap_or(Literal::Tuple(items)))
            }
            '{' => self.dict(depth).map(Literal::Dict),
            _ => None,
        }
    }

    /// The items, and whether the last one is followed by a comma.
    fn sequence(&mut self, open: &str, close: &str, depth: u32) -> Option<(Vec<Literal>, bool)> {
        self.take(open)?;
        let mut items = Vec::new();
        let mut ends_in_comma = false;
        while self.take(close).is_none() {
            if !items.is_empty() && !ends_in_comma {
                return None;
            }
            items.push(self.literal(depth)?);
            ends_in_comma = self.take(",").is_some();
        }
        Some((items, ends_in_comma))
    }

    fn dict(&mut self, depth: u32) -> Option<Vec<Entry>> {
        self.take("{")?;
        let mut entries = Vec::new();
        let mut ends_in_comma = true;
        while self.take("}").is_none() {
            if !ends_in_comma {
                return None;
            }
            self.rest();
            let key = self.string()?;
            self.take(":")?;
            self.rest();
            let start = self.at;
            let value = self.literal(depth)?;
            entries.push(Entry { key, value, span: start..self.at });
            ends_in_comma = self.take(",").is_some();
        }
        Some(entries)
    }

    fn number(&mut self) -> Option<u64> {
        let rest = self.rest();
        let len = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len());
        let number = rest[..len].parse().ok()?;
        self.at += len;
        // Python 2 marked long numbers so.
        self.take("L");
        Some(number)
    }

    fn string(&mut self) -> Option<String> {
        // Python 2 marked texts so.
        self.take("u");
        let quote = self.text[self.at..].chars().next().filter(|it| matches!(it, '\'' | '"'))?;
        let mut text = String::new();
        let mut characters = self.text[self.at + 1..].char_indices();
        while let Some((place, character)) = characters.next() {
            match character {
                _ if character == quote => {
                    self.at += 1 + place + 1;
                    return Some(text);
                }
                '\\' => text.push(escaped(&mut characters)?),
                '\n' => return None,
                _ => text.push(character),
            }
        }
        None
    }
}

fn escaped(characters: &mut std::str::CharIndices<'_>) -> Option<char> {
    let digits = match characters.next()?.1 {
        'n' => return Some('\n'),
        'r' => return Some('\r'),
        't' => return Some('\t'),
        it @ ('\\' | '\'' | '"') => return Some(it),
        'x' => 2,
        'u' => 4,
        'U' => 8,
        _ => return None,
    };
    let mut code = 0;
    for _ in 0..digits {
        code = code * 16 + characters.next()?.1.to_digit(16)?;
    }
    char::from_u32(code)
}
