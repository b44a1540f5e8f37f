//! The shape of a bench: options of a command, an outcome, and its judgement.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::{failure::Failure, files, judgement::Judged, leftovers::Watch, output::Format};

/// A bench, whose fields are the options of its command.
pub trait Bench: Args {
    type Outcome: Judged;

    /// # Errors
    ///
    /// If the input is wrong, the machine lacks what it needs, or a side fails.
    fn run(self) -> Result<Self::Outcome, Failure>;
}

/// A bench as a command, with how its outcome is printed.
#[derive(Debug, Args)]
pub struct Command<B: Bench> {
    #[command(flatten)]
    bench: B,
    #[command(flatten)]
    format: Format,
}

impl<B: Bench> Command<B> {
    /// # Errors
    ///
    /// Those of the bench, and if a promise was missed or the figures are inconclusive.
    pub fn run(self) -> Result<(), Failure> {
        self.format.show(&self.bench.run()?)
    }
}

/// The parent of the folder that a bench makes for its files.
#[derive(Debug, Clone, Default, Args)]
pub struct Folder {
    /// Where the files are made, and removed afterwards [default: the directory for temporary files].
    #[arg(long = "folder", value_name = "DIR")]
    pub parent: Option<PathBuf>,
}

impl Folder {
    pub fn parent(&self) -> PathBuf {
        self.parent.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// Runs `experiment` in a new folder, and removes the folder even if the experiment fails.
    ///
    /// # Errors
    ///
    /// Those of the experiment, and if the folder cannot be made or removed.
    pub fn with_files<T>(
        &self,
        experiment: impl FnOnce(&Path) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        files::in_folder(&self.parent(), experiment)
    }

    /// The process that removes what this one leaves, should it be killed while the result lives.
    ///
    /// # Errors
    ///
    /// If it does not start.
    pub fn watch(&self) -> Result<Watch, Failure> {
        Watch::start(&self.parent())
    }
}
