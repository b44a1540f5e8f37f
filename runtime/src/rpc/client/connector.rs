//! Connects to a manager by TCP and TLS, and explains the error if another process answers there.

use std::{error::Error, fmt, future::Future, io, pin::Pin, sync::Arc};

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tonic::codegen::http::Uri;
use tower::{Service, service_fn};

use crate::transport::{
    keep_alive,
    mutual_tls::{Credentials, HandshakeError},
};

type Connection = TokioIo<TlsStream<TcpStream>>;
type Connecting = Pin<Box<dyn Future<Output = Result<Connection, ConnectError>> + Send>>;

/// The process at an address is not the manager of this job.
#[derive(Debug, Clone)]
pub struct Untrusted {
    address: String,
    why: Arc<HandshakeError>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Untrusted(Untrusted),
}

/// Connects to `address`; the client's channel reconnects through it after a loss.
pub(super) fn connector(
    address: String,
    credentials: Credentials,
) -> impl Service<Uri, Response = Connection, Error = ConnectError, Future = Connecting> + Send + 'static
{
    service_fn(move |_| -> Connecting { Box::pin(connect(address.clone(), credentials.clone())) })
}

async fn connect(address: String, credentials: Credentials) -> Result<Connection, ConnectError> {
    let stream = TcpStream::connect(&address).await?;
    keep_alive::prepare(&stream)?;
    match credentials.connect(stream).await {
        Ok(stream) => Ok(TokioIo::new(stream)),
        // A manager that ends, or has no free slot, closes connections too.
        Err(HandshakeError::Lost(error)) => Err(error.into()),
        Err(why) => Err(ConnectError::Untrusted(Untrusted { address, why: Arc::new(why) })),
    }
}

impl Untrusted {
    /// The cause of a failed call, if it is this error.
    pub(super) fn behind(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(ConnectError::Untrusted(untrusted)) = error.downcast_ref() {
                return Some(untrusted.clone());
            }
            cause = error.source();
        }
        None
    }
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, why } = self;
        match **why {
            HandshakeError::OtherToken => write!(
                f,
                "what answers at {address} cannot prove this token: give the token file of the manager \
                 (--token-file, $TIERFEED_TOKEN); if it is the right one, another program has taken the \
                 port: see who listens there"
            ),
            _ => write!(
                f,
                "what answers at {address} is no manager of this version: {why}; see who listens there"
            ),
        }
    }
}

impl Error for Untrusted {}
