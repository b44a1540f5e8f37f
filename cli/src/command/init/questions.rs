//! Questions to the user, and what is assumed where none is asked.

use std::{
    fmt::Display,
    io::{self, IsTerminal},
};

use anyhow::{Context, anyhow};

use crate::failure::Failure;

const TRIES_MAX: usize = 3;

/// Asks on a terminal; elsewhere takes the defaults and keeps a sentence about each.
#[derive(Debug)]
pub(super) struct Questions {
    mode: Mode,
    /// What was assumed without a question.
    pub(super) assumed: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Ask,
    TakeDefaults,
}

impl Mode {
    /// Questions are for a person at a terminal.
    pub(super) fn of_terminal() -> Self {
        let is_terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
        if is_terminal { Self::Ask } else { Self::TakeDefaults }
    }
}

impl Questions {
    pub(super) const fn new(mode: Mode) -> Self {
        Self { mode, assumed: Vec::new() }
    }

    /// One of several, the first by default. `None` if there is none.
    pub(super) fn choose<T: Display>(
        &mut self,
        what: &str,
        mut options: Vec<T>,
    ) -> Result<Option<T>, Failure> {
        if options.len() < 2 {
            return Ok(options.pop());
        }
        let texts: Vec<String> = options.iter().map(ToString::to_string).collect();
        if self.mode == Mode::TakeDefaults {
            self.assumed.push(format!(
                "{what}: {}; there is also {}",
                texts[0],
                texts[1..].join(", ")
            ));
            return Ok(Some(options.swap_remove(0)));
        }
        for (number, text) in (1..).zip(&texts) {
            eprintln!("  {number}  {text}");
        }
        let chosen = asked(&format!("{what}, by its number"), Some("1"), |text| {
            let number: usize = text.parse().ok()?;
            (1..=texts.len()).contains(&number).then_some(number)
        })?;
        Ok(Some(options.swap_remove(chosen - 1)))
    }

    /// A number above 0, with a default and where that comes from.
    pub(super) fn number(&mut self, what: &str, default: u32, why: &str) -> Result<u32, Failure> {
        if self.mode == Mode::TakeDefaults {
            self.assumed.push(format!("{what}: {default}, {why}"));
            return Ok(default);
        }
        let parse = |text: &str| text.parse().ok().filter(|number: &u32| *number > 0);
        asked(&format!("{what} ({why})"), Some(&default.to_string()), parse)
    }

    /// A text without a default; `None` where nothing is asked.
    pub(super) fn text(&self, what: &str) -> Result<Option<String>, Failure> {
        match self.mode {
            Mode::TakeDefaults => Ok(None),
            Mode::Ask => asked(what, None, |text| Some(text.to_owned())).map(Some),
        }
    }
}

/// Asks until the answer can be parsed. An empty one is the default.
fn asked<T>(
    question: &str,
    default: Option<&str>,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T, Failure> {
    for _ in 0..TRIES_MAX {
        eprint!("{question}{}: ", default.map(|it| format!(" [{it}]")).unwrap_or_default());
        let mut line = String::new();
        if io::stdin().read_line(&mut line).context("cannot read the answer")? == 0 {
            return Err(Failure::Input(anyhow!("no answer; --yes takes the defaults")));
        }
        let answer = Some(line.trim()).filter(|text| !text.is_empty()).or(default);
        if let Some(value) = answer.and_then(&parse) {
            return Ok(value);
        }
    }
    Err(Failure::Input(anyhow!("{question}: {TRIES_MAX} answers were wrong")))
}
