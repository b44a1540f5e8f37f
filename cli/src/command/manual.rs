//! `tierfeed completions` and `tierfeed man`: shell completions and manual pages.

use std::{io, path::PathBuf};

use anyhow::Context;
use clap::{Args, CommandFactory as _};

use crate::{Arguments, failure::Failure, output};

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The directory that gets a page for each command; without it that of tierfeed itself is printed.
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
}

pub(crate) fn completions(arguments: &Completions) -> Result<(), Failure> {
    let mut script = Vec::new();
    let mut command = Arguments::command();
    clap_complete::generate(arguments.shell, &mut command, "tierfeed", &mut script);
    output::lines(&String::from_utf8_lossy(&script))
}

pub(crate) fn pages(arguments: &Man) -> Result<(), Failure> {
    // Otherwise the first page refers to a page of `tierfeed help`, which does not exist.
    let command = Arguments::command().disable_help_subcommand(true);
    let Some(folder) = &arguments.output else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        return output::lines(&String::from_utf8_lossy(&page));
    };
    let written = |outcome: io::Result<()>| {
        outcome.with_context(|| folder.display().to_string()).map_err(Failure::Input)
    };
    written(std::fs::create_dir_all(folder))?;
    written(clap_mangen::generate_to(command, folder))
}
