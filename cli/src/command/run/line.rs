//! A connection between two processes of a run on one node, which say lines to each other.

use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
    Lines, ReadHalf, Take, WriteHalf, split,
};

#[derive(Debug)]
pub(super) struct Line<S> {
    lines: Lines<BufReader<Take<ReadHalf<S>>>>,
    pub(super) writer: WriteHalf<S>,
}

impl<S: AsyncRead + AsyncWrite> Line<S> {
    /// A side that says more than `bytes_max` in all is not heard any more.
    pub(super) fn of(stream: S, bytes_max: u64) -> Self {
        let (reader, writer) = split(stream);
        Self { lines: BufReader::new(reader.take(bytes_max)).lines(), writer }
    }

    /// Says a line to the other side, if it is there.
    pub(super) async fn say(&mut self, line: &str) {
        if let Err(error) = self.writer.write_all(format!("{line}\n").as_bytes()).await {
            tracing::debug!(%error, "another process of this run does not listen");
        }
    }

    /// The next line; `None` once the other side is gone.
    pub(super) async fn hear(&mut self) -> Option<String> {
        self.lines.next_line().await.ok().flatten()
    }
}
