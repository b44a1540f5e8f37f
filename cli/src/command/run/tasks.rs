//! The processes of a node, if the launcher starts one for each rank: the first holds the agent, and the others
//! start their rank once it is ready.
//!
//! They meet at a socket in the run directory of the node. Each side writes lines: the first process `start HOST
//! PORT` when the agent is ready, with the place where the ranks of the job meet, and `failed CODE` or `asked
//! SIGNAL` when the job ends; the others `ended STATUS` when their rank has, as `wait` of the kernel says it, and
//! behind it the signal after which it did.

use std::{
    io, os::unix::process::ExitStatusExt as _, path::Path, process::ExitStatus, sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use nix::sys::signal::Signal;
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

use super::{ANOTHER_ENDS_WITHIN, exit, trainer_variables};
use crate::{
    arguments::Run,
    caller::Caller,
    command, deadline,
    failure::Failure,
    processes::{self, Ending, MeetingPlace, RankEnd, Signals, Trainer, Trainers},
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
                return heard.and_then(|it| rank_end(&it)).unwrap_or(killed);
            }
            cause = stopped(&mut stop), if !is_told => {
                is_told = true;
                line.try_to_say(&word(cause)).await;
            }
        }
    }
}

fn word(cause: Cause) -> String {
    match cause {
        Cause::Failed(code) => format!("failed {code}"),
        Cause::Asked(signal) => format!("asked {signal}"),
    }
}

fn cause(word: &str) -> Option<Cause> {
    let (kind, number) = word.split_once(' ')?;
    let number = number.parse().ok()?;
    match kind {
        "failed" => Some(Cause::Failed(number)),
        "asked" => Some(Cause::Asked(number)),
        _ => None,
    }
}

fn ended(RankEnd { status, asked }: RankEnd) -> String {
    match asked {
        None => format!("ended {}", status.into_raw()),
        Some(signal) => format!("ended {} {}", status.into_raw(), signal as i32),
    }
}

fn rank_end(word: &str) -> Option<RankEnd> {
    let mut numbers = word.strip_prefix("ended ")?.split(' ').map(str::parse::<i32>);
    let status = ExitStatus::from_raw(numbers.next()?.ok()?);
    let asked = numbers.next().transpose().ok()?.map(Signal::try_from);
    Some(RankEnd { status, asked: asked.transpose().ok()? })
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

async fn stopped(stop: &mut watch::Receiver<Option<Cause>>) -> Cause {
    let cause = stop.wait_for(Option::is_some).await.ok().and_then(|cause| *cause);
    match cause {
        Some(cause) => cause,
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
        let mut met = None;
        let ready = async {
            let place = meet(&socket, arguments.wait(), &mut met).await;
            if place.is_ok() || caller.is_none() {
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
    mut line: Line<UnixStream>,
    signals: &mut Signals,
) -> anyhow::Result<Ending> {
    let Line { lines, writer } = &mut line;
    let told = async {
        loop {
            // Without the first process the rank reads on alone.
            let Ok(Some(said)) = lines.next_line().await else { std::future::pending().await };
            if let Some(cause) = cause(&said) {
                return cause;
            }
        }
    };
    let ending = trainers.wait(signals, grace, told).await?;
    say_end(writer, ending.of_rank()).await;
    Ok(ending)
}

async fn say_end(mut writer: impl AsyncWrite + Unpin, end: RankEnd) {
    let said = format!("{}\n", ended(end));
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

    #[test]
    fn what_one_side_says_is_what_the_other_hears() {
        for said in [Cause::Failed(7), Cause::Asked(10)] {
            assert_eq!(cause(&word(said)), Some(said));
        }
        for (status, asked) in [(7 << 8, None), (15, Some(Signal::SIGTERM)), (0, None)] {
            let end = RankEnd { status: ExitStatus::from_raw(status), asked };
            assert_eq!(rank_end(&ended(end)), Some(end));
        }
        assert_eq!(rank_end("ended 0 4711"), None);
        assert_eq!(cause("start 7"), None);
    }
}
