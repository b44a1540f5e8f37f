//! TLS 1.3 in which each end proves that it has one secret of 32 bytes.
//!
//! Both ends derive one Ed25519 key pair from the secret and present its public key as a raw public key
//! (RFC 7250). Each end accepts this key only, so the secret is proved by a signature over the handshake
//! and is never sent. There are no certificates, names or authorities, no older version of TLS, and no
//! resumption: a connection is always a full handshake.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

use std::sync::Arc;

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
    client::{
        AlwaysResolvesClientRawPublicKeys, Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{
        CryptoProvider, WebPkiSupportedAlgorithms, ring as provider,
        verify_tls13_signature_with_raw_key,
    },
    pki_types::{
        CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
    },
    server::{
        AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
    version::TLS13,
};

/// The bytes before the seed of an Ed25519 key in PKCS #8 (RFC 8410, section 7).
const PKCS8_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// The TLS settings of both roles, for one secret.
#[derive(Debug, Clone)]
pub struct Configs {
    /// Of the end that accepts connections.
    pub server: Arc<ServerConfig>,
    /// Of the end that connects.
    pub client: Arc<ClientConfig>,
}

impl Configs {
    /// Derives the settings from a secret that serves no other purpose.
    ///
    /// # Panics
    ///
    /// If the compiled-in cryptography lacks TLS 1.3 or Ed25519.
    #[must_use]
    pub fn of(secret: &[u8; 32]) -> Self {
        let key = Arc::new(key_pair(secret));
        let provider = Arc::new(provider::default_provider());
        let verifier = Arc::new(SameKey::of(&key, &provider));
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let mut server = server
            .with_protocol_versions(&[&TLS13])
            .expect("the provider has suites of TLS 1.3")
            .with_client_cert_verifier(Arc::clone(&verifier) as Arc<dyn ClientCertVerifier>)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::clone(&key))));
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect("the provider has suites of TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key)));
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        Self { server: Arc::new(server), client: Arc::new(client) }
    }
}

/// The name that a client gives the other end: TLS asks for one, and no end looks at it.
///
/// # Panics
///
/// Never: the name is a constant.
#[must_use]
pub fn server_name() -> ServerName<'static> {
    ServerName::try_from("tierfeed").expect("it is a name of DNS")
}

/// The key pair of a secret, with its public key as the certificate.
///
/// # Panics
///
/// Never: every 32 bytes are the seed of an Ed25519 key.
#[must_use]
pub fn key_pair(secret: &[u8; 32]) -> CertifiedKey {
    let pkcs8 = [PKCS8_PREFIX.as_slice(), secret].concat();
    let key = provider::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8))
        .expect("every 32 bytes are the seed of an Ed25519 key");
    let public = key.public_key().expect("a key of Ed25519 knows its public key");
    let public = CertificateDer::from(public.as_ref().to_vec());
    CertifiedKey::new(vec![public], key)
}

/// Accepts one public key, from either end.
#[derive(Debug)]
struct SameKey {
    public: CertificateDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl SameKey {
    fn of(key: &CertifiedKey, provider: &CryptoProvider) -> Self {
        let public = key.cert.first().expect("a key pair has a public key").clone();
        Self { public, algorithms: provider.signature_verification_algorithms }
    }

    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        if *shown == self.public {
            Ok(())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)
    }
}

/// TLS 1.2 is disabled, so none of its signatures is valid.
fn refuse_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::PeerIncompatible(rustls::PeerIncompatible::Tls12NotOfferedOrEnabled))
}

impl ServerCertVerifier for SameKey {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(shown).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        refuse_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for SameKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(shown).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        refuse_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
