//! Says what the place where text is shown can do; who writes there decides, nothing here asks.

/// How text is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Text alone, for files, pipes and users who want no colours.
    Plain,
    /// With the colours of a terminal.
    Coloured,
}

/// What a piece of text is, as far as colour tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paint {
    Heading,
    Label,
    Warning,
}

impl Style {
    /// `text` in its colour.
    pub(super) fn paint(self, text: &str, paint: Paint) -> String {
        let code = match paint {
            Paint::Heading => "1",
            Paint::Label => "2",
            Paint::Warning => "33",
        };
        match self {
            Self::Coloured if !text.is_empty() => {
                format!("\x1b[{code}m{text}\x1b[0m")
            }
            _ => text.to_owned(),
        }
    }
}
