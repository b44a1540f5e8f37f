use std::collections::BTreeMap;

use proptest::prelude::*;
use tierfeed_core::{
    id::{Epoch, Rank, SampleId, Step, TierId},
    session::StallCause,
    units::Bytes,
};

use super::*;

const BASE: u64 = 1_790_000_000_123_456_789;

fn author() -> Process {
    Process { pid: 77, node: 2, kinds: vec!["main-memory", "cxl-memory"] }
}

fn batch(step: u32) -> BatchId {
    BatchId { epoch: Epoch(1), step: Step(step), rank: Rank(3) }
}

fn event(at: u64, lasted: u64, kind: EventKind) -> Event {
    Event { at: Nanoseconds(at), lasted: Nanoseconds(lasted), kind }
}

fn moved(from: Endpoint, to: Endpoint) -> EventKind {
    EventKind::Moved { from, to, sample: SampleId(5), samples: 1, len: Bytes(9), fault: None }
}

fn written(events: Vec<Event>) -> Value {
    let zero_since_1970 = Nanoseconds(BASE);
    let text = write(&Recording { events, dropped: 4, zero_since_1970 }, &author());
    serde_json::from_str(&text).unwrap()
}

fn events_of(document: &Value) -> Vec<Value> {
    let all = document["traceEvents"].as_array().unwrap().clone();
    all.into_iter().filter(|event| event["ph"] != "M").collect()
}

fn ns(value: &Value) -> i64 {
    let ns = (value.as_f64().unwrap() * 1000.0).round();
    format!("{ns:.0}").parse().unwrap()
}

#[test]
fn an_event_says_what_it_was_on_the_clock_of_the_profiler() {
    let failed = EventKind::Moved {
        from: Endpoint::Cold,
        to: Endpoint::Staging,
        sample: SampleId(5),
        samples: 1,
        len: Bytes(9),
        fault: Some(Fault::Io),
    };
    let document = written(vec![event(1_234_567, 1_001, failed)]);
    assert_eq!(document["baseTimeNanoseconds"], BASE);
    assert_eq!(document["tierfeedDroppedEvents"], 4);
    let read = &events_of(&document)[0];
    assert_eq!((&read["ph"], &read["pid"]), (&json!("X"), &json!(77)));
    assert_eq!((&read["ts"], &read["dur"]), (&json!(1234.567), &json!(1.001)));
    assert_eq!((&read["args"]["sample"], &read["args"]["fault"]), (&json!(5), &json!("io")));
    let names = document["traceEvents"].as_array().unwrap();
    let of_track = |event: &&Value| event["name"] == "thread_name" && event["tid"] == read["tid"];
    let name = names.iter().find(of_track).unwrap();
    assert_eq!(name["args"]["name"], "reads from the cold store 1");
}

#[test]
fn a_wait_holds_its_parts_and_staging_has_two_ends() {
    let document = written(vec![
        event(100, 40, EventKind::WaitPart(batch(1), StallCause::Cold)),
        event(100, 50, EventKind::Waited(batch(1))),
        event(140, 10, EventKind::WaitPart(batch(1), StallCause::Tier(TierId(1)))),
        event(20, 90, EventKind::Staged(batch(1))),
        event(150, 0, EventKind::TierResized(TierId(0), 4)),
        event(160, 0, EventKind::StagingResized(3)),
        event(170, 0, EventKind::Divided { rank: Rank(2), loading: 5, transforming: 1 }),
    ]);
    let events = events_of(&document);
    let shown: Vec<_> = events
        .iter()
        .map(|it| (it["ph"].as_str().unwrap(), it["name"].as_str().unwrap()))
        .collect();
    assert_eq!(
        shown,
        [
            ("b", "batch 1:1"),
            ("X", "wait for batch 1:1"),
            ("X", "cold-store"),
            ("e", "batch 1:1"),
            ("X", "cxl-memory"),
            ("i", "resize main-memory"),
            ("i", "limit staging"),
            ("i", "divide threads for rank 2"),
        ]
    );
    assert_eq!(events[1]["tid"], events[2]["tid"]);
    assert_eq!(events[0]["id"], events[3]["id"]);
    assert_eq!(events[6]["args"]["batches_max"], 3);
    assert_eq!(events[7]["args"], json!({"loading": 5, "transforming": 1}));
}

proptest! {
    #[test]
    fn slices_of_a_track_never_cross_and_events_stand_in_order(
        moves in prop::collection::vec((0_u64..50, 0_u64..20, 0_u8..3), 1..80),
    ) {
        let events = moves.iter().map(|(at, lasted, which)| {
            let tier = Endpoint::Tier(TierId(*which));
            let (from, to) = if *which == 2 { (Endpoint::Cold, Endpoint::Staging) } else { (tier, Endpoint::Staging) };
            event(*at, *lasted, moved(from, to))
        });
        let document = written(events.collect());
        let events = events_of(&document);
        prop_assert_eq!(events.len(), moves.len());
        let mut ends: BTreeMap<u64, i64> = BTreeMap::new();
        let mut last = i64::MIN;
        for event in &events {
            let (at, end) = (ns(&event["ts"]), ns(&event["ts"]) + ns(&event["dur"]));
            prop_assert!(at >= last, "invariant 2");
            last = at;
            let free_at = ends.insert(event["tid"].as_u64().unwrap(), end).unwrap_or(i64::MIN);
            prop_assert!(free_at <= at, "invariant 1: {event}");
        }
    }

    #[test]
    fn a_merged_event_keeps_its_time(ours in 0_u64..1 << 40, apart in 0_u64..1 << 40) {
        let folder = tempfile::tempdir().unwrap();
        let profile = json!({
            "schemaVersion": 1,
            "baseTimeNanoseconds": BASE - apart,
            "traceEvents": [{"ph": "X", "name": "step", "pid": 1, "tid": 1, "ts": 5.25, "dur": 2.0}],
        });
        let [first, second] = ["torch.json", "agent.json"].map(|name| folder.path().join(name));
        std::fs::write(&first, profile.to_string()).unwrap();
        let document = written(vec![event(ours, 10, moved(Endpoint::Cold, Endpoint::Staging))]);
        std::fs::write(&second, document.to_string()).unwrap();
        let merged = merge(&[first, second]).unwrap();
        let events = events_of(&merged);
        prop_assert_eq!(&events[0]["ts"], 5.25);
        let base = merged["baseTimeNanoseconds"].as_u64().unwrap();
        let since_1970 = i128::from(base) + i128::from(ns(&events[1]["ts"]));
        prop_assert_eq!(since_1970, i128::from(BASE) + i128::from(ours), "invariant 3");
    }
}

#[test]
fn what_is_no_trace_is_refused_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.json");
    let refused = |text: &str| {
        std::fs::write(&path, text).unwrap();
        merge(std::slice::from_ref(&path)).unwrap_err().to_string()
    };
    assert!(refused("{").contains("bad.json is no JSON"));
    assert!(refused("{}").contains("no list `traceEvents`"));
    let said = refused("[{\"ph\": \"X\", \"ts\": 17131}]");
    assert!(said.contains("does not say when it began"), "{said}");
    let missing = merge(&[folder.path().join("none.json")]).unwrap_err().to_string();
    assert!(missing.contains("cannot read") && missing.contains("none.json"), "{missing}");
}
