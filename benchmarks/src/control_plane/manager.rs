//! A client of a real manager, as an agent is one.

use std::{collections::BTreeMap, num::NonZeroU32, path::Path};

use anyhow::Context as _;
use tierfeed_core::{
    fleet::{
        self, Progress, Registration,
        schedule::{Figures, Offer},
    },
    id::NodeId,
    order::{FurtherDatasets, Position, Shuffle, Spec, World},
    retention::{
        in_place::{SampleLengths, Verified},
        policy::{self, Stay},
    },
    session::LookAhead,
    units::{Bytes, Nanoseconds},
};
use tierfeed_runtime::{
    manager::{Listener, Manager, Settings as ManagerSettings},
    rpc::{
        call::{JobText, Report},
        client::{Address, Client},
    },
    schedule::ScheduleInputs,
    shutdown,
    transport::token::Token,
};
use tokio::task::JoinSet;

use super::{REPORT, Row, Settings, Side, row};

struct Peer {
    address: Address,
    token: Option<Token>,
    _stop: shutdown::Trigger,
    _manager: JoinSet<()>,
}

impl Peer {
    fn start(listener: Listener, address: Address, token: Option<Token>, folder: &Path) -> Self {
        let (stop, stopped) = shutdown::channel();
        let mut manager = JoinSet::new();
        let running = Manager::start(settings(folder), listener, stopped).run();
        manager.spawn(async move {
            // The bench is over by then.
            let _ = running.await;
        });
        Self { address, token, _stop: stop, _manager: manager }
    }

    /// The first calls of an agent: it connects and asks for the job.
    async fn join(&self) -> anyhow::Result<Client> {
        let client = Client::connect(&self.address, self.token.as_ref()).await?;
        client.job().await?;
        Ok(client)
    }
}

fn agent() -> Registration {
    let offer = Offer { tiers: Vec::new(), cold: Figures::none(), transform: None };
    Registration { node: NodeId(0), home: 1, incarnation: 1, offer }
}

fn inputs() -> ScheduleInputs {
    ScheduleInputs {
        ranks: 8,
        batch: Bytes::mib(32),
        batch_samples: 256,
        sample: Bytes(115_000),
        cold_threads: NonZeroU32::MIN,
        reads_at_first: NonZeroU32::MIN,
        step_time: None,
        depth_max: None,
        chunk: None,
        policy: policy::Kind::Gap,
        stay: Stay::UntilRead,
        verified: Verified::Never,
        lengths: SampleLengths::Several,
        modes: BTreeMap::new(),
        limits_writes: false,
        look_ahead: LookAhead::Auto,
        phases: None,
        transform: None,
    }
}

fn settings(folder: &Path) -> ManagerSettings {
    let order = Spec {
        samples: 1_281_167,
        shuffle: Shuffle::TORCH_DISTRIBUTED,
        seed: 1,
        epochs: 90,
        drop_last: false,
        batch_size: 256,
        world: World { nodes: 1, ranks_per_node: 8 },
        start: Position::START,
        further: FurtherDatasets::NONE,
    };
    ManagerSettings {
        job: JobText {
            name: "bench".to_owned(),
            text: include_str!("../../../configs/imagenet-resnet50.yaml").to_owned(),
            file: folder.join("job.yaml"),
            index_fingerprint: 1,
            further_fingerprints: Vec::new(),
            world: order.world,
        },
        fleet: fleet::Settings {
            order,
            policy: policy::Kind::Gap,
            lost_after: Nanoseconds(u64::MAX),
        },
        inputs: inputs(),
        start_marker: folder.join("begun"),
        meeting_port: 0,
        index: folder.join("index"),
        schedule_log: folder.join("schedules.jsonl"),
        memberships: folder.join("memberships.json"),
    }
}

pub(super) async fn compare(settings: &Settings, folder: &Path) -> anyhow::Result<Vec<Row>> {
    let socket = folder.join("socket");
    let listener = Listener::unix(&socket)?;
    let plain = Peer::start(listener, Address::Unix(socket), None, folder);
    let token = Token::generate()?;
    let listener = Listener::tcp("127.0.0.1:0", &token).await?;
    let address = listener.tcp_address()?.context("a listener on the network has an address")?;
    let address = Address::Tcp(address.to_string());
    let encrypted = Peer::start(listener, address, Some(token), folder);
    let mut joins = [Side::default(), Side::default()];
    let mut reports = [Side::default(), Side::default()];
    for _ in 0..settings.rounds {
        for (at, peer) in [&plain, &encrypted].into_iter().enumerate() {
            joins[at].turn(settings.connections, || peer.join()).await?;
            let client = peer.join().await?;
            client.register(&agent()).await?;
            let report = || async {
                let report = Report::of_progress(NodeId(0), 1, Progress::default());
                Ok(client.report(report).await?)
            };
            reports[at].turn(settings.messages, report).await?;
        }
    }
    Ok(vec![row("join", &joins), row(REPORT, &reports)])
}
