//! The bucket of a chaos run: an S3 server in a process of its own, which makes trouble when it is told.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::{Context as _, bail};

/// Below which the objects are.
pub(super) const PREFIX: &str = "data";

/// Something that a store does to its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It refuses every request for now.
    Refuse,
    /// Some objects are not there.
    Hide,
    /// Some objects come only in part.
    Cut,
    /// Some objects begin to come, and then do not.
    Stall,
}

impl Trouble {
    const fn word(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Hide => "hide",
            Self::Cut => "cut",
            Self::Stall => "stall",
        }
    }
}

/// The running server; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Store {
    child: Child,
    orders: Option<ChildStdin>,
    pub(super) endpoint: String,
    begun: AtomicU64,
}

impl Store {
    /// A server of the files below `folder`.
    pub(super) fn serve(program: &Path, folder: &Path) -> anyhow::Result<Self> {
        if !program.exists() {
            bail!(
                "{} is not there; build it with `cargo build -p tierfeed --example s3_server`, \
                 or name it by --server",
                program.display()
            );
        }
        let mut command = Command::new(program);
        command.arg("--folder").arg(folder).arg(PREFIX);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| program.display().to_string())?;
        let output = child.stdout.take().context("the server has no output")?;
        let orders = child.stdin.take();
        let mut store = Self { child, orders, endpoint: String::new(), begun: AtomicU64::new(0) };
        BufReader::new(output).read_line(&mut store.endpoint)?;
        store.endpoint.truncate(store.endpoint.trim_end().len());
        if store.endpoint.is_empty() {
            bail!("the server did not start");
        }
        Ok(store)
    }

    /// The server itself.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Makes trouble, for every request or for some keys below [`PREFIX`]. Returns its number.
    pub(super) fn begin(&self, trouble: Trouble, keys: &[String]) -> anyhow::Result<u64> {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let mut order = format!("begin {number} {}", trouble.word());
        keys.iter().for_each(|key| order.extend([" ", PREFIX, "/", key]));
        order.push('\n');
        self.order(&order)?;
        Ok(number)
    }

    /// Ends the trouble of this number.
    pub(super) fn end(&self, number: u64) -> anyhow::Result<()> {
        self.order(&format!("end {number}\n"))
    }

    fn order(&self, line: &str) -> anyhow::Result<()> {
        let mut orders = self.orders.as_ref().context("the server listens")?;
        orders.write_all(line.as_bytes()).context("the server is not there any more")
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // It ends with its input, unless it is broken or ended already.
        drop(self.orders.take());
        let _ = self.child.wait();
    }
}
