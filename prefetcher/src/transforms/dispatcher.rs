//! The thread of the pool: it starts workers, gives tasks out and hears the answers.

use std::{
    collections::VecDeque,
    os::fd::AsFd as _,
    sync::{Arc, Weak, mpsc::SyncSender},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tierfeed_core::units::Nanoseconds;
use tierfeed_dataset::pace::Pace;
use tierfeed_numa_memory::Region;
use tierfeed_transform::{
    worker_process::WorkerProcess,
    worker_protocol::{ArenaId, Arrival, FromWorker, Outcome, PacketError, Request, ToWorker},
};

use super::{
    Settings, Task, TransformError,
    orders::Orders,
    seat::{Given, Seat, Worker},
};

/// Workers that may end over one sample.
const ENDED_MAX: u32 = 2;

/// How much longer than its own limit a worker gets: it ends itself first.
const GRACE: Duration = Duration::from_secs(2);

/// The first pause before a seat is taken again, if the worker before it did nothing; it doubles each time.
const PAUSE_MIN: Nanoseconds = Nanoseconds(10_000_000);

const PAUSE_MAX: Nanoseconds = Nanoseconds(5_000_000_000);

/// How long tasks wait while no worker starts; then they are refused until one does.
const WITHOUT_WORKER_MAX: Nanoseconds = Nanoseconds(10_000_000_000);

pub(super) struct Dispatcher {
    settings: Settings,
    orders: Arc<Orders>,
    /// Takes the outcome of the first start.
    report: Option<SyncSender<Result<(), String>>>,
    clock: Pace,
    seats: Vec<Seat>,
    /// Tasks of workers that ended, the most urgent first: at most as many as workers can have.
    returned: VecDeque<Given>,
    arenas: Vec<(ArenaId, Weak<Region>)>,
    arenas_made: u32,
    requests_made: u64,
    /// Workers in a row that ended without an answer.
    idle_ends: u32,
    failed_starts: u32,
    /// When a worker was last ready.
    ready_at: Nanoseconds,
    last_failure: String,
}

/// Why a worker is given up.
enum End {
    Gone,
    Broken(PacketError),
    /// Its answer does not fit what it was asked.
    Confused,
    Overdue,
    Unfit(String),
}

impl Dispatcher {
    pub(super) fn new(
        settings: Settings,
        orders: Arc<Orders>,
        report: SyncSender<Result<(), String>>,
    ) -> Self {
        let clock = Pace::start();
        let seats = (0..settings.workers.get()).map(|_| Seat::Empty(Nanoseconds(0))).collect();
        Self {
            settings,
            orders,
            report: Some(report),
            clock,
            seats,
            returned: VecDeque::new(),
            arenas: Vec::new(),
            arenas_made: 0,
            requests_made: 0,
            idle_ends: 0,
            failed_starts: 0,
            ready_at: Nanoseconds(0),
            last_failure: String::new(),
        }
    }

    /// Works until the orders are closed.
    pub(super) fn run(mut self) {
        while !self.orders.is_closed() {
            self.forget_arenas();
            self.fill_seats();
            self.refuse_without_workers();
            self.give_out();
            self.count_working();
            self.wait();
            self.orders.drain_wakeups();
            for seat in 0..self.seats.len() {
                self.hear(seat);
                self.end_overdue(seat);
            }
            if self.report.is_some() && self.failed_starts > 0 {
                let why = std::mem::take(&mut self.last_failure);
                self.report_start(Err(why));
                break;
            }
        }
        self.orders.close();
        // Each answers its operation.
        drop(self.orders.take_tasks());
    }

    fn report_start(&mut self, outcome: Result<(), String>) {
        if let Some(report) = self.report.take() {
            // The pool waits for it.
            let _ = report.send(outcome);
        }
    }

    fn fill_seats(&mut self) {
        let now = self.clock.now();
        for seat in 0..self.seats.len() {
            if !matches!(self.seats[seat], Seat::Empty(until) if until <= now) {
                continue;
            }
            match WorkerProcess::start(&self.settings.program, &self.settings.setup) {
                Ok(process) => {
                    self.orders.counts.lock().started += 1;
                    self.seats[seat] = Seat::Taken(Worker::new(process, now));
                }
                Err(error) => self.note_failed_start(seat, error.to_string()),
            }
        }
    }

    fn note_failed_start(&mut self, seat: usize, why: String) {
        self.failed_starts += 1;
        self.idle_ends += 1;
        tracing::warn!(why, "a transform worker does not start");
        self.last_failure = why;
        self.seats[seat] = self.pause();
    }

    /// A seat that is taken again at once, or later if the workers before did nothing.
    fn pause(&self) -> Seat {
        let doublings = self.idle_ends.saturating_sub(1);
        let pause = match self.idle_ends {
            0 => 0,
            _ => PAUSE_MIN.0.saturating_mul(1_u64.checked_shl(doublings).unwrap_or(u64::MAX)),
        };
        Seat::Empty(Nanoseconds(self.clock.now().0 + pause.min(PAUSE_MAX.0)))
    }

    fn refuse_without_workers(&mut self) {
        let now = self.clock.now();
        if self.seats.iter().any(|seat| seat.worker().is_some_and(|it| it.is_ready)) {
            self.ready_at = now;
        }
        if self.failed_starts == 0 || now.0 - self.ready_at.0 < WITHOUT_WORKER_MAX.0 {
            return;
        }
        let returned = self.returned.drain(..).map(|given| given.task);
        for task in returned.chain(self.orders.take_tasks()) {
            let error = TransformError::NoWorker(self.last_failure.clone());
            task.end(Err(error), Duration::ZERO);
        }
    }

    fn give_out(&mut self) {
        loop {
            let roomy = self.seats.iter().enumerate();
            let roomy = roomy.filter_map(|(seat, it)| Some((it.room()?, seat)));
            let Some((_, seat)) = roomy.min() else { return };
            let fresh = |task| Given { task, id: 0, ended: 0, is_replacing: false };
            let next = self.returned.pop_front().or_else(|| self.orders.take_task().map(fresh));
            let Some(given) = next else { return };
            self.give(seat, given);
        }
    }

    fn give(&mut self, seat: usize, mut given: Given) {
        self.requests_made += 1;
        given.id = self.requests_made;
        let arena = self.arena_of(&given.task.memory);
        let request = request(&given, arena);
        if let Err(error) = request.check(given.task.memory.len().0) {
            let error = TransformError::Failed(error.to_string());
            return given.task.end(Err(error), Duration::ZERO);
        }
        let (now, deadline) = (self.clock.now(), self.deadline());
        let Some(worker) = self.seats[seat].worker_mut() else {
            self.returned.push_front(given);
            return;
        };
        match worker.send(&given, arena, &request) {
            Ok(()) => {
                if worker.given.is_empty() {
                    worker.begun = now;
                }
                worker.given.push_back(given);
                worker.deadline.get_or_insert(deadline);
            }
            Err(error) => {
                self.returned.push_front(given);
                self.end_unreachable(seat, error);
            }
        }
    }

    /// When a worker that begins a task now should have ended it.
    fn deadline(&self) -> Nanoseconds {
        let limit = self.settings.setup.time_limit.saturating_add(GRACE);
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        Nanoseconds(self.clock.now().0.saturating_add(limit))
    }

    fn arena_of(&mut self, memory: &Arc<Region>) -> ArenaId {
        let known =
            self.arenas.iter().find(|(_, it)| std::ptr::eq(it.as_ptr(), Arc::as_ptr(memory)));
        if let Some((arena, _)) = known {
            return *arena;
        }
        let arena = ArenaId(self.arenas_made);
        self.arenas_made = self.arenas_made.wrapping_add(1);
        self.arenas.push((arena, Arc::downgrade(memory)));
        arena
    }

    fn forget_arenas(&mut self) {
        for forgotten in self.orders.take_forgotten() {
            let Some(at) = self.arenas.iter().position(|(_, it)| it.ptr_eq(&forgotten)) else {
                continue;
            };
            let (arena, _) = self.arenas.swap_remove(at);
            for seat in 0..self.seats.len() {
                let Some(worker) = self.seats[seat].worker_mut() else { continue };
                if worker.arenas.remove(&arena)
                    && let Err(error) = worker.process.send(&ToWorker::DropArena(arena), None)
                {
                    self.end_unreachable(seat, error);
                }
            }
        }
    }

    fn count_working(&self) {
        let working = self.seats.iter().filter(|seat| seat.worker().is_some_and(|it| it.is_ready));
        self.orders.counts.lock().working = working.count();
    }

    /// Waits for an order, a packet or a deadline.
    fn wait(&self) {
        let next = self.seats.iter().filter_map(Seat::wakes_at).min();
        let timeout = next.map(|at| {
            let left = Duration::from_nanos(at.0.saturating_sub(self.clock.now().0));
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            }
        });
        let workers = self.seats.iter().filter_map(Seat::worker);
        let sources = workers.map(|worker| worker.process.as_fd());
        let sources = std::iter::once(self.orders.as_fd()).chain(sources);
        let mut sources: Vec<_> =
            sources.map(|it| PollFd::from_borrowed_fd(it, PollFlags::IN)).collect();
        // An interrupted wait is one that ended early; other errors do not occur with these arguments.
        let _ = poll(&mut sources, timeout.as_ref());
    }

    /// Takes all packets of a worker.
    fn hear(&mut self, seat: usize) {
        loop {
            let Some(worker) = self.seats[seat].worker_mut() else { return };
            let end = match worker.process.receive() {
                Ok(Arrival::Packet(packet, _)) => match self.apply(seat, packet) {
                    None => continue,
                    Some(end) => end,
                },
                Ok(Arrival::Nothing) => return,
                Ok(Arrival::End) => End::Gone,
                Err(error) => End::Broken(error),
            };
            return self.end(seat, end);
        }
    }

    /// Returns why the worker is given up, if it is.
    fn apply(&mut self, seat: usize, packet: FromWorker) -> Option<End> {
        let (now, deadline) = (self.clock.now(), self.deadline());
        let worker = self.seats[seat].worker_mut()?;
        match packet {
            FromWorker::Ready if !worker.is_ready => {
                worker.is_ready = true;
                worker.deadline = None;
                self.failed_starts = 0;
                self.report_start(Ok(()));
                None
            }
            FromWorker::Ready => Some(End::Confused),
            FromWorker::Unfit(why) => Some(End::Unfit(why)),
            FromWorker::Replacing { id } => match worker.given.front_mut() {
                Some(given) if given.id == id && given.may_be_replaced() => {
                    given.is_replacing = true;
                    None
                }
                _ => Some(End::Confused),
            },
            FromWorker::Answer { id, outcome, took } => {
                if worker.given.front().is_none_or(|given| given.id != id) {
                    return Some(End::Confused);
                }
                let given = worker.given.pop_front()?;
                worker.deadline = worker.given.front().map(|_| deadline);
                let begun = std::mem::replace(&mut worker.begun, now);
                let held = Duration::from_nanos(now.0.saturating_sub(begun.0));
                self.orders.counts.lock().held += held;
                self.idle_ends = 0;
                self.answer(given.task, outcome, took);
                None
            }
        }
    }

    fn answer(&self, task: Task, outcome: Outcome, took: Duration) {
        let mut counts = self.orders.counts.lock();
        counts.worked += took;
        let outcome = match outcome {
            Outcome::Done { prepared_sum } => {
                counts.transformed += 1;
                Ok(prepared_sum)
            }
            Outcome::Untransformable(defect) => Err(TransformError::Untransformable(defect)),
            Outcome::Failed(why) => Err(TransformError::Failed(why)),
        };
        if let Err(error) = &outcome {
            counts.reject(error);
        }
        drop(counts);
        task.end(outcome, took);
    }

    fn end_overdue(&mut self, seat: usize) {
        let now = self.clock.now();
        let worker = self.seats[seat].worker();
        if worker.and_then(|it| it.deadline).is_some_and(|deadline| deadline <= now) {
            self.end(seat, End::Overdue);
        }
    }

    /// Ends a worker to which nothing can be sent. If it has ended, the packets that it sent before count,
    /// and its own reason.
    fn end_unreachable(&mut self, seat: usize, error: PacketError) {
        self.hear(seat);
        self.end(seat, End::Broken(error));
    }

    /// Ends a worker, if one is there. The task that it worked at is tried again or refused; its other tasks
    /// are given to other workers.
    fn end(&mut self, seat: usize, end: End) {
        if self.seats[seat].worker().is_none() {
            return;
        }
        let ended = std::mem::replace(&mut self.seats[seat], Seat::Empty(Nanoseconds(0)));
        let Seat::Taken(Worker { process, is_ready, mut given, .. }) = ended else { return };
        let limit = self.settings.setup.time_limit;
        let error = match end {
            End::Gone => match process.end_by_itself() {
                ending if ending.took_too_long() => TransformError::TimedOut(limit),
                ending if ending.is_out_of_memory() => {
                    TransformError::OutOfMemory(ending.to_string())
                }
                ending => TransformError::Crashed(ending.to_string()),
            },
            End::Broken(error) => TransformError::Crashed(format!(
                "broke its connection ({error}), and {}",
                process.end()
            )),
            End::Confused => TransformError::Crashed(format!(
                "answered what it was not asked, and {}",
                process.end()
            )),
            End::Overdue => {
                process.end();
                TransformError::TimedOut(limit)
            }
            End::Unfit(why) => {
                drop(process);
                return self.note_failed_start(seat, why);
            }
        };
        let ending = error.ending();
        if !is_ready {
            return self.note_failed_start(seat, format!("it {ending} at its start"));
        }
        let is_overdue = matches!(error, TransformError::TimedOut(_));
        let mut counts = self.orders.counts.lock();
        *(if is_overdue { &mut counts.timed_out } else { &mut counts.crashed }) += 1;
        drop(counts);
        if let Some(first) = given.pop_front() {
            let sample = first.task.sample.0;
            tracing::warn!(sample, ending, "a transform worker ended over a sample");
            if let Some(again) = self.blame(first, error) {
                given.push_front(again);
            }
        }
        given.into_iter().rev().for_each(|given| self.returned.push_front(given));
        self.seats[seat] = self.pause();
        self.idle_ends += 1;
    }

    /// The task over which a worker ended, if it is tried again.
    fn blame(&self, given: Given, error: TransformError) -> Option<Given> {
        if given.is_replacing {
            // Its row is written, and only the form behind it is missing.
            self.orders.counts.lock().transformed += 1;
            given.task.end(Ok(None), Duration::ZERO);
            return None;
        }
        let ended = given.ended + 1;
        if ended < ENDED_MAX {
            return Some(Given { ended, ..given });
        }
        self.orders.counts.lock().reject(&error);
        given.task.end(Err(error), Duration::ZERO);
        None
    }
}

impl Worker {
    /// Sends a request, and its memory before it if the worker does not map that yet.
    fn send(
        &mut self,
        given: &Given,
        arena: ArenaId,
        request: &Request,
    ) -> Result<(), PacketError> {
        if self.arenas.insert(arena) {
            let memory = &given.task.memory;
            let packet = ToWorker::Arena { arena, len: memory.len().0 };
            self.process.send(&packet, Some(memory.fd()))?;
        }
        self.process.send(&ToWorker::Request(*request), None)
    }
}

fn request(given: &Given, arena: ArenaId) -> Request {
    let Task { sample, epoch, slot, input_len, form, after, row, .. } = given.task;
    let (sample, epoch) = (sample.0.into(), epoch.0);
    Request { id: given.id, arena, slot, input_len, form, after, row, sample, epoch }
}
