//! Authentication: two nodes prove to each other that they have the secret of the job, without sending it.
//!
//! The one that connects sends a greeting with its node and 32 random bytes; the other answers with its own
//! and an HMAC-SHA-256 over both greetings; the first answers with another one. Each proof covers the random
//! bytes of both, so a recorded handshake proves nothing, and names the role of its maker, so a proof that
//! is sent back proves nothing either.
//!
//! Both derive a key for this connection from secret and greetings. Every head of a message carries a tag by
//! that key over its direction, its number and its bytes: a message that is inserted, changed, repeated or
//! left out is detected. The bytes of samples are covered by the sums in the heads.
//!
//! Unless the network is private, all of this happens inside of TLS 1.3, whose ends have proved the same
//! secret before ([`tierfeed_mutual_tls`]), so that bytes and sums cannot be read or changed either.

use ring::{
    hmac,
    rand::{SecureRandom as _, SystemRandom},
};
use rustls::{ClientConnection, Connection, ServerConnection};
use tierfeed_core::id::NodeId;
use tierfeed_mutual_tls::{Configs, server_name};

pub(crate) const GREETING_BYTES: usize = 56;

pub(crate) const PROOF_BYTES: usize = 32;

pub(crate) const TAG_BYTES: usize = 16;

const MAGIC: [u8; 8] = *b"tfpeers1";

const NONCE_BYTES: usize = 32;

#[derive(Debug, Clone)]
pub struct Access {
    key: hmac::Key,
    node: NodeId,
    incarnation: u64,
    /// `None` in a private network.
    tls: Option<Configs>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(crate) node: NodeId,
    pub(crate) incarnation: u64,
    nonce: [u8; NONCE_BYTES],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Client,
    Server,
}

/// Tags the heads of one direction of a connection.
#[derive(Debug)]
pub(crate) struct Tags {
    key: hmac::Key,
    sender: Role,
    next: u64,
}

impl Access {
    /// Connections whose bytes are encrypted. `secret` is derived from the token of the job for this purpose;
    /// `node` and `incarnation` are those of this process.
    #[must_use]
    pub fn encrypted(secret: &[u8; 32], node: NodeId, incarnation: u64) -> Self {
        let tls = Some(Configs::of(&derived(secret, b"TLS")));
        Self { tls, ..Self::private(secret, node, incarnation) }
    }

    /// Connections whose bytes are not encrypted, for a network that only nodes of the job reach.
    #[must_use]
    pub fn private(secret: &[u8; 32], node: NodeId, incarnation: u64) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &derived(secret, b"proofs"));
        Self { key, node, incarnation, tls: None }
    }

    /// `None` in a private network.
    ///
    /// # Errors
    ///
    /// As [`rustls`]; none occurs with the settings of [`tierfeed_mutual_tls`].
    pub(crate) fn tls(&self, role: Role) -> Result<Option<Connection>, rustls::Error> {
        let Some(Configs { server, client }) = self.tls.clone() else { return Ok(None) };
        Ok(Some(match role {
            Role::Client => ClientConnection::new(client, server_name())?.into(),
            Role::Server => ServerConnection::new(server)?.into(),
        }))
    }

    /// A greeting of this node; `None` if the system has no random source.
    pub(crate) fn greeting(&self) -> Option<Greeting> {
        let mut nonce = [0; NONCE_BYTES];
        SystemRandom::new().fill(&mut nonce).ok()?;
        Some(Greeting { node: self.node, incarnation: self.incarnation, nonce })
    }

    pub(crate) fn proof(&self, prover: Role, client: &Greeting, server: &Greeting) -> [u8; 32] {
        let tag = hmac::sign(&self.key, &transcript(b"proof", prover, client, server));
        let mut proof = [0; PROOF_BYTES];
        proof.copy_from_slice(tag.as_ref());
        proof
    }

    /// Whether `shown` is the proof of the other end; compared in constant time.
    pub(crate) fn is_proof(
        &self,
        shown: &[u8; PROOF_BYTES],
        prover: Role,
        client: &Greeting,
        server: &Greeting,
    ) -> bool {
        hmac::verify(&self.key, &transcript(b"proof", prover, client, server), shown).is_ok()
    }

    pub(crate) fn tags(&self, sender: Role, client: &Greeting, server: &Greeting) -> Tags {
        let key = hmac::sign(&self.key, &transcript(b"heads", sender, client, server));
        Tags { key: hmac::Key::new(hmac::HMAC_SHA256, key.as_ref()), sender, next: 0 }
    }
}

impl Greeting {
    pub(crate) fn bytes(&self) -> [u8; GREETING_BYTES] {
        let mut bytes = [0; GREETING_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.node.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[24..].copy_from_slice(&self.nonce);
        bytes
    }

    pub(crate) fn parse(bytes: &[u8; GREETING_BYTES]) -> Option<Self> {
        let (mut node, mut incarnation, mut nonce) = ([0; 4], [0; 8], [0; NONCE_BYTES]);
        node.copy_from_slice(&bytes[8..12]);
        incarnation.copy_from_slice(&bytes[16..24]);
        nonce.copy_from_slice(&bytes[24..]);
        let node = NodeId(u32::from_le_bytes(node));
        let greeting = Self { node, incarnation: u64::from_le_bytes(incarnation), nonce };
        (greeting.bytes() == *bytes).then_some(greeting)
    }
}

impl Tags {
    /// The tag of the next head.
    pub(crate) fn sign(&mut self, head: &[u8]) -> [u8; TAG_BYTES] {
        let signed = hmac::sign(&self.key, &self.covered(head));
        self.next += 1;
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&signed.as_ref()[..TAG_BYTES]);
        tag
    }

    /// Whether `shown` is the tag of the next head; compared in constant time.
    pub(crate) fn is_next(&mut self, head: &[u8], shown: &[u8]) -> bool {
        let tag = self.sign(head);
        let differences = tag.iter().zip(shown).fold(0, |all, (own, other)| all | (own ^ other));
        shown.len() == TAG_BYTES && std::hint::black_box(differences) == 0
    }

    fn covered(&self, head: &[u8]) -> Vec<u8> {
        [&[self.sender.number()], self.next.to_le_bytes().as_slice(), head].concat()
    }
}

impl Role {
    fn number(self) -> u8 {
        match self {
            Self::Client => 1,
            Self::Server => 2,
        }
    }
}

fn derived(secret: &[u8; 32], purpose: &[u8]) -> [u8; 32] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), purpose);
    let mut derived = [0; 32];
    derived.copy_from_slice(tag.as_ref());
    derived
}

fn transcript(purpose: &[u8], role: Role, client: &Greeting, server: &Greeting) -> Vec<u8> {
    [purpose, &[role.number()], &client.bytes(), &server.bytes()].concat()
}
