//! The processes of a node, if the launcher starts one for each rank: the first holds the agent, and the others
//! start their rank once it is ready.
//!
//! They meet at a socket in the run directory of the node. Each side writes lines: the first process `start HOST
//! PORT` when the agent is ready, with the place where the ranks of the job meet, and both the [`words`] when ranks
//! end.

use std::{
    io, os::unix::process::ExitStatusExt as _, path::Path, process::ExitStatus, sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use tierfeed_core::{fleet::training::Cause, id::Rank, order::World};
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

use super::{ANOTHER_ENDS_WITHIN, Ranks, exit, trainer_variables};
use crate::{
    arguments::Run,
    command,
    ending::{Ending, RankEnd},
    failure::Failure,
    processes::{self, MeetingPlace},
    signals::Signals,
    supervisor::stopped,
    trainers::Trainers,
    words,
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
        ranks: Ranks<'_>,
    ) -> io::Result<()> {
        let listener = Arc::new(self.socket.into_listener()?);
        for _ in 0..self.count {
            let (listener, stop) = (Arc::clone(&listener), trainers.stopped());
            match ranks {
                Ranks::Supervisor(_) => {
                    let in_time = sleep(COME_WITHIN);
                    let ended = other_task(listener, place.clone(), stop, in_time);
                    trainers.join(async move {
                        ended.await.context("waiting for another process of this node failed")
                    });
                }
                Ranks::Caller(caller) => {
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
                        Ok(RankEnd { status: ExitStatus::default(), asked: None })
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
    mut stop: watch::Receiver<Option<Cause>>,
    in_time: impl Future<Output = ()>,
) -> io::Result<RankEnd> {
    let accepted = tokio::select! {
        accepted = accept(&listener) => accepted,
        cause = stopped(&mut stop) => {
            let status = ExitStatus::from_raw(i32::from(cause.code()) << 8);
            return Ok(RankEnd { status, asked: None });
        }
        () = in_time => {
            tracing::error!(
                "another process of this node did not come within {COME_WITHIN:?}; the launcher must start one for \
                 each rank"
            );
            return Ok(RankEnd { status: ExitStatus::from_raw(1 << 8), asked: None });
        }
    };
    Ok(serve(Line::of(accepted?), &place, stop).await)
}

/// Lets another process start its rank, and hears how it ends. What cannot be said is no failure: the rank may
/// have ended meanwhile, and how it did can still be heard.
async fn serve<S: AsyncRead + AsyncWrite>(
    mut line: Line<S>,
    MeetingPlace { host, port }: &MeetingPlace,
    mut stop: watch::Receiver<Option<Cause>>,
) -> RankEnd {
    let mut is_told = false;
    line.try_to_say(&format!("start {host} {port}")).await;
    loop {
        tokio::select! {
            heard = line.hear() => {
                let killed = RankEnd { status: ExitStatus::from_raw(KILLED), asked: None };
                return heard.and_then(|it| words::rank_end(&it)).unwrap_or(killed);
            }
            cause = stopped(&mut stop), if !is_told => {
                is_told = true;
                line.try_to_say(&words::word(cause)).await;
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

/// Runs one rank beside the agent of the first process of its node.
pub(super) fn follow(
    arguments: &Run,
    node_dir: &RunDir,
    world: World,
    rank: Rank,
    ranks: Ranks<'_>,
    told: Option<Signals>,
) -> Result<(), Failure> {
    let ending = command::finish(async {
        let (mut signals, _deadline) = ranks.signals(told).map_err(Failure::work)?;
        let socket = node_dir.ranks_socket();
        let mut met = None;
        let ready = async {
            let place = meet(&socket, arguments.wait(), &mut met).await;
            if place.is_ok() || ranks.are_started() {
                return place;
            }
            // It may have been that of a training that was killed, which started again.
            meet(&socket, ANOTHER_ENDS_WITHIN, &mut met).await.or(place)
        };
        let place = tokio::select! {
            ready = ready => ready.map_err(Failure::Work)?,
            signal = signals.next() => {
                let ending = Ending::Unstarted(signal);
                if let Some(line) = met {
                    say_end(line.writer, ending.of_rank()).await;
                }
                return Ok(ending);
            }
        };
        let line = met.ok_or_else(|| Failure::Work(anyhow!("no first process of this node")))?;
        let variables = trainer_variables(node_dir).map_err(Failure::Work)?;
        let trainers = match ranks {
            Ranks::Caller(caller) => caller.train(&variables),
            Ranks::Supervisor(supervisor) => {
                let own = processes::rank_variables(world, [rank].into_iter(), &place);
                let own = own.map_err(Failure::Work)?.into_iter().flatten();
                supervisor.train(&[variables.into_iter().chain(own).collect()])
            }
        };
        train(trainers.map_err(Failure::Work)?, line, &mut signals).await.map_err(Failure::Work)
    })?;
    exit(ending, None, None)
}

async fn train(
    trainers: Trainers,
    mut line: Line<UnixStream>,
    signals: &mut Signals,
) -> anyhow::Result<Ending> {
    let Line { lines, writer } = &mut line;
    let told = async {
        loop {
            // Without the first process the rank reads on alone.
            let Ok(Some(said)) = lines.next_line().await else { std::future::pending().await };
            if let Some(cause) = words::cause(&said) {
                return cause;
            }
        }
    };
    let ending = trainers.wait(signals, None, told).await?;
    say_end(writer, ending.of_rank()).await;
    Ok(ending)
}

async fn say_end(mut writer: impl AsyncWrite + Unpin, end: RankEnd) {
    let said = format!("{}\n", words::ended(end));
    if let Err(error) = timeout(SAID_WITHIN, writer.write_all(said.as_bytes())).await {
        tracing::debug!(%error, "the first process of this node does not listen");
    }
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

/// Meets the first process of the node, and waits until its agent is ready.
async fn meet(
    socket: &Path,
    within: Duration,
    met: &mut Option<Line<UnixStream>>,
) -> anyhow::Result<MeetingPlace> {
    let line = met.insert(Line::of(connect(socket, within).await?));
    place(line.hear().await)
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

    /// Says a line to the other side, if it is there.
    async fn try_to_say(&mut self, line: &str) {
        if let Err(error) = self.writer.write_all(format!("{line}\n").as_bytes()).await {
            tracing::debug!(%error, "another process of this node does not listen");
        }
    }

    /// The next line; `None` once the other side is gone.
    async fn hear(&mut self) -> Option<String> {
        self.lines.next_line().await.ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::Signal;

    use super::*;

    const AT: &str = "start localhost 29500";

    /// What the first process hears of a rank whose process has `said` its last word and is gone.
    async fn heard(said: &str, stop: Option<Cause>) -> RankEnd {
        let (mut rank, first) = UnixStream::pair().unwrap();
        rank.write_all(said.as_bytes()).await.unwrap();
        drop(rank);
        let (_sender, stop) = watch::channel(stop);
        serve(Line::of(first), &place(Some(AT.to_owned())).unwrap(), stop).await
    }

    #[tokio::test]
    async fn a_rank_that_ended_before_it_could_be_told_anything_ended_as_it_said() {
        let asked = Some(Cause::Asked(15));
        // Which of two events comes first is left to chance.
        for _ in 0..100 {
            let well = RankEnd { status: ExitStatus::default(), asked: Some(Signal::SIGTERM) };
            assert_eq!(heard("ended 0 15\n", asked).await, well);
            let killed = RankEnd { status: ExitStatus::from_raw(KILLED), asked: None };
            assert_eq!(heard("", asked).await, killed);
        }
    }
}
