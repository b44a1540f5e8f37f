//! The begin of a connection: two nodes prove to each other that they have the secret of the job, without
//! sending it.
//!
//! Each connection begins with the handshake of TLS 1.3, whose ends prove that they have the same secret
//! ([`tierfeed_mutual_tls`]). Inside of it the client says who it is and whom it looks for, and the server
//! whether it serves it. Both derive keys for the tags of their messages from the keys of TLS.
//!
//! In a private network TLS ends there, and what follows is not encrypted. Nothing is in flight at that
//! moment: the server says nothing before it is asked.

use std::io;

use rustls::{ClientConnection, ServerConnection};
use tierfeed_core::id::NodeId;
use tierfeed_mutual_tls::{Configs, server_name};
use tokio::net::TcpStream;

use crate::peers::{
    channel::Channel,
    message::{Hello, Message, MessageError, MessageReader, Protection, Tags},
};

/// The secret of the job, and this process.
#[derive(Debug, Clone)]
pub struct Access {
    tls: Configs,
    node: NodeId,
    incarnation: u64,
    protection: Protection,
}

impl Access {
    /// Connections whose bytes are encrypted. `secret` is derived from the token of the job for this purpose;
    /// `node` and `incarnation` are those of this process.
    #[must_use]
    pub fn encrypted(secret: &[u8; 32], node: NodeId, incarnation: u64) -> Self {
        let tls = Configs::of(secret);
        Self { tls, node, incarnation, protection: Protection::Encrypted }
    }

    /// Connections whose bytes are not encrypted, for a network that only nodes of the job reach.
    #[must_use]
    pub fn private(secret: &[u8; 32], node: NodeId, incarnation: u64) -> Self {
        Self { protection: Protection::Plain, ..Self::encrypted(secret, node, incarnation) }
    }
}

/// A connection whose ends have proved that they have the secret.
#[derive(Debug)]
pub(crate) struct Proved {
    pub(crate) channel: Channel,
    /// The other end, as it says.
    pub(crate) node: NodeId,
    pub(crate) sent: Tags,
    pub(crate) received: Tags,
    protection: Protection,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error("the other end could not prove that it has the secret of the job")]
    NotProved,
    #[error("the other end is another node, or another process of it")]
    OtherProcess,
    #[error("the other end has no room for one more connection")]
    Full,
    #[error("the connection was lost: {0}")]
    Lost(#[source] io::Error),
}

impl From<MessageError> for HandshakeError {
    fn from(error: MessageError) -> Self {
        match error {
            MessageError::Io(error) => error.into(),
            _ => Self::NotProved,
        }
    }
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        // What TLS says of a record that it does not take: the other end has another key, or speaks no TLS.
        match error.kind() {
            io::ErrorKind::InvalidData => Self::NotProved,
            _ => Self::Lost(error),
        }
    }
}

/// The handshake of the client, with the process `incarnation` of `node`.
pub(crate) async fn connect(
    stream: TcpStream,
    access: &Access,
    node: NodeId,
    incarnation: u64,
) -> Result<Proved, HandshakeError> {
    let tls = ClientConnection::new(access.tls.client.clone(), server_name());
    let channel = Channel::encrypted(stream, tls.map_err(io::Error::other)?.into()).await?;
    let [sent, received] = tags(&channel)?;
    let mut proved = Proved { channel, node, sent, received, protection: access.protection };
    let hello = Hello { from: access.node, to: node, incarnation, protection: access.protection };
    proved.say(&Message::Hello(hello)).await?;
    match proved.hear().await? {
        Message::Welcome => proved.ready(),
        Message::Full => Err(HandshakeError::Full),
        Message::OtherProcess => Err(HandshakeError::OtherProcess),
        _ => Err(HandshakeError::NotProved),
    }
}

/// The handshake of the server. The client still waits for [`Proved::accept`] or [`Proved::turn_away`].
pub(crate) async fn prove(stream: TcpStream, access: &Access) -> Result<Proved, HandshakeError> {
    let tls = ServerConnection::new(access.tls.server.clone());
    let channel = Channel::encrypted(stream, tls.map_err(io::Error::other)?.into()).await?;
    let [received, sent] = tags(&channel)?;
    let (node, protection) = (access.node, access.protection);
    let mut proved = Proved { channel, node, sent, received, protection };
    let Message::Hello(hello) = proved.hear().await? else {
        return Err(HandshakeError::NotProved);
    };
    let looked_for = (hello.to, hello.incarnation, hello.protection);
    if looked_for != (node, access.incarnation, protection) {
        proved.say(&Message::OtherProcess).await?;
        return Err(HandshakeError::OtherProcess);
    }
    Ok(Proved { node: hello.from, ..proved })
}

/// Of the messages of the client, and of those of the server.
fn tags(channel: &Channel) -> io::Result<[Tags; 2]> {
    let key = |label: &[u8]| channel.derived_key(label).map(|key| Tags::new(&key));
    Ok([key(b"EXPORTER-tierfeed-client")?, key(b"EXPORTER-tierfeed-server")?])
}

impl Proved {
    pub(crate) async fn accept(mut self) -> Result<Self, HandshakeError> {
        self.channel.fit_send_buffer();
        self.say(&Message::Welcome).await?;
        self.ready()
    }

    pub(crate) async fn turn_away(mut self) -> HandshakeError {
        match self.say(&Message::Full).await {
            Ok(()) => HandshakeError::Full,
            Err(error) => error,
        }
    }

    fn ready(mut self) -> Result<Self, HandshakeError> {
        if self.protection == Protection::Plain {
            self.channel.end_encryption()?;
        }
        Ok(self)
    }

    async fn say(&mut self, message: &Message) -> Result<(), HandshakeError> {
        let bytes = message.tagged(&mut self.sent);
        Ok(self.channel.send_all(&bytes).await?)
    }

    async fn hear(&mut self) -> Result<Message, HandshakeError> {
        let mut reader = MessageReader::default();
        loop {
            match reader.receive(&mut self.channel, &mut self.received) {
                Err(MessageError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.channel.readable().await?;
                }
                heard => return Ok(heard?),
            }
        }
    }
}
