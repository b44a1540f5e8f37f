//! Streams alone: the cost that TLS adds to TCP.

use std::sync::Arc;

use anyhow::Context as _;
use tierfeed_runtime::transport::{mutual_tls::Credentials, token::Token};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::{Row, Settings, Side, row};

/// As long as a report of an agent, and as its answer.
const ASKED_BYTES: usize = 256;
const ANSWERED_BYTES: usize = 32;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

struct Peer {
    address: std::net::SocketAddr,
    credentials: Option<Arc<Credentials>>,
    _server: JoinSet<()>,
}

impl Peer {
    async fn start(credentials: Option<Arc<Credentials>>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port")?;
        let address = listener.local_addr()?;
        let mut server = JoinSet::new();
        let accepting = credentials.clone();
        server.spawn(async move {
            let mut answering = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                answering.spawn(answer(stream, accepting.clone()));
            }
        });
        Ok(Self { address, credentials, _server: server })
    }

    /// Returns a connection on which one byte came back, because only then do both ends know each other.
    async fn connect(&self) -> anyhow::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let mut stream: Box<dyn Stream> = match &self.credentials {
            None => Box::new(stream),
            Some(credentials) => Box::new(credentials.connect(stream).await?),
        };
        ask(&mut *stream).await?;
        Ok(stream)
    }
}

/// Answers until the other end is gone, which is no error here.
async fn answer(stream: TcpStream, credentials: Option<Arc<Credentials>>) {
    let answered = async {
        stream.set_nodelay(true)?;
        let mut stream: Box<dyn Stream> = match credentials {
            None => Box::new(stream),
            Some(credentials) => Box::new(credentials.accept(stream).await?),
        };
        let mut asked = [0; ASKED_BYTES];
        loop {
            stream.read_exact(&mut asked).await?;
            stream.write_all(&[1; ANSWERED_BYTES]).await?;
            stream.flush().await?;
        }
    };
    let _: anyhow::Result<()> = answered.await;
}

async fn ask(stream: &mut dyn Stream) -> anyhow::Result<()> {
    stream.write_all(&[2; ASKED_BYTES]).await?;
    stream.flush().await?;
    stream.read_exact(&mut [0; ANSWERED_BYTES]).await?;
    Ok(())
}

pub(super) async fn compare(settings: &Settings) -> anyhow::Result<Vec<Row>> {
    let credentials = Arc::new(Credentials::of(&Token::generate()?));
    let (plain, encrypted) = (Peer::start(None).await?, Peer::start(Some(credentials)).await?);
    let mut connects = [Side::default(), Side::default()];
    let mut messages = [Side::default(), Side::default()];
    for _ in 0..settings.rounds {
        for (at, peer) in [&plain, &encrypted].into_iter().enumerate() {
            connects[at].turn(settings.connections, || peer.connect()).await?;
            let stream = tokio::sync::Mutex::new(peer.connect().await?);
            let turn = || async { ask(&mut **stream.lock().await).await };
            messages[at].turn(settings.messages, turn).await?;
        }
    }
    Ok(vec![row("connection", &connects), row("message", &messages)])
}
