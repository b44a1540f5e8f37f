//! Bodies that are sent slowly, or not completely.

use std::{io, sync::Arc, time::Duration};

use hyper::body::Bytes;
use s3s::{Body, dto::StreamingBlob};
use tokio::{
    sync::mpsc,
    time::{self, Instant},
};
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};

use super::pace::Far;

/// Size of the pieces of a slow body, in bytes.
const PIECE: usize = 16 << 10;

type Piece = Result<Bytes, io::Error>;

/// The same body at a limited rate.
pub(super) fn at(body: Body, bytes_per_s: u64) -> Body {
    sent(body, move |bytes, sender| async move {
        for start in (0..bytes.len()).step_by(PIECE) {
            let piece = bytes.slice(start..bytes.len().min(start + PIECE));
            let ns = piece.len() as u128 * 1_000_000_000 / u128::from(bytes_per_s.max(1));
            time::sleep(Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))).await;
            if sender.send(Ok(piece)).await.is_err() {
                break;
            }
        }
    })
}

/// The same body from far away, the first byte at a certain time.
pub(super) fn far(body: Body, far: Arc<Far>, first_byte: Instant) -> Body {
    sent(body, move |bytes, sender| async move {
        let mut answer = far.answer(first_byte);
        for start in (0..bytes.len()).step_by(answer.piece()) {
            let piece = bytes.slice(start..bytes.len().min(start + answer.piece()));
            answer.wait_for(piece.len()).await;
            if sender.send(Ok(piece)).await.is_err() {
                break;
            }
        }
    })
}

/// The beginning of the body, and then an error, which closes the connection.
pub(super) fn cut(body: Body, len: usize) -> Body {
    sent(body, move |bytes, sender| async move {
        if bytes.len() <= len {
            let _ = sender.send(Ok(bytes)).await;
            return;
        }
        // A client that closed the connection sees no cut.
        let _ = sender.send(Ok(bytes.slice(..len))).await;
        let _ = sender.send(Err(io::Error::other("cut"))).await;
    })
}

/// The beginning of the body, as if it were complete.
pub(super) fn ended(body: Body, len: usize) -> Body {
    sent(body, move |bytes, sender| async move {
        // A client that closed the connection does not wait for the end.
        let _ = sender.send(Ok(bytes.slice(..len.min(bytes.len())))).await;
    })
}

/// The beginning of the body, and then silence.
pub(super) fn stalled(body: Body, len: usize) -> Body {
    sent(body, move |bytes, sender| async move {
        let _ = sender.send(Ok(bytes.slice(..len.min(bytes.len())))).await;
        sender.closed().await;
    })
}

/// The body, sent byte by byte.
pub(super) fn dripping(body: Body, pause: Duration) -> Body {
    sent(body, move |bytes, sender| async move {
        for at in 0..bytes.len() {
            time::sleep(pause).await;
            if sender.send(Ok(bytes.slice(at..=at))).await.is_err() {
                break;
            }
        }
    })
}

fn sent<F: Future<Output = ()> + Send>(
    body: Body,
    send: impl FnOnce(Bytes, mpsc::Sender<Piece>) -> F + Send + 'static,
) -> Body {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut whole = Vec::new();
        let mut pieces = body;
        while let Some(Ok(piece)) = pieces.next().await {
            whole.extend_from_slice(&piece);
        }
        send(whole.into(), sender).await;
    });
    Body::from(StreamingBlob::wrap(ReceiverStream::new(receiver)))
}
