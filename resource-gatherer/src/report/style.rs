//! Says what the place where text is shown can do; who writes there decides, nothing here asks.

/// Where text is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// A file, a pipe, or a terminal that can only write.
    Plain,
    /// A terminal, and what it can show.
    Terminal {
        /// Whether it may be coloured.
        colour: Colour,
        /// Whether it can draw curves of block characters.
        blocks: Blocks,
    },
}

/// Whether text may be coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// Colours are allowed.
    On,
    /// It may not: the user said so.
    Off,
}

/// Whether block characters can be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocks {
    /// The terminal shows block characters.
    On,
    /// They cannot: the terminal does not write UTF-8.
    Off,
}

/// What a piece of text is, as far as colour tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paint {
    Heading,
    Label,
    Warning,
}

impl Style {
    /// Whether curves may be drawn.
    pub(super) fn has_blocks(self) -> bool {
        matches!(self, Self::Terminal { blocks: Blocks::On, .. })
    }

    /// `text` in its colour.
    pub(super) fn paint(self, text: &str, paint: Paint) -> String {
        let code = match paint {
            Paint::Heading => "1",
            Paint::Label => "2",
            Paint::Warning => "33",
        };
        match self {
            Self::Terminal { colour: Colour::On, .. } if !text.is_empty() => {
                format!("\x1b[{code}m{text}\x1b[0m")
            }
            _ => text.to_owned(),
        }
    }
}
