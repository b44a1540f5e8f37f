//! The first messages of a connection, at both ends; see `peers/access.rs`.

use std::io;

use tierfeed_core::id::NodeId;

use crate::peers::{
    access::{Access, GREETING_BYTES, Greeting, PROOF_BYTES, Role, Tags},
    channel::Channel,
};

/// The last message of a handshake: the client was accepted, or the server has no room for it.
const ACCEPTED: u8 = 1;
const FULL: u8 = 2;

#[derive(Debug)]
pub(crate) struct Proved {
    pub(crate) channel: Channel,
    pub(crate) node: NodeId,
    pub(crate) sent: Tags,
    pub(crate) received: Tags,
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
    mut channel: Channel,
    access: &Access,
    node: NodeId,
    incarnation: u64,
) -> Result<Proved, HandshakeError> {
    channel = protected(channel, access, Role::Client).await?;
    let own = access.greeting().ok_or_else(|| io::Error::other("no random source"))?;
    channel.send_all(&own.bytes()).await?;
    let server = receive_greeting(&mut channel).await?;
    let mut shown = [0; PROOF_BYTES];
    channel.receive_all(&mut shown).await?;
    if !access.is_proof(&shown, Role::Server, &own, &server) {
        return Err(HandshakeError::NotProved);
    }
    if (server.node, server.incarnation) != (node, incarnation) {
        return Err(HandshakeError::OtherProcess);
    }
    channel.send_all(&access.proof(Role::Client, &own, &server)).await?;
    let mut verdict = [0];
    channel.receive_all(&mut verdict).await?;
    match verdict {
        [ACCEPTED] => {}
        [FULL] => return Err(HandshakeError::Full),
        _ => return Err(HandshakeError::NotProved),
    }
    let sent = access.tags(Role::Client, &own, &server);
    let received = access.tags(Role::Server, &own, &server);
    Ok(Proved { channel, node: server.node, sent, received })
}

/// The handshake of the server. The client still waits for [`Proved::accept`] or [`Proved::turn_away`].
pub(crate) async fn prove(mut channel: Channel, access: &Access) -> Result<Proved, HandshakeError> {
    channel = protected(channel, access, Role::Server).await?;
    let client = receive_greeting(&mut channel).await?;
    let own = access.greeting().ok_or_else(|| io::Error::other("no random source"))?;
    let proof = access.proof(Role::Server, &client, &own);
    channel.send_all(&[own.bytes().as_slice(), &proof].concat()).await?;
    let mut shown = [0; PROOF_BYTES];
    channel.receive_all(&mut shown).await?;
    if !access.is_proof(&shown, Role::Client, &client, &own) {
        return Err(HandshakeError::NotProved);
    }
    let sent = access.tags(Role::Server, &client, &own);
    let received = access.tags(Role::Client, &client, &own);
    Ok(Proved { channel, node: client.node, sent, received })
}

impl Proved {
    pub(crate) async fn accept(&mut self) -> Result<(), HandshakeError> {
        self.channel.fit_send_buffer();
        Ok(self.channel.send_all(&[ACCEPTED]).await?)
    }

    pub(crate) async fn turn_away(mut self) -> HandshakeError {
        match self.channel.send_all(&[FULL]).await {
            Ok(()) => HandshakeError::Full,
            Err(error) => error.into(),
        }
    }
}

async fn protected(
    channel: Channel,
    access: &Access,
    role: Role,
) -> Result<Channel, HandshakeError> {
    match access.tls(role).map_err(io::Error::other)? {
        Some(tls) => Ok(channel.encrypted(tls).await?),
        None => Ok(channel),
    }
}

async fn receive_greeting(channel: &mut Channel) -> Result<Greeting, HandshakeError> {
    let mut bytes = [0; GREETING_BYTES];
    channel.receive_all(&mut bytes).await?;
    Greeting::parse(&bytes).ok_or(HandshakeError::NotProved)
}
