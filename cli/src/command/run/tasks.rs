//! The processes of a node, if the launcher starts one for each rank: the first holds the agent, and the others
//! start their rank once it is ready.
//!
//! They meet at a socket in the run directory of the node. Each side writes lines. Another process begins with
//! `rank NUMBER RUN`, its number on the node and what its run is called; the first one says `other` if it works
//! for another run, `start HOST PORT` when the agent is ready, with the place where the ranks of the job meet; and
//! both how ranks end ([`ending`]). Each rank has one place, and a process that comes back to it takes it over.

use std::{
    io, os::unix::process::ExitStatusExt as _, path::Path, pin::pin, process::ExitStatus,
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use tierfeed_core::{fleet::training::Cause, id::Rank, order::World};
use tierfeed_runtime::{
    run_dir::{LockOwner, RunDirError},
    transport::local_socket::{LocalListener, LocalSocket, LocalStream},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    net::UnixStream,
    sync::{mpsc, watch},
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    ANOTHER_ENDS_WITHIN, Dirs, Ranks, Run,
    ending::{self, Ending, RankEnd, stopped},
    exit,
    line::Line,
    meeting,
    trainer_variables::{self, MeetingPlace},
    trainers::Trainers,
};
use crate::{command, deadline, failure::Failure, signals::Signals};

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How often a process whose rank trains looks for a first one that was started again.
const LOOK_AGAIN_EVERY: Duration = Duration::from_secs(1);

/// How long a process looks before it says for what.
const SAID_AFTER: Duration = Duration::from_secs(10);

/// How long the first process waits for the others once the agent is ready: a launcher starts all at once.
const COME_WITHIN: Duration = Duration::from_secs(60);

/// How long a process that connected may take to say which it is.
const HEARD_WITHIN: Duration = Duration::from_secs(10);

/// How long a process that has ended tries to say so.
const SAID_WITHIN: Duration = Duration::from_secs(2);

const BYTES_MAX: u64 = 4096;

/// The end of a rank whose process is gone without a word.
const KILLED: i32 = 9;

/// What the first process says to one of another run.
const OTHER: &str = "other";

#[derive(Debug)]
pub(super) struct OtherTasks {
    socket: LocalSocket,
    count: u32,
    run: String,
}

impl OtherTasks {
    pub(super) fn listen(dirs: &Dirs, count: u32) -> io::Result<Self> {
        let socket = LocalSocket::bind(&dirs.node.ranks_socket())?;
        Ok(Self { socket, count, run: dirs.run.clone() })
    }

    /// Lets them start their ranks, which end with those of this process. The ranks of a caller end one by
    /// one, and may come as long as that of this process is there.
    pub(super) fn join(
        self,
        trainers: &mut Trainers,
        place: &MeetingPlace,
        ranks: Ranks<'_>,
    ) -> io::Result<()> {
        let listener = self.socket.into_listener()?;
        let mut doors = Vec::new();
        for _ in 0..self.count {
            let (door, arrivals) = mpsc::channel(1);
            doors.push(door);
            let (meet_at, stop) = (place.clone(), trainers.stopped());
            let seat = Seat { line: None, arrivals, meet_at, stop };
            match ranks {
                Ranks::Supervisor(_) => trainers.join(seat.serve(async {}, Return::Never)),
                Ranks::Caller(caller) => {
                    trainers.join(seat.serve(caller.gone(), Return::WhileTheCallerIsThere));
                }
            }
        }
        tokio::spawn(receive(listener, doors, self.run, trainers.stopped()));
        Ok(())
    }
}

/// Leads each process of this run to the place of its rank, until all ranks have ended or shall stop. From
/// then on no process is heard, so that those that come find out at once.
async fn receive(
    listener: LocalListener,
    doors: Vec<mpsc::Sender<Line<LocalStream>>>,
    run: String,
    mut stop: watch::Receiver<Option<Cause>>,
) {
    let all_closed = async {
        for door in &doors {
            door.closed().await;
        }
    };
    let mut all_closed = pin!(all_closed);
    loop {
        let stream = tokio::select! {
            accepted = accept(&listener) => accepted,
            _ = stopped(&mut stop) => return,
            () = &mut all_closed => return,
        };
        match stream {
            Ok(stream) => drop(tokio::spawn(lead_in(stream, doors.clone(), run.clone()))),
            Err(error) => {
                tracing::warn!(%error, "a process of this node cannot be heard");
                sleep(LOOK_EVERY).await;
            }
        }
    }
}

async fn lead_in(stream: LocalStream, doors: Vec<mpsc::Sender<Line<LocalStream>>>, run: String) {
    let mut line = Line::of(stream, BYTES_MAX);
    let Ok(said) = timeout(HEARD_WITHIN, line.hear()).await else {
        tracing::warn!(
            "a process of this node did not say which rank it is within {HEARD_WITHIN:?}"
        );
        return;
    };
    let said = said.unwrap_or_default();
    let (number, of) = said.strip_prefix("rank ").and_then(|it| it.split_once(' ')).unzip();
    let number = number.and_then(|number| number.parse::<usize>().ok());
    let door = number.and_then(|number| doors.get(number.checked_sub(1)?));
    if of != Some(&run) {
        tracing::warn!("a process of another run was turned away as a rank of this node");
        line.say(OTHER).await;
    } else if let Some(door) = door {
        // An error means that the rank has ended.
        let _ = door.send(line).await;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Return {
    Never,
    WhileTheCallerIsThere,
}

/// The place of one rank.
#[derive(Debug)]
struct Seat<S> {
    /// The process of the rank, while it is there.
    line: Option<Line<S>>,
    arrivals: mpsc::Receiver<Line<S>>,
    meet_at: MeetingPlace,
    stop: watch::Receiver<Option<Cause>>,
}

impl<S: AsyncRead + AsyncWrite> Seat<S> {
    /// Lets a rank start, and hears how it ends. Its process must come within a while after `waited`. What cannot be
    /// said is no failure: the rank may have ended meanwhile, and how it did can still be heard.
    async fn serve(
        self,
        waited: impl Future<Output = ()>,
        comes_back: Return,
    ) -> anyhow::Result<RankEnd> {
        let mut waited = pin!(waited);
        let Self { mut line, mut arrivals, meet_at: MeetingPlace { host, port }, mut stop } = self;
        let (mut has_come, mut has_waited, mut is_told) = (line.is_some(), false, false);
        let mut come_until = None;
        let start = format!("start {host} {port}");
        let of_code = |code| RankEnd { status: ExitStatus::from_raw(code << 8), asked: None };
        loop {
            tokio::select! {
                Some(newer) = arrivals.recv() => {
                    line.insert(newer).say(&start).await;
                    (has_come, come_until) = (true, None);
                }
                heard = heard(&mut line) => {
                    line = None;
                    if comes_back == Return::Never {
                        let killed = RankEnd { status: ExitStatus::from_raw(KILLED), asked: None };
                        return Ok(heard.and_then(|it| ending::rank_end(&it)).unwrap_or(killed));
                    }
                    if has_waited || is_told {
                        return Ok(of_code(0));
                    }
                }
                () = &mut waited, if !has_waited => {
                    has_waited = true;
                    if line.is_none() && has_come {
                        return Ok(of_code(0));
                    }
                    come_until = line.is_none().then(|| Instant::now() + COME_WITHIN);
                }
                () = deadline::reached(come_until) => {
                    tracing::error!(
                        "another process of this node did not come within {COME_WITHIN:?}; the launcher must start \
                         one for each rank"
                    );
                    return Ok(of_code(i32::from(comes_back == Return::Never)));
                }
                cause = stopped(&mut stop), if !is_told => {
                    is_told = true;
                    match &mut line {
                        Some(line) => line.say(&ending::word(cause)).await,
                        None if comes_back == Return::Never => {
                            return Ok(of_code(i32::from(cause.code())));
                        }
                        None => return Ok(of_code(0)),
                    }
                }
            }
        }
    }
}

/// The next line of the process of a rank, once there is one; `None` if it is gone.
async fn heard<S: AsyncRead + AsyncWrite>(line: &mut Option<Line<S>>) -> Option<String> {
    match line {
        Some(line) => line.hear().await,
        None => std::future::pending().await,
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
    dirs: &Dirs,
    world: World,
    rank: Rank,
    ranks: Ranks<'_>,
    told: Option<Signals>,
) -> Result<(), Failure> {
    let ending = command::finish(async {
        let (mut signals, _deadline) = ranks.signals(told)?;
        let hello = format!("rank {} {}", rank.0 % world.ranks_per_node, dirs.run);
        let first = First { dirs, hello };
        let mut met = None;
        let place = tokio::select! {
            place = first.meet(arguments.wait(), &mut met) => place?,
            signal = signals.next() => {
                let ending = Ending::Unstarted(signal);
                if let Some(line) = met {
                    say_end(line.writer, ending.of_rank()).await;
                }
                return Ok(ending);
            }
        };
        let line = met.context("no first process of this node")?;
        let variables = trainer_variables::of_agent(&dirs.node)?;
        let (trainers, again) = match ranks {
            Ranks::Caller(caller) => (caller.train(&variables), Some(&first)),
            Ranks::Supervisor(supervisor) => {
                let own = trainer_variables::rank_variables(world, [rank].into_iter(), &place)?;
                let own = own.into_iter().flatten();
                (supervisor.train(&[variables.into_iter().chain(own).collect()]), None)
            }
        };
        train(trainers?, line, again, &mut signals).await.map_err(Failure::Work)
    })?;
    exit(ending, None, None)
}

/// Waits for the end of a rank, and tells the first process. `again` looks for a first process that was
/// started again.
async fn train(
    trainers: Trainers,
    mut line: Line<UnixStream>,
    again: Option<&First<'_>>,
    signals: &mut Signals,
) -> anyhow::Result<Ending> {
    let told = async {
        loop {
            match (line.hear().await, again) {
                (Some(said), _) => {
                    if let Some(cause) = ending::cause(&said) {
                        return cause;
                    }
                }
                (None, Some(first)) => line = first.meet_again().await,
                // Without the first process the rank reads on alone.
                (None, None) => std::future::pending().await,
            }
        }
    };
    let ending = trainers.wait(signals, None, told).await?;
    say_end(line.writer, ending.of_rank()).await;
    Ok(ending)
}

async fn say_end(mut writer: impl AsyncWrite + Unpin, end: RankEnd) {
    let said = format!("{}\n", ending::ended(end));
    if let Err(error) = timeout(SAID_WITHIN, writer.write_all(said.as_bytes())).await {
        tracing::debug!(%error, "the first process of this node does not listen");
    }
}

#[derive(Debug)]
struct First<'a> {
    dirs: &'a Dirs,
    /// The line that it is told first.
    hello: String,
}

#[derive(Debug)]
enum Missed {
    /// It is not there, or is ending.
    Gone(anyhow::Error),
    /// The first process of another run is there.
    Other,
}

impl First<'_> {
    /// Meets it once its agent is ready. It may not be there yet, or that of an earlier run may be ending.
    async fn meet(
        &self,
        within: Duration,
        met: &mut Option<Line<UnixStream>>,
    ) -> Result<MeetingPlace, Failure> {
        let (began, mut others_since, mut is_said) = (Instant::now(), None, false);
        let until = began + within;
        let path = self.dirs.node.path();
        loop {
            let missed = match timeout_at(until, self.ask(met)).await {
                Ok(Ok(place)) => return Ok(place),
                Ok(Err(missed)) => missed,
                Err(_) => Missed::Gone(anyhow!("its agent was not ready within {within:?}")),
            };
            let failed = [&self.dirs.node, &self.dirs.job]
                .into_iter()
                .find_map(|it| meeting::failed_since(it, self.dirs.arrived));
            if let Some(failure) = failed {
                return Err(failure);
            }
            let now = Instant::now();
            match missed {
                Missed::Other => {
                    let since = *others_since.get_or_insert(now);
                    if now >= since + ANOTHER_ENDS_WITHIN {
                        let (path, owner) = (path.to_owned(), LockOwner::Run);
                        return Err(Failure::input(RunDirError::Busy { path, owner }));
                    }
                }
                Missed::Gone(error) if now >= until => {
                    let missing = format!("{}: no agent of this node", path.display());
                    return Err(Failure::Work(error.context(missing)));
                }
                Missed::Gone(error) if !is_said && now >= began + SAID_AFTER => {
                    tracing::warn!(
                        "waits for the first process of this node in {} ({error}); if ranks make loaders, all make \
                         the same ones in the same order",
                        path.display()
                    );
                    is_said = true;
                }
                Missed::Gone(_) => {}
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Meets one that was started again.
    async fn meet_again(&self) -> Line<UnixStream> {
        loop {
            sleep(LOOK_AGAIN_EVERY).await;
            let mut met = None;
            if self.ask(&mut met).await.is_ok()
                && let Some(line) = met
            {
                return line;
            }
        }
    }

    async fn ask(&self, met: &mut Option<Line<UnixStream>>) -> Result<MeetingPlace, Missed> {
        *met = None;
        let connected = connect(&self.dirs.node.ranks_socket()).await.map_err(Missed::Gone)?;
        let line = met.insert(connected);
        line.say(&self.hello).await;
        match line.hear().await.as_deref() {
            Some(OTHER) => Err(Missed::Other),
            said => place(said).map_err(Missed::Gone),
        }
    }
}

async fn connect(socket: &Path) -> anyhow::Result<Line<UnixStream>> {
    let connected = UnixStream::connect(socket).await;
    Ok(Line::of(connected.with_context(|| socket.display().to_string())?, BYTES_MAX))
}

/// The place where the ranks meet, as the first process of the node says it.
fn place(said: Option<&str>) -> anyhow::Result<MeetingPlace> {
    let Some(said) = said else {
        bail!("it has ended before its agent was ready");
    };
    let place = said.strip_prefix("start ").and_then(|it| it.split_once(' '));
    let place = place.and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
    let (host, port) = place.ok_or_else(|| anyhow!("{said:?} instead of `start HOST PORT`"))?;
    Ok(MeetingPlace { host, port })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use nix::sys::signal::Signal;
    use tokio::task::JoinHandle;

    use super::*;

    fn at() -> MeetingPlace {
        MeetingPlace { host: "one".to_owned(), port: 7 }
    }

    /// What the first process hears of a rank whose process has `said` its last word and is gone.
    async fn heard_of(said: &str, stop: Option<Cause>) -> RankEnd {
        let (mut rank, first) = UnixStream::pair().unwrap();
        rank.write_all(said.as_bytes()).await.unwrap();
        drop(rank);
        let (_sender, stop) = watch::channel(stop);
        let (_door, arrivals) = mpsc::channel(1);
        let seat = Seat { line: Some(Line::of(first, BYTES_MAX)), arrivals, meet_at: at(), stop };
        seat.serve(std::future::pending(), Return::Never).await.unwrap()
    }

    #[tokio::test]
    async fn a_rank_that_ended_before_it_could_be_told_anything_ended_as_it_said() {
        let asked = Some(Cause::Asked(15));
        // Which of two events comes first is left to chance.
        for _ in 0..100 {
            let well = RankEnd { status: ExitStatus::default(), asked: Some(Signal::SIGTERM) };
            assert_eq!(heard_of("ended 0 15\n", asked).await, well);
            let killed = RankEnd { status: ExitStatus::from_raw(KILLED), asked: None };
            assert_eq!(heard_of("", asked).await, killed);
        }
    }

    async fn come(socket: &Path, hello: &str) -> (Line<UnixStream>, Option<String>) {
        let mut line = connect(socket).await.unwrap();
        line.say(hello).await;
        let heard = line.hear().await;
        (line, heard)
    }

    /// The places of ranks behind a socket, and how the ranks end.
    fn listens(
        count: usize,
    ) -> (tempfile::TempDir, PathBuf, Vec<JoinHandle<RankEnd>>, watch::Sender<Option<Cause>>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ranks.sock");
        let listener = LocalSocket::bind(&path).unwrap().into_listener().unwrap();
        let (sender, stop) = watch::channel(None);
        let (mut doors, mut ends) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let (door, arrivals) = mpsc::channel(1);
            doors.push(door);
            let seat = Seat { line: None, arrivals, meet_at: at(), stop: stop.clone() };
            let served = seat.serve(std::future::pending(), Return::Never);
            ends.push(tokio::spawn(async move { served.await.unwrap() }));
        }
        tokio::spawn(receive(listener, doors, "mine".to_owned(), stop));
        (folder, path, ends, sender)
    }

    #[tokio::test]
    async fn each_rank_has_one_place_and_a_process_that_comes_back_to_it_takes_it_over() {
        let (_folder, socket, ends, _stop) = listens(2);
        let (mut first, heard) = come(&socket, "rank 1 mine").await;
        assert_eq!(heard.as_deref(), Some("start one 7"));
        let (mut again, heard) = come(&socket, "rank 1 mine").await;
        assert_eq!(heard.as_deref(), Some("start one 7"));
        assert_eq!(first.hear().await, None, "its place has another");
        let (mut second, heard) = come(&socket, "rank 2 mine").await;
        assert_eq!(heard.as_deref(), Some("start one 7"), "its own place was left");
        for line in [&mut again, &mut second] {
            line.say("ended 0").await;
        }
        for end in ends {
            assert!(end.await.unwrap().status.success());
        }
    }

    #[tokio::test]
    async fn who_is_of_another_run_or_has_no_place_is_turned_away() {
        let (_folder, socket, _ends, _stop) = listens(1);
        assert_eq!(come(&socket, "rank 1 another").await.1.as_deref(), Some(OTHER));
        for nonsense in ["rank 2 mine", "rank 0 mine", "rank -1 mine", "rank mine", "1 mine", ""] {
            assert!(!matches!(come(&socket, nonsense).await.1.as_deref(), Some("start one 7")));
        }
        assert_eq!(come(&socket, "rank 1 mine").await.1.as_deref(), Some("start one 7"));
    }
}
