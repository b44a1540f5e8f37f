use tierfeed_core::{
    fleet::{
        State, first_schedule,
        members::{PeerLink, Standing},
    },
    id::NodeId,
    session::{Busy, EpochProgress, StallBreakdown},
    tier::Kind,
};

use super::*;
use crate::observe::status::TierStatus;

const SECOND: Nanoseconds = Nanoseconds(1_000_000_000);

fn node(batches: u64, stall_ms: u64) -> NodeStatus {
    NodeStatus {
        node: 0,
        generation: 0,
        state: State::Alive,
        tiers: Vec::<TierStatus>::new(),
        schedule: {
            let offer = crate::schedule::tests::offer(None);
            let schedule = first_schedule::of(&crate::schedule::tests::inputs(), &offer).unwrap();
            crate::observe::schedule::ScheduleEntry::of(&schedule, &offer)
        },
        observed: None,
        peers: Vec::new(),
        batches,
        samples: batches * 32,
        handed_over_bytes: batches * 1_000_000,
        cold_read_bytes: batches * 250_000,
        page_cache_read_bytes: 0,
        stall_ns: stall_ms * 1_000_000,
        faults: 3,
        transforms: None,
        lent_chunks: 0,
        available: None,
    }
}

fn status(node: NodeStatus) -> JobStatus {
    let (job, nodes, draining, batches) = ("resnet50".to_owned(), 2, false, 1000);
    JobStatus { job, nodes, draining, batches, joined: vec![node] }
}

fn busy(running: u32) -> Busy {
    let mut busy = Busy::default();
    (0..running).for_each(|_| busy.begun(Nanoseconds(0)));
    busy
}

/// Waits for `steps` batches, of which the last took `waited` seconds.
fn waits(steps: u64, waited: f64) -> Waits {
    let mut waits = Waits::default();
    (1..steps).for_each(|_| waits.record(Nanoseconds(0)));
    waits.record(nanoseconds(waited));
    waits
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few seconds")]
fn nanoseconds(seconds: f64) -> Nanoseconds {
    Nanoseconds((seconds * 1e9).round() as u64)
}

/// An agent of two ranks that took `steps` batches each and waited `waited` seconds.
fn agent(steps: u64, waited: f64, cold: u64) -> NodeFigures {
    let causes = StallBreakdown {
        cold: nanoseconds(waited),
        keep: nanoseconds(0.5),
        ..StallBreakdown::none(1)
    };
    NodeFigures {
        job: "resnet50".to_owned(),
        policy: "gap".to_owned(),
        backend: "io_uring".to_owned(),
        total: EpochProgress {
            demand: Bytes(steps),
            cold: Bytes(cold),
            from_tier: vec![Bytes(5_000_000)],
            late: 7,
            causes,
            ..EpochProgress::default()
        },
        fault_count: 1,
        tier_faults: 2,
        waits: [(0, waits(steps, waited)), (1, waits(steps, 0.0))].into(),
        ready: [(0, 4), (1, 6)].into(),
        leases: [(0, 1), (1, 2)].into(),
        kinds: vec![Kind::MainMemory],
        levels: vec![(Bytes::mib(2), Bytes::mib(1))],
        tiers_busy: vec![busy(2)],
        cold_busy: busy(16),
        staging_held: Bytes::mib(1),
        job_memory: Bytes::mib(3),
        own_memory: Bytes::mib(2),
        memory_budget: Bytes::mib(4),
        ..NodeFigures::default()
    }
}

fn look(second: u64, status: Option<JobStatus>, agent: Option<NodeFigures>) -> Snapshot {
    Snapshot { at: Nanoseconds(second * SECOND.0), status, agent }
}

/// The words of the line that begins with `first`.
#[track_caller]
fn words(lines: &[String], first: &str) -> Vec<String> {
    let line = lines.iter().find(|line| line.split("  ").next().unwrap().trim() == first);
    let line = line.unwrap_or_else(|| panic!("no line {first:?} in {lines:#?}"));
    line.split("  ").map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[test]
fn rates_are_of_the_time_between_two_looks() {
    let before = look(10, Some(status(node(100, 0))), Some(agent(50, 1.0, 4_000_000)));
    let now = look(12, Some(status(node(140, 500))), Some(agent(70, 1.5, 54_000_000)));
    let lines = frame(Some(&before), &now);
    assert_eq!(
        lines[0],
        "resnet50: 1 of 2 nodes, batch 140 of 1000 (14.0 %), 43 s left at this rate"
    );
    // 40 batches of 32 samples, 1 MB and 250 kB cold in 2 s; half a second of waiting.
    let row = ["0", "alive", "140", "640.0", "20 MB/s", "5 MB/s", "25.0 %", "3"];
    assert_eq!(words(&lines[1..4], "0"), row);
    assert_eq!(words(&lines[4..], "0"), ["0", "70", "10.0", "4", "1", "25.0 %"]);
    assert_eq!(words(&lines[4..], "1"), ["1", "70", "10.0", "6", "2", "0.0 %"]);
    let main = ["main-memory", "2 MiB", "1 MiB", "50.0 %", "0 B/s", "0 B/s", "2"];
    assert_eq!(words(&lines, "main-memory"), main);
    assert_eq!(words(&lines, "cold"), ["cold", "-", "-", "-", "25 MB/s", "0 B/s", "16"]);
    for line in [
        "agent of this node: resnet50, policy gap, cold store read by io_uring",
        "memory: 3 MiB held of 4 MiB that the job may (75.0 %), 1 MiB of it staging; 2 MiB beside it \
         of the agent itself",
        "waiting now: cold-store 12.5 % of the time",
    ] {
        assert!(lines.iter().any(|other| other == line), "no {line:?} in {lines:#?}");
    }
    let faults =
        "7 late batches, 0 copied out, 0 B read in vain, 1 unreadable samples, 2 faults of tiers";
    assert_eq!(lines.last().unwrap(), faults);
}

#[test]
fn what_no_column_would_show_is_no_wait() {
    let before = look(10, None, Some(agent(50, 1.0, 0)));
    let lines = frame(Some(&before), &look(12, None, Some(agent(70, 1.000_1, 0))));
    assert_eq!(words(&lines, "0")[5], "0.0 %");
    assert!(lines.iter().any(|line| line == "waiting now: for nothing"), "{lines:#?}");
}

#[test]
fn one_look_has_no_rates_and_says_what_was_waited_for_since_the_start() {
    let lines = frame(None, &look(1, Some(status(node(100, 9))), Some(agent(50, 1.5, 4))));
    assert!(!lines[0].contains("left"), "{lines:#?}");
    assert_eq!(words(&lines[1..4], "0")[3..7], ["-", "-", "-", "-"]);
    assert_eq!(words(&lines, "main-memory")[4..6], ["-", "-"]);
    let waits = "waiting since the start: cold-store 1.50 s, keep 0.50 s";
    assert!(lines.iter().any(|line| line == waits), "{lines:#?}");
}

#[test]
fn a_process_that_counts_from_zero_again_has_no_rates() {
    let before = look(1, Some(status(node(100, 9))), Some(agent(50, 1.5, 4_000)));
    let overtaken = NodeStatus { generation: 1, ..node(300, 0) };
    let lines = frame(Some(&before), &look(2, Some(status(overtaken)), None));
    assert_eq!(words(&lines[1..4], "0")[3], "-", "another process counted that");
    let restarted = NodeStatus { generation: 1, ..node(3, 0) };
    let lines = frame(Some(&before), &look(2, Some(status(restarted)), Some(agent(2, 0.1, 10))));
    assert_eq!(words(&lines[1..4], "0")[3..7], ["-", "-", "-", "-"]);
    assert_eq!(words(&lines[4..], "0"), ["0", "2", "-", "4", "1", "-"]);
    assert!(!lines[0].contains("left"), "{lines:#?}");
}

#[test]
fn a_node_without_an_agent_and_an_agent_without_a_manager_are_shown() {
    let lines = frame(None, &look(1, Some(status(node(1, 0))), None));
    assert_eq!(lines.len(), 4, "{lines:#?}");
    let lines = frame(None, &look(1, None, Some(agent(1, 0.0, 0))));
    assert!(lines[0].starts_with("agent of this node: "), "{lines:#?}");
    assert!(frame(None, &Snapshot::default()).is_empty());
}

#[test]
fn an_agent_that_tells_nothing_makes_no_line_panic_and_many_ranks_no_endless_screen() {
    let before = look(1, None, Some(NodeFigures::default()));
    let now = look(1, None, Some(NodeFigures::default()));
    assert!(!frame(Some(&before), &now).is_empty());
    let ready = (0..100).map(|rank| (rank, 1)).collect();
    let many = NodeFigures { ready, ..NodeFigures::default() };
    let lines = frame(None, &look(1, None, Some(many)));
    assert!(lines.iter().any(|line| line == "and 84 more ranks"), "{lines:#?}");
    assert!(lines.iter().position(|line| line.starts_with("10 ")).unwrap() > 10, "{lines:#?}");
}

#[test]
fn of_many_nodes_the_first_get_a_line() {
    let mut many = status(node(1, 0));
    assert!(!frame(None, &look(1, Some(many.clone()), None)).concat().contains("more nodes"));
    many.joined = (0..40).map(|number| NodeStatus { node: number, ..node(1, 0) }).collect();
    let lines = frame(None, &look(1, Some(many), None));
    assert_eq!(lines.last().unwrap(), "and 8 more nodes; `tierfeed status` lists all");
    assert_eq!(lines.iter().filter(|line| line.contains("alive")).count(), 32);
}

#[test]
fn requests_to_a_bucket_get_a_line_of_their_own() {
    let requests = Some(ObjectFigures { requests: 9, hedges: 2, ..ObjectFigures::default() });
    let lines = frame(None, &look(1, None, Some(NodeFigures { requests, ..agent(1, 0.0, 0) })));
    assert_eq!(lines.last().unwrap(), "requests: 9, 0 repeated, 2 hedged, 0 of these in time");
}

#[test]
fn transform_workers_get_a_line_with_their_rate_and_how_they_ended() {
    let agent = |stored: u64, prepared: u64, work: f64| {
        let count = |samples, failed, seconds| TransformCount {
            samples,
            failed,
            time: nanoseconds(seconds),
            ..TransformCount::default()
        };
        let transforms = [count(stored, 4, work), count(prepared, 0, 0.0)];
        Some(NodeFigures {
            total: EpochProgress { transforms, ..EpochProgress::default() },
            transforms: Some(Counts { working: 2, crashed: 3, timed_out: 1, ..Counts::default() }),
            ..NodeFigures::default()
        })
    };
    let (before, now) = (look(0, None, agent(100, 0, 1.0)), look(2, None, agent(500, 400, 4.0)));
    let line = frame(Some(&before), &now).into_iter().find(|it| it.starts_with("transforms"));
    assert_eq!(
        line.unwrap(),
        "transforms: 400.0 samples/s by 2 workers on 1.5 cores; 4 became no row; 3 workers crashed, 1 took too \
         long"
    );
    let first = frame(None, &now).into_iter().find(|it| it.starts_with("transforms")).unwrap();
    assert!(first.contains(" - samples/s by 2 workers on - cores"), "{first}");
    let without = frame(None, &look(0, None, Some(NodeFigures::default())));
    assert!(!without.iter().any(|it| it.starts_with("transforms")));
}

#[test]
fn rates_are_of_two_seconds_however_often_one_looks() {
    let mut history = History::default();
    let mut samples_per_s = |tenths: u64, batches: u64| {
        let at = Nanoseconds(tenths * 100_000_000);
        let lines =
            history.frame(Snapshot { at, status: Some(status(node(batches, 0))), agent: None });
        words(&lines, "0")[3].clone()
    };
    assert_eq!(samples_per_s(0, 0), "-");
    // 32 samples a batch, and nothing new between two reports.
    assert_eq!(samples_per_s(5, 10), "640.0");
    assert_eq!(samples_per_s(8, 10), "400.0", "over what there is");
    assert_eq!(samples_per_s(25, 60), "800.0", "10 to 60 in two seconds");
    assert_eq!(samples_per_s(100, 60), "0.0", "looks that are older are forgotten");
}

#[test]
fn nodes_whose_trainers_wait_longest_come_first() {
    let both = |stalls: [u64; 2]| {
        let nodes =
            (0..).zip(stalls).map(|(number, stall)| NodeStatus { node: number, ..node(10, stall) });
        JobStatus { joined: nodes.collect(), ..status(node(0, 0)) }
    };
    let lines =
        frame(Some(&look(1, Some(both([100, 100])), None)), &look(2, Some(both([150, 900])), None));
    let numbers: Vec<&str> = lines
        .iter()
        .filter(|line| line.contains("alive"))
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    assert_eq!(numbers, ["1", "0"], "{lines:#?}");
}

#[test]
fn links_of_nodes_come_by_their_rates_with_those_that_are_not_asked() {
    let scheduled = node(10, 0).schedule.tiers;
    let memory = scheduled.into_iter().find(|tier| tier.name == Kind::MainMemory).unwrap();
    let tier = |read_bytes| TierStatus { tier: memory.clone(), read_bytes };
    let peer = |peer, received, standing| PeerLink {
        peer: NodeId(peer),
        received: Bytes(received),
        sent: Bytes(0),
        in_flight: Bytes::mib(2),
        failures: 7,
        rate: None,
        round_trip: None,
        standing,
    };
    let at = |read: [u64; 3]| {
        let [memory, fast, slow] = read;
        let peers = vec![peer(1, fast, Standing::Asked), peer(2, slow, Standing::Slow)];
        status(NodeStatus { tiers: vec![tier(memory)], peers, ..node(10, 0) })
    };
    let lines = frame(
        Some(&look(1, Some(at([0, 0, 5])), None)),
        &look(2, Some(at([1_000_000, 3_000_000, 5])), None),
    );
    let shown: Vec<Vec<&str>> = lines
        .iter()
        .skip_while(|line| !line.starts_with("link"))
        .map(|line| line.split_whitespace().collect())
        .take_while(|words: &Vec<&str>| !words.is_empty())
        .collect();
    let expected = [
        "link read in flight failed",
        "node 0 from node 1 3 MB/s 2 MiB 7",
        "node 0 from main-memory 1 MB/s - -",
        "node 0 from cold-store 0 B/s - -",
        "node 0 from node 2: too-slow 0 B/s 2 MiB 7",
    ];
    let expected: Vec<Vec<&str>> =
        expected.iter().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(shown, expected, "{lines:#?}");
}

#[test]
fn a_job_without_peers_has_no_table_of_links() {
    let lines = frame(None, &look(1, Some(status(node(10, 0))), None));
    assert!(!lines.iter().any(|line| line.starts_with("link")), "{lines:#?}");
}
