//! Bounds the answers of an object store where the client library keeps the whole answer in memory.
//!
//! Objects come in pieces, within requested ranges. Pages of a listing and the bodies of errors are
//! collected first, at any length.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
        HttpResponseBody, HttpService, ReqwestConnector,
    },
};

/// Largest body of an error, in bytes; those of stores have some hundred bytes.
const ERROR_BYTES_MAX: u64 = 64 * 1024;

/// Largest page of a listing, in bytes: at most 5,000 entries, each with a name of at most 1 KiB.
const PAGE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Creates HTTP clients whose answers are bounded.
#[derive(Debug, Default)]
pub(crate) struct BoundedConnector {
    /// Set by every answer that may be about the keys of the request.
    pub(crate) is_refused: Arc<AtomicBool>,
}

impl HttpConnector for BoundedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        let is_refused = Arc::clone(&self.is_refused);
        Ok(HttpClient::new(BoundedService { client, is_refused }))
    }
}

#[derive(Debug)]
struct BoundedService {
    client: HttpClient,
    is_refused: Arc<AtomicBool>,
}

#[async_trait::async_trait]
impl HttpService for BoundedService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let asks_for_page = asks_for_page(&request);
        let response = self.client.execute(request).await?;
        // An expired token is a bad request for S3.
        if matches!(response.status().as_u16(), 400 | 401 | 403) {
            self.is_refused.store(true, Ordering::Relaxed);
        }
        let beyond = if !response.status().is_success() {
            // The beginning contains the reason.
            Some((ERROR_BYTES_MAX, Beyond::Cut))
        } else if asks_for_page {
            Some((PAGE_BYTES_MAX, Beyond::Fail))
        } else {
            None
        };
        let Some((left, beyond)) = beyond else { return Ok(response) };
        let (parts, body) = response.into_parts();
        let body = HttpResponseBody::new(BoundedBody { body: Some(body), left, beyond });
        Ok(HttpResponse::from_parts(parts, body))
    }
}

/// Whether the request is a listing, for Amazon and compatible stores, Azure or Google.
fn asks_for_page(request: &HttpRequest) -> bool {
    let query = request.uri().query().unwrap_or_default();
    let mut pairs = query.split('&');
    pairs.any(|pair| pair.starts_with("list-type=") || pair == "comp=list")
}

/// What happens to a body that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beyond {
    Cut,
    Fail,
}

#[derive(Debug)]
struct BoundedBody {
    /// `None` once it was cut, so that its connection is closed.
    body: Option<HttpResponseBody>,
    left: u64,
    beyond: Beyond,
}

#[derive(Debug, thiserror::Error)]
#[error("the store answers with a page of more than {PAGE_BYTES_MAX} B")]
struct TooLong;

impl Body for BoundedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = match Pin::new(body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => frame,
            other => return other,
        };
        let len = frame.data_ref().map_or(0, |data| data.len() as u64);
        if len <= self.left {
            self.left -= len;
            return Poll::Ready(Some(Ok(frame)));
        }
        self.body = None;
        match self.beyond {
            Beyond::Fail => Poll::Ready(Some(Err(HttpError::new(HttpErrorKind::Decode, TooLong)))),
            Beyond::Cut => {
                let whole = frame.into_data().unwrap_or_default();
                let kept = usize::try_from(self.left).unwrap_or(usize::MAX);
                Poll::Ready(Some(Ok(Frame::data(whole.slice(..kept)))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    /// Hides the announced length, so that no memory is reserved for it.
    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests;
