//! TLS 1.3 between manager and agents: each end proves that it has the token of the job.
//!
//! Both ends derive one secret from the token (HKDF-SHA-256), and prove that ([`tierfeed_mutual_tls`]).

use std::{io, sync::Arc};

use rustls::{AlertDescription, ClientConfig, Error, ServerConfig};
use tierfeed_mutual_tls::{Configs, server_name};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use super::token::Token;

const PURPOSE: &[u8] = b"control plane, Ed25519, version 1";

#[derive(Debug, Clone)]
pub struct Credentials {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The other end proved another token, or refused this one.
    #[error("the other end has another token")]
    OtherToken,
    #[error("the other end does not speak TLS")]
    NotTls,
    #[error("the other end does not speak TLS 1.3 with the key of a token: {0}")]
    Protocol(#[source] Error),
    #[error("the connection was lost: {0}")]
    Lost(#[source] io::Error),
}

impl Credentials {
    /// Derives the credentials from `token`.
    ///
    /// # Panics
    ///
    /// If the compiled-in cryptography lacks TLS 1.3 or Ed25519.
    #[must_use]
    pub fn of(token: &Token) -> Self {
        let Configs { server, client } = Configs::of(token.derive(PURPOSE).as_bytes());
        Self { server, client }
    }

    pub async fn accept(
        &self,
        stream: TcpStream,
    ) -> Result<server::TlsStream<TcpStream>, HandshakeError> {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.server));
        acceptor.accept(stream).await.map_err(HandshakeError::of)
    }

    /// Its success does not show that the server accepted this key; data from the server does.
    pub async fn connect(
        &self,
        stream: TcpStream,
    ) -> Result<client::TlsStream<TcpStream>, HandshakeError> {
        let connector = TlsConnector::from(Arc::clone(&self.client));
        connector.connect(server_name(), stream).await.map_err(HandshakeError::of)
    }
}

impl HandshakeError {
    fn of(error: io::Error) -> Self {
        match error.get_ref().and_then(|it| it.downcast_ref::<Error>()) {
            None => Self::Lost(error),
            Some(
                Error::InvalidCertificate(_)
                | Error::AlertReceived(
                    AlertDescription::AccessDenied
                    | AlertDescription::BadCertificate
                    | AlertDescription::DecryptError,
                ),
            ) => Self::OtherToken,
            Some(Error::InvalidMessage(_)) => Self::NotTls,
            Some(other) => Self::Protocol(other.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
