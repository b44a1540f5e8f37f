//! How text is shown. The caller decides; nothing here asks what a terminal can do.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Text alone, for files, pipes and users who want no colours.
    Plain,
    Coloured,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paint {
    Heading,
    Label,
    Warning,
}

impl Style {
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
