//! The clients that are compared, and which of them are here.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Context as _, ensure};
use nix::sys::resource::UsageWho;
use tierfeed_object_stores::{Client as Store, Patience, object_store::ObjectStoreExt as _};
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinSet,
};

use super::{
    client::{Client, Turn, measured, store, timed},
    fetching::Fetching,
    python::Python,
    server::{Kind, Server},
};

/// Clients, and the reasons why others are absent.
type Found = (Vec<Box<dyn Client>>, Vec<String>);

/// The clients that can run here, ours first, and the reasons why others cannot.
pub(super) fn found(server: &Server, python: &Path, folder: &Path) -> anyhow::Result<Found> {
    let mut clients: Vec<Box<dyn Client>> = vec![
        Box::new(Fetching::new(server.endpoint())),
        Box::new(ObjectStore::new(server)?),
        Box::new(KeepAlive::new(server)?),
    ];
    let mut absent = Vec::new();
    match Curl::new(server, folder) {
        Ok(curl) => clients.push(Box::new(curl)),
        Err(error) => absent.push(format!("curl: {error:#}")),
    }
    for package in ["obstore", "boto3", "s3torchconnector"] {
        match Python::start(python, package, server.endpoint(), folder) {
            Ok(python) => clients.push(Box::new(python)),
            Err(error) => absent.push(format!("{package}: {error:#}")),
        }
    }
    Ok((clients, absent))
}

/// As many threads as our fetcher has.
fn runtime() -> anyhow::Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(4).enable_all().build()?)
}

/// Runs `read` for each object, in as many tasks as there shall be requests in flight.
fn spread<F: Future<Output = anyhow::Result<u64>> + Send + 'static>(
    runtime: &Runtime,
    kind: &'static Kind,
    read: impl Fn(usize) -> F + Clone + Send + 'static,
) -> anyhow::Result<()> {
    let next = Arc::new(AtomicUsize::new(0));
    let total = runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for _ in 0..kind.requests {
            let (next, read) = (Arc::clone(&next), read.clone());
            tasks.spawn(runner(next, kind, read));
        }
        let mut total = 0;
        while let Some(read) = tasks.join_next().await {
            total += read??;
        }
        anyhow::Ok(total)
    })?;
    ensure!(total == kind.total(), "{total} B came of {} B", kind.total());
    Ok(())
}

async fn runner<F: Future<Output = anyhow::Result<u64>>>(
    next: Arc<AtomicUsize>,
    kind: &'static Kind,
    read: impl Fn(usize) -> F,
) -> anyhow::Result<u64> {
    let mut total = 0;
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= kind.objects {
            return Ok(total);
        }
        total += read(number).await?;
    }
}

/// The crate `object_store` as it comes: `get` and `bytes`, a task for each request in flight.
struct ObjectStore {
    runtime: Runtime,
    store: Store,
}

impl ObjectStore {
    fn new(server: &Server) -> anyhow::Result<Self> {
        let store = store(server.endpoint(), "s3://bucket", &Patience::default())?;
        Ok(Self { runtime: runtime()?, store })
    }
}

impl Client for ObjectStore {
    fn name(&self) -> &'static str {
        "object_store get"
    }

    fn read_all(&mut self, kind: &'static Kind) -> anyhow::Result<Turn> {
        let store = Arc::clone(self.store.store());
        timed(|| {
            spread(&self.runtime, kind, move |number| {
                let store = Arc::clone(&store);
                async move {
                    let answer = store.get(&kind.key(number).into()).await?;
                    Ok(answer.bytes().await?.len() as u64)
                }
            })
        })
    }
}

/// The crate `reqwest`: each task asks for one object after another over connections that are kept, and
/// gathers it in memory of its own.
struct KeepAlive {
    runtime: Runtime,
    client: reqwest::Client,
    endpoint: String,
}

impl KeepAlive {
    /// Must be called after a client of ours exists, because that chooses the TLS of this process.
    fn new(server: &Server) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder().http1_only().build()?;
        Ok(Self { runtime: runtime()?, client, endpoint: server.endpoint().to_owned() })
    }
}

impl Client for KeepAlive {
    fn name(&self) -> &'static str {
        "reqwest, connections kept"
    }

    fn read_all(&mut self, kind: &'static Kind) -> anyhow::Result<Turn> {
        let (client, endpoint) = (self.client.clone(), self.endpoint.clone());
        timed(|| {
            spread(&self.runtime, kind, move |number| {
                let asked = client.get(format!("{endpoint}/bucket/{}", kind.key(number)));
                async move {
                    let mut answer = asked.send().await?.error_for_status()?;
                    let mut bytes = Vec::with_capacity(usize::try_from(kind.bytes)?);
                    while let Some(piece) = answer.chunk().await? {
                        bytes.extend_from_slice(&piece);
                    }
                    Ok(bytes.len() as u64)
                }
            })
        })
    }
}

/// `curl --parallel`, which throws away what it gets. Its start and its connections count, for it has no
/// other way.
struct Curl {
    folder: PathBuf,
    urls: Vec<(&'static str, String)>,
}

impl Curl {
    fn new(server: &Server, folder: &Path) -> anyhow::Result<Self> {
        let found = Command::new("curl").arg("--version").stdout(Stdio::null()).status();
        ensure!(found.context("cannot be started")?.success(), "`curl --version` fails");
        let mut urls = Vec::new();
        for kind in &super::KINDS {
            let mut list = String::new();
            for number in 0..kind.objects {
                let url = server.url(kind, number);
                _ = writeln!(list, "url = \"{url}\"\noutput = \"/dev/null\"");
            }
            urls.push((kind.prefix, list));
        }
        Ok(Self { folder: folder.to_owned(), urls })
    }
}

impl Client for Curl {
    fn name(&self) -> &'static str {
        "curl --parallel"
    }

    fn prepare(&mut self, kind: &'static Kind) -> anyhow::Result<()> {
        let list = self.urls.iter().find(|(prefix, _)| *prefix == kind.prefix);
        let (_, list) = list.context("an unknown kind")?;
        Ok(fs::write(self.folder.join(kind.prefix), list)?)
    }

    fn read_all(&mut self, kind: &'static Kind) -> anyhow::Result<Turn> {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--fail", "--parallel", "--parallel-max"]);
        command.arg(kind.requests.to_string()).arg("--config").arg(self.folder.join(kind.prefix));
        measured(UsageWho::RUSAGE_CHILDREN, || {
            // It prints its progress there under all options.
            let command = command.stdout(Stdio::null()).stderr(Stdio::null());
            let status = command.status().context("cannot be started")?;
            ensure!(status.success(), "curl failed ({status})");
            Ok(())
        })
    }
}
