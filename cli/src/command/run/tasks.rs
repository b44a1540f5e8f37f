//! The processes of a node, if the launcher starts one for each rank: the first holds the agent, and the others
//! start their rank once it is ready.
//!
//! They meet at a socket in the run directory of the node. Each side writes lines: the first process `start HOST
//! PORT` when the agent is ready, with the place where the ranks of the job meet, and `stop CODE` when the job
//! ends; the others `ended CODE` when their rank has.

use std::{
    io, os::unix::process::ExitStatusExt as _, path::Path, process::ExitStatus, sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use tierfeed_core::{id::Rank, order::World};
use tierfeed_runtime::{
    run_dir::RunDir,
    transport::local_socket::{LocalListener, LocalSocket, LocalStream},
};
use tokio::{
    io::{
        AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
        BufReader, Lines, ReadHalf, Take, WriteHalf, split,
    },
    net::UnixStream,
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::{ANOTHER_ENDS_WITHIN, exit, trainer_variables};
use crate::{
    arguments::Run,
    caller::Caller,
    command, deadline,
    failure::Failure,
    processes::{self, Ending, MeetingPlace, Signals, Trainer, Trainers},
};

/// How often a process looks for the first one of its node.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long the first process waits for the others once the agent is ready: a launcher starts all at once.
const COME_WITHIN: Duration = Duration::from_secs(60);

/// How long a process that has ended tries to say so.
const SAID_WITHIN: Duration = Duration::from_secs(2);

/// What one side may write.
const BYTES_MAX: u64 = 4096;

/// How a rank ends whose process is gone without a word.
const KILLED: i32 = 9;

/// The other processes of the node, in the first one.
#[derive(Debug)]
pub(super) struct OtherTasks {
    socket: LocalSocket,
    count: u32,
}

impl OtherTasks {
    /// Listens for `count` processes.
    pub(super) fn listen(node_dir: &RunDir, count: u32) -> io::Result<Self> {
        Ok(Self { socket: LocalSocket::bind(&node_dir.ranks_socket())?, count })
    }

    /// Lets them start their ranks, which end with those of this process. The ranks of a caller end one by
    /// one, and may come as long as the one of this process is there.
    pub(super) fn join(
        self,
        trainers: &mut Trainers,
        place: &MeetingPlace,
        caller: Option<&Caller>,
    ) -> io::Result<()> {
        let listener = Arc::new(self.socket.into_listener()?);
        for _ in 0..self.count {
            let (listener, stop) = (Arc::clone(&listener), trainers.stopped());
            match caller {
                None => {
                    let in_time = sleep(COME_WITHIN);
                    trainers.join(other_task(listener, place.clone(), stop, in_time));
                }
                Some(caller) => {
                    let gone = caller.gone();
                    let in_time = async move {
                        gone.await;
                        sleep(COME_WITHIN).await;
                    };
                    let ended = other_task(listener, place.clone(), stop, in_time);
                    trainers.join(async move {
                        if let Err(error) = ended.await {
                            tracing::debug!(%error, "another process of this node was lost");
                        }
                        Ok(ExitStatus::from_raw(0))
                    });
                }
            }
        }
        Ok(())
    }
}

/// Serves another process of the node to the end of its rank. It must come before `in_time` ends.
async fn other_task(
    listener: Arc<LocalListener>,
    place: MeetingPlace,
    mut stop: watch::Receiver<Option<u8>>,
    in_time: impl Future<Output = ()>,
) -> io::Result<ExitStatus> {
    let accepted = tokio::select! {
        accepted = accept(&listener) => accepted,
        code = stopped(&mut stop) => return Ok(ExitStatus::from_raw(i32::from(code) << 8)),
        () = in_time => {
            tracing::error!(
                "another process of this node did not come within {COME_WITHIN:?}; the launcher must start one for \
                 each rank"
            );
            return Ok(ExitStatus::from_raw(1 << 8));
        }
    };
    let mut line = Line::of(accepted?);
    let mut is_told = false;
    let MeetingPlace { host, port } = place;
    line.say(&format!("start {host} {port}")).await?;
    loop {
        tokio::select! {
            heard = line.hear() => {
                let code = heard.and_then(|it| it.strip_prefix("ended ")?.parse::<u8>().ok());
                return Ok(ExitStatus::from_raw(code.map_or(KILLED, |code| i32::from(code) << 8)));
            }
            code = stopped(&mut stop), if !is_told => {
                is_told = true;
                line.say(&format!("stop {code}")).await?;
            }
        }
    }
}

/// The next process of this user that connects. Cancel safe.
async fn accept(listener: &LocalListener) -> io::Result<LocalStream> {
    loop {
        let stream = listener.accept().await?;
        if stream.is_of_same_user()? {
            return Ok(stream);
        }
        tracing::warn!("a process of another user was turned away as a rank of this node");
    }
}

async fn stopped(stop: &mut watch::Receiver<Option<u8>>) -> u8 {
    let code = stop.wait_for(Option::is_some).await.ok().and_then(|code| *code);
    match code {
        Some(code) => code,
        None => std::future::pending().await,
    }
}

/// Runs one rank beside the agent of the first process of its node.
pub(super) fn follow(
    arguments: &Run,
    node_dir: &RunDir,
    world: World,
    rank: Rank,
    caller: Option<&Caller>,
) -> Result<(), Failure> {
    let ending = command::finish(async {
        let grace = Duration::from_nanos(arguments.grace.0);
        let _deadline =
            deadline::on_signal(grace + deadline::CONCLUDED_WITHIN).map_err(Failure::work)?;
        let mut signals = Signals::listen().map_err(Failure::work)?;
        let socket = node_dir.ranks_socket();
        let ready = async {
            let met = meet(&socket, arguments.wait()).await;
            if met.is_ok() || caller.is_none() {
                return met;
            }
            // It may have been that of a training that was killed, which started again.
            meet(&socket, ANOTHER_ENDS_WITHIN).await.or(met)
        };
        let (line, place) = tokio::select! {
            ready = ready => ready.map_err(Failure::Work)?,
            signal = signals.next() => return Ok(Ending::Unstarted(signal)),
        };
        let variables = trainer_variables(node_dir).map_err(Failure::Work)?;
        let trainers = match caller {
            Some(caller) => caller.train(&variables),
            None => start(arguments, variables, world, rank, &place),
        };
        let grace = Duration::from_nanos(arguments.grace.0);
        train(trainers.map_err(Failure::Work)?, grace, line, &mut signals)
            .await
            .map_err(Failure::Work)
    })?;
    exit(ending, None, None)
}

fn start(
    arguments: &Run,
    shared: Vec<(&'static str, String)>,
    world: World,
    rank: Rank,
    place: &MeetingPlace,
) -> anyhow::Result<Trainers> {
    let own = processes::rank_variables(world, [rank].into_iter(), place)?;
    let variables = shared.into_iter().chain(own.into_iter().flatten()).collect();
    processes::start(&arguments.command, &[Trainer { variables }], arguments.json)
}

async fn train(
    trainers: Trainers,
    grace: Duration,
    line: Line<UnixStream>,
    signals: &mut Signals,
) -> anyhow::Result<Ending> {
    let Line { mut lines, mut writer } = line;
    let told = async {
        loop {
            // Without the first process the rank reads on alone.
            let Ok(Some(said)) = lines.next_line().await else { std::future::pending().await };
            if let Some(code) = said.strip_prefix("stop ").and_then(|code| code.parse().ok()) {
                return code;
            }
        }
    };
    let ending = trainers.wait(signals, grace, told).await?;
    let code = match ending {
        // The rank ended well after the signal.
        Ending::Stopped(_, None) => 0,
        _ => ending.code(),
    };
    let said = format!("ended {code}\n");
    if let Err(error) = timeout(SAID_WITHIN, writer.write_all(said.as_bytes())).await {
        tracing::debug!(%error, "the first process of this node does not listen");
    }
    Ok(ending)
}

/// The place where the ranks meet, as the first process of the node says it.
fn place(said: Option<String>) -> anyhow::Result<MeetingPlace> {
    let Some(said) = said else {
        bail!("the first process of this node has ended before its agent was ready");
    };
    let place = said.strip_prefix("start ").and_then(|it| it.split_once(' '));
    let place = place.and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
    let (host, port) = place.ok_or_else(|| anyhow!("{said:?} instead of `start HOST PORT`"))?;
    Ok(MeetingPlace { host, port })
}

/// The first process of the node, once its agent is ready.
async fn meet(socket: &Path, within: Duration) -> anyhow::Result<(Line<UnixStream>, MeetingPlace)> {
    let mut line = Line::of(connect(socket, within).await?);
    let place = place(line.hear().await)?;
    Ok((line, place))
}

async fn connect(socket: &Path, within: Duration) -> anyhow::Result<UnixStream> {
    let until = Instant::now() + within;
    loop {
        match UnixStream::connect(socket).await {
            Ok(stream) => return Ok(stream),
            // It is not there yet, or an earlier run has left it.
            Err(_) if Instant::now() < until => tokio::time::sleep(LOOK_EVERY).await,
            Err(error) => {
                let missing = || format!("{}: no agent of this node", socket.display());
                return Err(error).with_context(missing);
            }
        }
    }
}

/// A connection between two processes of a node.
#[derive(Debug)]
struct Line<S> {
    lines: Lines<BufReader<Take<ReadHalf<S>>>>,
    writer: WriteHalf<S>,
}

impl<S: AsyncRead + AsyncWrite> Line<S> {
    fn of(stream: S) -> Self {
        let (reader, writer) = split(stream);
        Self { lines: BufReader::new(reader.take(BYTES_MAX)).lines(), writer }
    }

    async fn say(&mut self, line: &str) -> io::Result<()> {
        self.writer.write_all(format!("{line}\n").as_bytes()).await
    }

    /// The next line; `None` once the other side is gone.
    async fn hear(&mut self) -> Option<String> {
        self.lines.next_line().await.ok().flatten()
    }
}
