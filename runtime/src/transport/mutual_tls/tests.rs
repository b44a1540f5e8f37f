use rustls::{
    DigitallySignedStruct, SignatureScheme,
    client::{
        AlwaysResolvesClientRawPublicKeys,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{WebPkiSupportedAlgorithms, ring as provider},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::AlwaysResolvesServerRawPublicKeys,
    sign::CertifiedKey,
    version::{TLS12, TLS13},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;

/// The public key of the token of zeros with its header (RFC 8410).
const KEY_OF_ZEROS: &str = "302a300506032b6570032100\
                            f95c6477120a34845d4fc4529a289f15632a9e40be7896015daff8f2a07468df";

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap());
    let (near, far) = tokio::join!(near, listener.accept());
    (near.unwrap(), far.unwrap().0)
}

fn token(digit: char) -> Token {
    digit.to_string().repeat(64).parse().unwrap()
}

fn key_pair(token: &Token) -> CertifiedKey {
    tierfeed_mutual_tls::key_pair(token.derive(PURPOSE).as_bytes())
}

/// The public key of a token, as the (encrypted) handshake carries it.
#[expect(clippy::format_collect, reason = "32 bytes")]
fn public_key(token: &Token) -> String {
    let key = key_pair(token);
    key.cert[0].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Computed with Python's `hmac` and the package `cryptography`: other versions must find the same key.
#[test]
fn the_key_of_a_token_is_fixed() {
    assert_eq!(public_key(&token('0')), KEY_OF_ZEROS);
    assert_ne!(public_key(&token('1')), KEY_OF_ZEROS);
}

#[tokio::test]
async fn two_ends_with_one_token_understand_each_other() {
    let (near, far) = pair().await;
    // Derived apart, as in two processes.
    let (client, server) = (Credentials::of(&token('a')), Credentials::of(&token('a')));
    let (near, far) = tokio::join!(client.connect(near), server.accept(far));
    let (mut near, mut far) = (near.unwrap(), far.unwrap());
    near.write_all(b"ping").await.unwrap();
    far.write_all(b"pong").await.unwrap();
    let (mut asked, mut answered) = ([0; 4], [0; 4]);
    far.read_exact(&mut asked).await.unwrap();
    near.read_exact(&mut answered).await.unwrap();
    assert_eq!((&asked, &answered), (b"ping", b"pong"));
}

#[tokio::test]
async fn another_token_is_refused_by_both_ends() {
    let (near, far) = pair().await;
    let (client, server) = (Credentials::of(&token('a')), Credentials::of(&token('b')));
    let (near, far) = tokio::join!(client.connect(near), server.accept(far));
    assert!(matches!(near, Err(HandshakeError::OtherToken)), "{near:?}");
    assert!(matches!(far, Err(HandshakeError::OtherToken)), "{far:?}");
}

/// A client that does not check the manager's key must still present its own.
#[tokio::test]
async fn a_client_that_trusts_every_server_is_refused() {
    for with_key in [true, false] {
        let (near, far) = pair().await;
        let server = Credentials::of(&token('a'));
        let config = Arc::new(trusting(with_key.then(|| token('b')), &[&TLS13]));
        let (_, far) = tokio::join!(connect_as(config, near), server.accept(far));
        match far {
            Err(HandshakeError::OtherToken) => assert!(with_key),
            Err(HandshakeError::Protocol(_)) => assert!(!with_key),
            other => panic!("{other:?}"),
        }
    }
}

/// A peer that knows only the public key can present it, but has to sign with another key.
#[tokio::test]
async fn the_public_key_alone_proves_nothing() {
    let (right, wrong) = (key_pair(&token('a')), key_pair(&token('b')));
    let forged = Arc::new(CertifiedKey::new(right.cert.clone(), Arc::clone(&wrong.key)));
    let credentials = Credentials::of(&token('a'));
    let mut client = trusting(None, &[&TLS13]);
    client.client_auth_cert_resolver =
        Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::clone(&forged)));
    let (near, far) = pair().await;
    let client = tokio::spawn(connect_as(Arc::new(client), near));
    let far = credentials.accept(far).await;
    assert!(far.is_err(), "{far:?}");
    client.abort();
    let mut server = ServerConfig::clone(&credentials.server);
    server.cert_resolver = Arc::new(AlwaysResolvesServerRawPublicKeys::new(forged));
    let (near, far) = pair().await;
    let server = tokio::spawn(TlsAcceptor::from(Arc::new(server)).accept(far));
    let near = credentials.connect(near).await;
    assert!(near.is_err(), "{near:?}");
    server.abort();
}

#[tokio::test]
async fn an_older_tls_is_refused() {
    let (near, far) = pair().await;
    let server = Credentials::of(&token('a'));
    let config = Arc::new(trusting(None, &[&TLS12]));
    let (near, far) = tokio::join!(connect_as(config, near), server.accept(far));
    assert!(near.is_err());
    assert!(matches!(far, Err(HandshakeError::Protocol(Error::PeerIncompatible(_)))), "{far:?}");
}

#[tokio::test]
async fn what_speaks_no_tls_is_told_from_what_has_another_token() {
    let credentials = Credentials::of(&token('a'));
    let (mut near, far) = pair().await;
    near.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    let far = credentials.accept(far).await;
    assert!(matches!(far, Err(HandshakeError::NotTls)), "{far:?}");

    let (near, mut far) = pair().await;
    far.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    let near = credentials.connect(near).await;
    assert!(matches!(near, Err(HandshakeError::NotTls)), "{near:?}");

    let (near, far) = pair().await;
    drop(far);
    let near = credentials.connect(near).await;
    assert!(matches!(near, Err(HandshakeError::Lost(_))), "{near:?}");
}

/// A peer that echoes the client's messages proves nothing.
#[tokio::test]
async fn an_echo_is_no_peer() {
    let (near, far) = pair().await;
    let (mut from, mut to) = far.into_split();
    let echo = tokio::spawn(async move { tokio::io::copy(&mut from, &mut to).await });
    let near = Credentials::of(&token('a')).connect(near).await;
    assert!(matches!(near, Err(HandshakeError::Protocol(_))), "{near:?}");
    echo.abort();
}

async fn connect_as(
    config: Arc<ClientConfig>,
    stream: TcpStream,
) -> io::Result<client::TlsStream<TcpStream>> {
    let name = ServerName::try_from("manager").unwrap();
    let mut stream = TlsConnector::from(config).connect(name, stream).await?;
    // In TLS 1.3 a client sees its refusal with the first data.
    stream.read_u8().await?;
    Ok(stream)
}

fn trusting(
    token: Option<Token>,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> ClientConfig {
    let provider = Arc::new(provider::default_provider());
    let algorithms = provider.signature_verification_algorithms;
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyKey { algorithms }));
    match token.map(|token| Arc::new(key_pair(&token))) {
        Some(key) => {
            config.with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key)))
        }
        None => config.with_no_client_auth(),
    }
}

#[derive(Debug)]
struct AnyKey {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
