//! Metrics, traces and the first line of the report, of real runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::{fs::PermissionsExt, net::UnixStream},
};

use serde_json::Value;

use crate::{
    apart::{Cluster, end_well},
    fixture::{Fixture, RANKS, assert_complete, assert_ended, eventually},
};

/// Figures by their whole series, `name{label="value"}`.
type Figures = BTreeMap<String, f64>;

/// Reads `OpenMetrics` text as strictly as its specification is written: families in one piece with a type,
/// units as suffixes, suffixes by type, no series twice, cumulative buckets, `# EOF` at the end.
fn parse(text: &str) -> Figures {
    let body = text.strip_suffix("# EOF\n").expect("the end is marked");
    let mut types: BTreeMap<&str, &str> = BTreeMap::new();
    let mut family = "";
    let mut figures = Figures::new();
    for line in body.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (what, name, rest) =
                (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            match what {
                "TYPE" => assert_eq!(types.insert(name, rest), None, "{name} stands twice"),
                "UNIT" => assert!(name.ends_with(&format!("_{rest}")), "{line}"),
                "HELP" => {}
                other => panic!("{other:?} in {line:?}"),
            }
            if name != family {
                assert!(
                    !figures.keys().any(|series| name_of(series) == name),
                    "{name} is in pieces"
                );
            }
            family = name;
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let suffix = name_of(series).strip_prefix(family).expect("a figure of another family");
        let allowed: &[&str] = match types[family] {
            "counter" => &["_total"],
            "gauge" => &[""],
            "histogram" => &["_bucket", "_sum", "_count"],
            "info" => &["_info"],
            other => panic!("{other:?} of {family}"),
        };
        assert!(allowed.contains(&suffix), "{series}");
        let value: f64 = value.parse().unwrap();
        assert!(value >= 0.0 && value.is_finite(), "{line}");
        assert_eq!(figures.insert(series.to_owned(), value), None, "{series} stands twice");
    }
    let buckets: Vec<_> = body.lines().filter(|line| name_of(line).ends_with("_bucket")).collect();
    for pair in buckets.windows(2).filter(|pair| !pair[1].contains("le=\"0.00001\"")) {
        let count = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
        let is_first = pair[0].contains("+Inf");
        assert!(is_first || count(pair[0]) <= count(pair[1]), "not cumulative: {pair:?}");
    }
    figures
}

fn name_of(series: &str) -> &str {
    series.split(['{', ' ']).next().unwrap()
}

/// The sum over all series of a name whose labels contain `label`.
fn sum(figures: &Figures, name: &str, label: &str) -> f64 {
    let of_name = figures.iter().filter(|(series, _)| name_of(series) == name);
    of_name.filter(|(series, _)| series.contains(label)).map(|(_, value)| value).sum()
}

/// Batches that trainers have, as the agent of a fixture says.
pub(crate) fn leases(fixture: &Fixture) -> f64 {
    let socket = fixture.run_dir().join("observe.sock");
    let figures = parse(&get(UnixStream::connect(&socket).unwrap(), "/metrics").1);
    assert!(figures.keys().any(|series| name_of(series) == "tierfeed_leases_active"));
    sum(&figures, "tierfeed_leases_active", "")
}

fn get(stream: impl Read + Write, path: &str) -> (String, String) {
    get_with(stream, path, "")
}

/// The answer over the network, with the token in `file`.
fn get_by_network(address: &str, path: &str, file: &std::path::Path) -> (String, String) {
    let token = fs::read_to_string(file).unwrap();
    let header = format!("Authorization: Bearer {}\r\n", token.trim());
    get_with(TcpStream::connect(address).unwrap(), path, &header)
}

fn get_with(mut stream: impl Read + Write, path: &str, header: &str) -> (String, String) {
    write!(stream, "GET {path} HTTP/1.0\r\n{header}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn near(one: f64, other: f64) {
    assert!((one - other).abs() <= 1e-6 * one.abs().max(1.0), "{one} {other}");
}

fn file(path: &std::path::Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn what_is_scraped_and_traced_is_what_is_reported() {
    let cluster = Cluster::of(Fixture::new(), Vec::new());
    let trace = cluster.fixture.path("trace.json");
    let mut agent =
        cluster.agent_with(&["--metrics", "127.0.0.1:0", "--trace", trace.to_str().unwrap()]);
    let targets = cluster.fixture.run_dir().join("prometheus.json");
    eventually("the metrics are announced", || targets.exists());
    let target = file(&targets);
    assert_eq!(target[0]["labels"]["tierfeed_job"], "small");
    let address = target[0]["targets"][0].as_str().unwrap().to_owned();
    let token = cluster.fixture.run_dir().join("metrics.token");
    let scrape = || get_by_network(&address, "/metrics", &token);
    end_well(cluster.trainers(1_000));
    assert_complete(&cluster.fixture.log());
    eventually("all batches came back", || {
        let figures = parse(&scrape().1);
        sum(&figures, "tierfeed_lease_hold_seconds_count", "") > 41.5
    });
    let (head, text) = scrape();
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    let figures = parse(&text);
    let socket = cluster.fixture.run_dir().join("observe.sock");
    let by_socket = parse(&get(UnixStream::connect(&socket).unwrap(), "/metrics").1);
    assert_eq!(by_socket.keys().collect::<Vec<_>>(), figures.keys().collect::<Vec<_>>());
    assert!(get_by_network(&address, "/trace", &token).0.contains(" 404 "));
    let stranger = get(TcpStream::connect(&address).unwrap(), "/metrics");
    assert!(stranger.0.contains(" 401 "), "{}", stranger.0);
    assert_eq!(fs::metadata(&token).unwrap().permissions().mode() & 0o777, 0o600);
    let mut live = cluster.fixture.tierfeed(&["trace", "--run-dir", "run", "-o", "live.json"]);
    assert_ended(&live.output().unwrap(), 0);
    agent.signal("-TERM");
    agent.ends_with(0);
    assert!(!targets.exists() && !socket.exists(), "no target names an agent that has ended");

    let report = cluster.fixture.report();
    let number = |value: &Value| value.as_f64().unwrap();
    for (name, key) in [
        ("tierfeed_batches_total", "steps"),
        ("tierfeed_samples_total", "samples"),
        ("tierfeed_handed_over_bytes_total", "bytes"),
        ("tierfeed_prefetch_wasted_bytes_total", "wasted_bytes"),
        ("tierfeed_batch_wait_seconds_count", "steps"),
        ("tierfeed_lead_time_seconds_count", "steps"),
        ("tierfeed_tier_faults_total", "tier_fault_count"),
    ] {
        near(sum(&figures, name, ""), number(&report[key]));
    }
    let cold = sum(&figures, "tierfeed_read_bytes_total", "tier=\"cold\"");
    near(cold, number(&report["cold_read_bytes"]));
    for tier in ["main-memory", "cxl-memory", "scratch"] {
        let label = format!("\"{tier}\"");
        let read = number(&report["tier_read_bytes"][tier]);
        near(sum(&figures, "tierfeed_read_bytes_total", &label), read);
        // What was read ahead is promoted too, and counts as read from the cold store.
        assert!(sum(&figures, "tierfeed_promoted_bytes_total", &label) + 0.5 >= read);
        near(sum(&figures, "tierfeed_hits_total", &label), number(&report["tier_hits"][tier]));
    }
    let stall = number(&report["stall_s"]) * f64::from(RANKS);
    near(sum(&figures, "tierfeed_stall_seconds_total", ""), stall);
    near(sum(&figures, "tierfeed_batch_wait_seconds_sum", ""), stall);
    let misses = sum(&figures, "tierfeed_misses_total", "");
    near(sum(&figures, "tierfeed_read_duration_seconds_count", "tier=\"cold\""), misses);
    near(sum(&figures, "tierfeed_leases_active", ""), 0.0);

    let trace = file(&trace);
    assert_trace(&trace, &figures);
    let live = file(&cluster.fixture.path("live.json"));
    let len = |trace: &Value| trace["traceEvents"].as_array().unwrap().len();
    assert!(len(&live) > 0 && len(&live) <= len(&trace));
}

/// Every read, wait and lease once; slices of a track nested or apart.
fn assert_trace(trace: &Value, figures: &Figures) {
    let events = trace["traceEvents"].as_array().unwrap();
    let count = |phase: &str, what: &str| {
        let is_it = |event: &&Value| {
            event["ph"] == phase && event["name"].as_str().is_some_and(|it| it.starts_with(what))
        };
        f64::from(u32::try_from(events.iter().filter(is_it).count()).unwrap())
    };
    assert_eq!(trace["tierfeedDroppedEvents"], 0);
    near(count("X", "read"), sum(figures, "tierfeed_misses_total", ""));
    let promoted = events
        .iter()
        .filter(|event| event["name"].as_str().is_some_and(|it| it.starts_with("promote")));
    let promoted = promoted.map(|event| event["args"]["samples"].as_f64().unwrap()).sum();
    near(promoted, sum(figures, "tierfeed_promotions_total", ""));
    near(count("X", "demote"), sum(figures, "tierfeed_demotions_total", ""));
    // Each batch was staged once, and held once.
    near(count("b", "batch"), 2.0 * sum(figures, "tierfeed_batches_total", ""));
    near(count("e", "batch"), 2.0 * sum(figures, "tierfeed_batches_total", ""));
    let mut open: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    let mut last = 0.0;
    let mut tracks = BTreeSet::new();
    for event in events.iter().filter(|event| event["ph"] == "X") {
        let (at, lasted) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
        assert!(at >= last, "{event} stands behind what began later");
        last = at;
        let lane = event["tid"].as_u64().unwrap();
        tracks.insert(lane);
        let open = open.entry(lane).or_default();
        // A nanosecond for the rounding of both.
        open.retain(|end| *end > at + 0.001);
        let fits = open.last().is_none_or(|end| at + lasted <= end + 0.001);
        assert!(fits, "{event} crosses another");
        open.push(at + lasted);
    }
    let named = events.iter().filter(|event| event["name"] == "thread_name");
    let named: BTreeSet<_> = named.map(|event| event["tid"].as_u64().unwrap()).collect();
    assert!(tracks.is_subset(&named));
}

#[test]
fn a_run_says_first_for_what_its_trainers_waited() {
    let fixture = Fixture::new();
    let output = fixture.run(0).output().unwrap();
    assert_ended(&output, 0);
    let report = fixture.report();
    let verdict = report["verdict"].as_str().unwrap();
    assert!(
        verdict.starts_with("42 of 42 batches served by the agent; trainers waited "),
        "{verdict}"
    );
    assert!(verdict.contains("cold store"), "{verdict}");
    let errors = String::from_utf8_lossy(&output.stderr);
    let said: Vec<_> = errors.lines().filter(|line| !line.starts_with('{')).collect();
    let at = said.iter().position(|line| *line == format!("small: {verdict}")).unwrap();
    assert!(said[at..].iter().any(|line| line.starts_with("report: ")), "{errors}");
    if let [first, ..] = report["advice"].as_array().unwrap().as_slice() {
        let line = format!("  would help: {}", first["text"].as_str().unwrap());
        assert!(said.iter().any(|it| it.starts_with(&line)), "{line} not in {errors}");
    }
    let of_run = said.iter().filter(|it| !it.contains(" INFO ") && !it.contains(" WARN ")).count();
    assert!(of_run <= 3, "verdict, advice and place: {errors}");
    let parts = report["stall_for_s"].as_object().unwrap();
    near(
        parts.values().map(|part| part.as_f64().unwrap()).sum(),
        report["stall_s"].as_f64().unwrap(),
    );
}

#[test]
fn an_address_that_is_taken_is_refused_before_anything_runs() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let fixture = Fixture::new();
    let (job, run_dir) = (fixture.job(), fixture.run_dir());
    let mut command = fixture.tierfeed(&["run", "--metrics", &address]);
    let output =
        command.arg(job).arg("--run-dir").arg(run_dir).args(["--", "true"]).output().unwrap();
    assert_ended(&output, 2);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains(&format!("cannot serve metrics at {address}")), "{errors}");
}

#[test]
fn a_manager_tells_which_nodes_joined_and_what_they_did() {
    let cluster = Cluster::of(Fixture::new(), Vec::new());
    let socket = cluster.fixture.path("manager/overview.sock");
    let scrape = || parse(&get(UnixStream::connect(&socket).unwrap(), "/metrics").1);
    let before = scrape();
    near(sum(&before, "tierfeed_manager_nodes", ""), 0.0);
    near(sum(&before, "tierfeed_manager_nodes_wanted", ""), 1.0);
    let mut agent = cluster.agent();
    eventually("the agent joined", || sum(&scrape(), "tierfeed_manager_nodes", "alive") > 0.5);
    end_well(cluster.trainers(0));
    agent.signal("-TERM");
    agent.ends_with(0);
    let after = scrape();
    let report = cluster.fixture.report();
    for (name, key) in [
        ("tierfeed_job_batches", "steps"),
        ("tierfeed_job_handed_over_bytes", "bytes"),
        ("tierfeed_job_cold_read_bytes", "cold_read_bytes"),
    ] {
        near(sum(&after, name, ""), report[key].as_f64().unwrap());
    }
    near(sum(&after, "tierfeed_manager_plans_total", ""), 1.0);
    near(sum(&after, "tierfeed_manager_messages_total", "drained"), 1.0);
    near(sum(&after, "tierfeed_manager_nodes", "drained"), 1.0);
    near(sum(&after, "tierfeed_manager_epoch", ""), 2.0);
}

#[test]
fn a_running_job_is_shown_frame_by_frame_and_an_ended_one_is_over() {
    let cluster = Cluster::of(Fixture::new(), Vec::new());
    let mut agent = cluster.agent();
    eventually("the agent serves", || cluster.fixture.run_dir().join("trainer.json").exists());
    let trainers = cluster.trainers(5_000);
    eventually("the training is on its way", || cluster.fixture.lines() >= 6);
    let top = |run_dir: &str, more: &[&str]| {
        let mut top = cluster.fixture.tierfeed(&["top", "--run-dir", run_dir]);
        top.args(more).output().unwrap()
    };
    let twice = ["--frames", "2", "--interval", "100 ms"];
    let output = top("manager", &twice);
    assert_ended(&output, 0);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches("small: 1 of 1 nodes, batch ").count(), 2, "{text}");
    // The manager is elsewhere for the run directory of an agent.
    let output = top("run", &twice);
    assert_ended(&output, 0);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches("agent of this node: small, policy gap").count(), 2, "{text}");
    assert!(text.contains("waiting now: ") && text.contains("main-memory"), "{text}");
    assert!(!text.contains('\u{1b}'), "it is no terminal");
    let hasty = top("run", &["--interval", "1 ms"]);
    assert_ended(&hasty, 2);
    assert!(String::from_utf8_lossy(&hasty.stderr).contains("at least 100 ms"));
    end_well(trainers);
    agent.signal("-TERM");
    agent.ends_with(0);
    assert_ended(&top("run", &[]), 2);
}

#[test]
fn a_report_says_how_each_tier_was_stored_and_has_a_page() {
    let fixture = Fixture::new();
    assert_ended(&fixture.run(0).output().unwrap(), 0);
    let report = fixture.report();
    let tier = |name: &str| {
        let tiers = report["tiers"].as_array().unwrap();
        tiers.iter().find(|tier| tier["name"] == name).unwrap().clone()
    };
    for (name, ways) in [
        ("main-memory", ["cached-stores", "non-temporal-stores"]),
        ("scratch", ["page-cache", "page-cache"]),
    ] {
        let stored = tier(name)["stored"].as_str().unwrap().to_owned();
        assert!(ways.contains(&stored.as_str()), "{name}: {stored}");
        assert!(tier(name)["written_bytes"].as_u64().unwrap() > 0);
    }
    assert!(report["staging"]["stored"].is_string());
    assert_eq!(report["lease_copyouts"], 0);
    let page = fs::read_to_string(fixture.run_dir().join("report.html")).unwrap();
    assert!(page.contains(report["verdict"].as_str().unwrap()), "{page}");
}
