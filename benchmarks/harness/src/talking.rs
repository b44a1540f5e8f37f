//! Processes that talk with the experiment that starts them.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context as _, ensure};

/// A process that says lines, and is told lines on its input, with whose end it ends.
#[derive(Debug)]
pub struct Talking {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Talking {
    /// # Errors
    ///
    /// If the command cannot be started.
    pub fn start(command: &mut Command) -> anyhow::Result<Self> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| command.get_program().display().to_string())?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("its output is piped")?);
        Ok(Self { child, input, output })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it says.
    ///
    /// # Errors
    ///
    /// If it has ended.
    pub fn hear(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        ensure!(self.output.read_line(&mut line)? > 0, "it ended");
        Ok(line.trim().to_owned())
    }

    /// # Errors
    ///
    /// If it has ended.
    pub fn tell(&self, line: &str) -> anyhow::Result<()> {
        let mut input = self.input.as_ref().context("its input is piped")?;
        writeln!(input, "{}", line.trim_end()).context("it ended")
    }
}

impl Drop for Talking {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}
