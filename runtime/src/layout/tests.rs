use std::{num::NonZeroU32, path::Path};

use tierfeed_core::{
    fleet::first_schedule,
    retention::policy::Saves,
    session::assignment::Assignment,
    tier::{Locality, Speed},
    units::{BytesPerSecond, Nanoseconds},
};
use tierfeed_resource_gatherer::{
    Available, Inventory, Report,
    available::NodeFree,
    inventory::{
        Boot, CgroupMemory, Memory, Node as NumaInventory, Rated,
        cgroup::Version,
        mount::{Medium, Mount},
        node::MemoryKind,
    },
};

use tierfeed_workload_analyzer::demand::{Demand, Sizes};

use super::*;

mod holdings;

const GIB: u64 = 1 << 30;

fn numa(id: u32, kind: MemoryKind, cpus: Vec<u32>) -> NumaInventory {
    NumaInventory {
        id,
        kind,
        cpus,
        memory_total_bytes: 16 * GIB,
        memory_free_bytes: 10 * GIB,
        ..NumaInventory::default()
    }
}

/// 32 GiB of which 20 are free, 10 more for each NUMA node beyond the first; a RAM disk of 2 GiB and a disk of 100.
fn host(nodes: Vec<NumaInventory>) -> Node {
    host_for(nodes, "  main-memory: { size: 1 GiB }\n")
}

fn host_for(nodes: Vec<NumaInventory>, tiers: &str) -> Node {
    let of_host = nodes.iter().filter(|node| !node.is_gpu());
    let nodes_free: Vec<_> = of_host
        .map(|node| NodeFree { numa_node: NumaNode(node.id), free: Bytes(10 * GIB) })
        .collect();
    let free = Bytes(10 * GIB * (nodes_free.len() as u64 + 1));
    let inventory = Inventory {
        host: "host".into(),
        boot: Some(Boot::default()),
        memory: Memory { total_bytes: 32 * GIB, free_bytes: 10 * GIB, available_bytes: 20 * GIB },
        nodes,
        ..Inventory::default()
    };
    let available = Available {
        host: free,
        cgroup: None,
        nodes_free,
        pressure: None,
        load: None,
        disks: Vec::new(),
    };
    let disk = |path: &str, device, file_system: &str, gib| Disk {
        path: path.into(),
        device,
        file_system: file_system.to_owned(),
        is_ram_disk: file_system == "tmpfs",
        free: Bytes(gib * GIB),
    };
    Node::new(
        inventory,
        &available,
        vec![disk("/ram", 1, "tmpfs", 2), disk("/nvme", 2, "ext4", 100)],
        &job(tiers).tiers,
    )
}

fn plain_host() -> Node {
    host(vec![numa(0, MemoryKind::Dram, vec![0, 1])])
}

fn job(tiers: &str) -> Job {
    let text = format!(
        "name: job\n\
         dataset: {{ source: file:///data, format: image-folder }}\n\
         order: {{ shuffle: sequential, epochs: 1 }}\n\
         batch_size: 4\n\
         world: {{ nodes: 1, ranks_per_node: 2 }}\n\
         chunk: 512 MiB\n\
         tiers:\n{tiers}"
    );
    Job::parse(&text, Path::new("/jobs/job.yaml")).unwrap()
}

/// A dataset of which a large batch has 32 MiB.
fn demand(job: &Job) -> Demand {
    let sizes = Sizes::of(16, || std::iter::repeat_n(Bytes::mib(8), 16));
    Demand::of(job, &sizes).unwrap()
}

/// The layout of `job` on `node` by the schedule that its manager makes too.
fn layout_of(
    job: &Job,
    demand: &Demand,
    node: &Node,
    overcommit: Overcommit,
    measured: &Measured,
) -> Result<Layout, LayoutError> {
    let found = Found::on(job, demand, node, overcommit, measured)?;
    let schedule = schedule::of(job, demand, &found.offer())?;
    Ok(found.layout(demand, node, &schedule))
}

fn fit(tiers: &str, node: &Node) -> Result<Layout, LayoutError> {
    let job = job(tiers);
    layout_of(&job, &demand(&job), node, Overcommit::Refused, &Measured::default())
}

fn fit_again(tiers: &str, node: &Node) -> Result<Layout, LayoutError> {
    let job = job(tiers);
    layout_of(&job, &demand(&job), node, Overcommit::Allowed, &Measured::default())
}

/// The layout with what a report chooses for samples of two lengths, some 64 GiB in all.
fn fit_measured(tiers: &str, node: &Node, measured: Option<&Report>) -> Layout {
    let job = job(tiers);
    let sizes =
        Sizes::of(16, || std::iter::repeat_n(Bytes::mib(8), 1 << 13).chain([Bytes::mib(7)]));
    let demand = Demand::of(&job, &sizes).unwrap();
    layout_of(&job, &demand, node, Overcommit::Refused, &known(measured, node)).unwrap()
}

/// What is known of `node`, measured while it was as it is.
fn known(report: Option<&Report>, node: &Node) -> Measured {
    let saved = report.map(|report| {
        let mut report = report.clone();
        report.inventory = Inventory { host: report.host.clone(), ..node.inventory().clone() };
        SavedReport { report, file: "/tiers.json".into(), written: None }
    });
    saved.map(Measured::from).unwrap_or_default()
}

const CXL: &str = "  main-memory: { size: 1 GiB }\n  cxl-memory: { size: 2 GiB }\n";
const PLAYED: &str = "  main-memory: { size: 1 GiB }\n  cxl-memory: { size: 2 GiB, emulate: { \
                      bandwidth: 20 GB/s } }\n";

#[test]
fn staging_comes_from_main_memory_and_the_cache_gets_whole_chunks() {
    let layout = fit("  main-memory: { reserve: 20 % }\n", &plain_host()).unwrap();
    let [main] = layout.tiers.as_slice() else { panic!("{layout:?}") };
    assert_eq!(main.budget, Bytes(4 * GIB));
    // Four batches of 32 MiB and a page for each of two ranks are staged, and a 32nd of main memory holds no
    // more; that leaves 3.75 GiB: seven chunks.
    assert_eq!((layout.staged.depth, layout.staged.depth_max), (4, 4));
    assert_eq!(layout.staged.arena, Bytes(4 * ((32 << 20) + 4096)));
    assert_eq!(main.cache, Bytes((7 * 512) << 20));
    assert_eq!(main.origin, Origin::Real);
}

#[test]
fn cxl_memory_that_is_there_is_used_and_real() {
    let node =
        host(vec![numa(0, MemoryKind::Dram, vec![0, 1]), numa(2, MemoryKind::Cxl, Vec::new())]);
    let layout = fit(CXL, &node).unwrap();
    let cxl = &layout.tiers[1];
    assert_eq!(cxl.settings.backing, Backing::Memory(Locality::Numa(NumaNode(2))));
    assert_eq!((cxl.origin, cxl.settings.cpus.as_slice()), (Origin::Real, [0, 1].as_slice()));
}

#[test]
fn memory_behind_cxl_gets_as_many_writers_as_were_measured_to_help() {
    let nodes = |kind| vec![numa(0, MemoryKind::Dram, vec![0, 1]), numa(2, kind, Vec::new())];
    let writers = |measured: Option<&Report>, tiers| {
        let node = host(nodes(MemoryKind::Cxl));
        let layout = fit_measured(tiers, &node, measured);
        layout.tiers.iter().map(|place| place.settings.copy_threads.get()).collect::<Vec<_>>()
    };
    assert_eq!(writers(None, CXL), [2, 2]);
    let mut measured = writers::tests::even();
    assert_eq!(writers(Some(&measured), CXL), [2, 1]);
    let played = "  main-memory: { size: 1 GiB }\n  cxl-memory: { size: 2 GiB, \
                  emulate: { latency: 1 us, bandwidth: 9 GB/s } }\n";
    assert_eq!(writers(Some(&measured), played), [2, 2], "its speed is imposed");
    "another".clone_into(&mut measured.host);
    assert_eq!(writers(Some(&measured), CXL), [2, 2], "measured elsewhere");
}

#[test]
fn samples_are_read_in_place_if_this_host_was_measured_to_gain_by_it() {
    let sockets = [0, 1].map(|id| numa(id, MemoryKind::Dram, vec![id]));
    let node = host([sockets.to_vec(), vec![numa(2, MemoryKind::Cxl, Vec::new())]].concat());
    let mut report = direct::tests::machine();
    let cxl = |tiers: &str, measured: Option<&Report>| {
        let place = fit_measured(tiers, &node, measured).tiers.remove(1);
        (place.settings.backing, place.direct.unwrap())
    };
    let on_card = Locality::Numa(NumaNode(2));
    let unknown =
        "no, because it is not known how fast it is read; `tierfeed tiers probe` measures it";
    for measured in [None, Some(&report)] {
        let (backing, choice) = cxl(CXL, measured);
        assert_eq!(backing, Backing::Memory(on_card), "nothing was measured here");
        assert_eq!(choice.to_string(), unknown);
    }
    "host".clone_into(&mut report.host);
    let (backing, choice) = cxl(CXL, Some(&report));
    let why =
        "yes, because a copy costs more than it saves (each MiB: 220 us copied, 121 us in place)";
    assert_eq!(choice.to_string(), why);
    let shared = |chunks| Backing::SharedMemory(on_card, NonZeroU32::new(chunks).unwrap());
    assert_eq!(backing, shared(4 + 16), "the chunks of 2 GiB and some to spare");
    let share = "  main-memory: { size: 1 GiB }\n  cxl-memory: { reserve: 20 % }\n";
    let (backing, _) = cxl(share, Some(&report));
    assert_eq!(backing, shared(32 + 2 + 16), "it may grow, but not beyond the 16 GiB of the card");
}

#[test]
fn cxl_memory_that_is_missing_is_refused_unless_its_speed_is_imposed() {
    let error = fit(CXL, &plain_host()).unwrap_err();
    assert_eq!(error.keys(), ["tiers", "cxl-memory"]);
    let sentence = "tiers.cxl-memory: this host has no memory behind CXL; remove the tier, name the \
                    NUMA nodes that shall play it as `numa_nodes` (it has 0), or add `emulate: \
                    { latency: 350 ns, bandwidth: 20 GB/s }` to let main memory play it";
    assert_eq!(error.to_string(), sentence);
    let layout = fit(PLAYED, &plain_host()).unwrap();
    let cxl = &layout.tiers[1];
    assert_eq!(cxl.settings.backing, Backing::Memory(Locality::Anywhere));
    assert_eq!(cxl.origin, Origin::Emulated);
}

#[test]
fn a_scratch_tier_on_a_disk_is_refused_unless_its_speed_is_imposed() {
    let tiers = "  main-memory: { size: 1 GiB }\n  scratch: { path: /nvme, size: 1 GiB }\n";
    let error = fit(tiers, &plain_host()).unwrap_err();
    assert_eq!(error.keys(), ["tiers", "scratch", "path"]);
    assert!(error.to_string().starts_with("tiers.scratch.path: /nvme is on ext4, and"), "{error}");
    let played =
        tiers.replace("/nvme, size: 1 GiB", "/nvme, emulate: { latency: 1 us }, size: 1 GiB");
    assert_eq!(fit(&played, &plain_host()).unwrap().tiers[1].origin, Origin::Emulated);
}

#[test]
fn a_neighbour_s_memory_is_no_cxl_card() {
    let node = host(vec![numa(0, MemoryKind::Dram, vec![0]), numa(1, MemoryKind::Dram, vec![1])]);
    let tiers = "  main-memory: { size: 1 GiB }\n  cxl-memory: { numa_nodes: [1], size: 2 GiB }\n";
    assert_eq!(fit(tiers, &node).unwrap().tiers[1].origin, Origin::Emulated);
}

#[test]
fn a_numa_node_that_is_missing_is_refused_unless_the_tier_is_played() {
    let missing =
        "  main-memory: { size: 1 GiB }\n  cxl-memory: { numa_nodes: [2], size: 2 GiB }\n";
    let error = fit(missing, &plain_host()).unwrap_err().to_string();
    assert!(error.starts_with("tiers.cxl-memory.numa_nodes: 2: this host has no"), "{error}");
    assert!(error.contains("it has 0;"), "{error}");
    let played = missing.replace("size: 2 GiB", "size: 2 GiB, emulate: { bandwidth: 20 GB/s }");
    let layout = fit(&played, &plain_host()).unwrap();
    let speed = Speed { latency: Nanoseconds(0), bandwidth: BytesPerSecond(20_000_000_000) };
    assert_eq!(layout.tiers[1].settings.emulated, Some(speed));
}

#[test]
fn several_cxl_nodes_are_several_places_that_share_a_size() {
    let node = host(vec![
        numa(0, MemoryKind::Dram, vec![0]),
        numa(1, MemoryKind::Cxl, Vec::new()),
        numa(2, MemoryKind::Cxl, Vec::new()),
    ]);
    let layout = fit(CXL, &node).unwrap();
    let budgets: Vec<_> = layout.tiers.iter().map(|place| place.budget).collect();
    assert_eq!(budgets, [Bytes(GIB), Bytes(GIB), Bytes(GIB)]);
}

#[test]
fn ram_disks_draw_on_memory_and_disks_do_not() {
    let tiers = "  main-memory: { size: 1 GiB }\n  scratch: { path: /ram, size: 1 GiB }\n  \
                 storage: { path: /nvme, size: 50 GiB }\n";
    let node = plain_host();
    let layout = fit(tiers, &node).unwrap();
    assert_eq!(layout.memory_budget(&node), Bytes(2 * GIB));
    let too_large = tiers.replace("size: 1 GiB }\n  scratch", "size: 18 GiB }\n  scratch");
    let error = fit(&too_large, &node).unwrap_err().to_string();
    assert!(error.contains("tier scratch asks for 1 GiB"), "{error}");
}

#[test]
fn a_ram_disk_that_is_smaller_than_memory_is_the_limit() {
    let tiers = "  main-memory: { size: 1 GiB }\n  scratch: { path: /ram, size: 3 GiB }\n";
    let error = fit(tiers, &plain_host()).unwrap_err().to_string();
    assert_eq!(
        error,
        "tier scratch asks for 3 GiB; 2 GiB are left for it; ask for less, or for a share"
    );
    let share = tiers.replace("size: 3 GiB", "reserve: 50 %");
    assert_eq!(fit(&share, &plain_host()).unwrap().tiers[1].budget, Bytes(2 * GIB));
}

#[test]
fn main_memory_that_holds_no_batch_is_refused_with_what_would() {
    let error = fit("  main-memory: { size: 32 MiB }\n", &plain_host()).unwrap_err().to_string();
    let sentence = "tiers.main-memory: 32 MiB cannot hold a batch of 32.00 MiB for each of 2 ranks; \
                    give it at least 64.00 MiB";
    assert_eq!(error, sentence);
}

fn staged() -> Staged {
    Staged {
        arena: Bytes::mib(64),
        depth: 4,
        depth_max: 4,
        windows: first_schedule::usual_windows(),
        first_room: Bytes(0),
        transforming: None,
    }
}

/// The aim of a session of a described job: 16 samples of 8 MiB, eight steps of a second each.
fn aim(nodes: u32, keys: &str) -> Aim {
    let text = format!(
        "name: job\n\
         dataset: {{ source: file:///data, format: image-folder{keys}\n\
         order: {{ shuffle: sequential, epochs: 1 }}\n\
         batch_size: 2\n\
         chunk: 1 MiB\n\
         world: {{ nodes: {nodes} }}\n"
    );
    let job = Job::parse(&text, Path::new("/jobs/job.yaml")).unwrap();
    let order = job.order(16).unwrap();
    let tiers = [(Kind::MainMemory, 32), (Kind::Storage, 96)];
    let tiers = tiers.map(|(kind, chunks_max)| Buffer { kind, chunks_max }).to_vec();
    let sizes = vec![Bytes::mib(8); 16].into();
    session(&job, sizes, order, staged(), Cache { tiers, chunk: Bytes::mib(1) }).aim
}

/// The source gives 64 MiB in the eight seconds, and the disk a part of what it can hold.
const RATES: &str = ", emulate: { bandwidth: 8 MiB/s } }\n\
                     step_time: 1 s\n\
                     tiers:\n  main-memory: { size: 1 GiB }\n  \
                     storage: { path: /nvme, size: 1 GiB, emulate: { bandwidth: 4 MiB/s } }";

#[test]
fn a_slow_tier_is_filled_as_far_as_the_job_s_own_rates_let_it_be_read() {
    let all = aim(1, RATES);
    assert_eq!(all.useful, [Bytes(u64::MAX), Bytes::mib(32)], "main memory has no rate");
    assert_eq!(all.wears, [false, true]);
}

#[test]
fn what_is_not_known_of_a_job_limits_no_tier() {
    let unlimited = [
        (2, RATES.to_owned()),
        (1, RATES.replace("bandwidth: 8 MiB/s", "latency: 1 ms")),
        (1, RATES.replace("bandwidth: 4 MiB/s", "latency: 1 ms")),
        (1, RATES.replace(", emulate: { bandwidth: 4 MiB/s }", "")),
        (1, RATES.replace(", emulate: { bandwidth: 8 MiB/s }", "")),
        (1, RATES.replace("step_time: 1 s\n", "")),
    ];
    for (nodes, keys) in unlimited {
        assert_eq!(aim(nodes, &keys).useful, [], "{nodes} {keys}");
    }
}

#[test]
fn what_limits_the_source_and_who_reads_first_reach_the_session() {
    let job = |keys: &str| {
        let text = format!(
            "name: job\ndataset: {{ source: /data, format: files, glob: '*', {keys}\n\
             order: {{ shuffle: sequential, epochs: 1 }}\nbatch_size: 1\n"
        );
        let job = Job::parse(&text, Path::new("/jobs/job.yaml")).unwrap();
        let order = job.order(2).unwrap();
        let cache = Cache { tiers: Vec::new(), chunk: Bytes::mib(1) };
        session(&job, vec![Bytes(1); 2].into(), order, staged(), cache)
    };
    let settings = job("limited_by: requests }\nprefetch: { assignment: proportional }");
    assert_eq!(settings.aim.saves, Saves::Requests);
    assert_eq!(settings.windows.assignment, Assignment::Proportional);
    let settings = job("}");
    assert_eq!(settings.aim.saves, Saves::Bytes);
    assert_eq!(settings.windows.assignment, Assignment::Shared);
}

#[test]
fn memory_behind_cxl_is_not_main_memory() {
    let cxl = numa(2, MemoryKind::Cxl, Vec::new());
    let node = host(vec![numa(0, MemoryKind::Dram, vec![0, 1]), cxl]);
    assert_eq!(node.host_memory(), Bytes(20 * GIB), "30 GiB are free, 10 of them behind CXL");
    assert_eq!(plain_host().host_memory(), Bytes(20 * GIB));
}

#[test]
fn of_a_small_control_group_a_small_part_stays_free() {
    let group = CgroupMemory {
        version: Version::V2,
        path: "/job".into(),
        limit_bytes: Some(GIB),
        usage_bytes: 0,
        reclaimable_bytes: 0,
    };
    let inventory = Inventory {
        memory: Memory { total_bytes: 32 * GIB, free_bytes: 0, available_bytes: 20 * GIB },
        cgroup: Some(group),
        nodes: vec![numa(0, MemoryKind::Dram, vec![0])],
        ..Inventory::default()
    };
    let available = Available {
        host: Bytes(20 * GIB),
        cgroup: Some(Bytes(GIB)),
        nodes_free: Vec::new(),
        pressure: None,
        load: None,
        disks: Vec::new(),
    };
    let mut node = Node::new(inventory, &available, Vec::new(), &[]);
    let free = node.pools()[&node::MEMORY];
    let kept = |percent: u64| Bytes(GIB / 100 * percent);
    assert_eq!((free.bytes, free.kept), (Bytes(GIB), kept(5)));
    let mut kept_within = |limit| {
        node.follow_limit(limit);
        node.memory_free(&available)[&node::MEMORY].kept
    };
    assert_eq!(kept_within(Some(Bytes(2 * GIB))), Bytes(2 * GIB / 100 * 5), "it was raised");
    assert_eq!(kept_within(Some(Bytes::mib(64))), Bytes::mib(16), "an agent needs that itself");
    node.follow_limit(None);
    let available = Available { cgroup: None, ..available };
    assert_eq!(node.memory_free(&available)[&node::MEMORY].kept, Bytes(32 * GIB / 100 * 5));
}

#[test]
fn who_comes_back_to_a_full_node_gets_the_sizes_that_it_had() {
    let tiers = "  main-memory: { size: 1 GiB }\n  cxl-memory: { emulate: { latency: 1 us }, size: 900 GiB }\n";
    let error = fit(tiers, &plain_host()).unwrap_err();
    assert!(error.is_shortage(), "{error}");
    let layout = fit_again(tiers, &plain_host()).unwrap();
    let budgets: Vec<Bytes> = layout.tiers.iter().map(|place| place.budget).collect();
    assert_eq!(budgets, [Bytes(GIB), Bytes(900 * GIB)]);
    let missing =
        "  main-memory: { size: 1 GiB }\n  cxl-memory: { numa_nodes: [2], size: 2 GiB }\n";
    let error = fit_again(missing, &plain_host()).unwrap_err();
    assert!(!error.is_shortage(), "what is not there does not come back: {error}");
}

#[test]
fn who_comes_back_to_a_roomy_node_gets_what_it_would_get_anyway() {
    for tiers in [PLAYED, "  main-memory: { reserve: 20 % }\n"] {
        let node = plain_host();
        assert_eq!(fit_again(tiers, &node).unwrap(), fit(tiers, &node).unwrap());
    }
}

#[test]
fn a_share_of_nothing_holds_two_batches_of_each_rank_of_who_comes_back() {
    let tiers = "  main-memory: { reserve: 1 % }\n  cxl-memory: { emulate: { latency: 1 us }, size: 19 GiB }\n";
    let node = plain_host();
    let error = fit(tiers, &node).unwrap_err();
    assert!(error.is_shortage(), "{error}");
    let layout = fit_again(tiers, &node).unwrap();
    let batch = (32 << 20) + 4096;
    assert!(layout.staged.arena.0 >= 2 * batch, "{layout:?}");
}

/// 24 GiB of which 1,025 MiB are free: the paper's setting.
fn filled_host() -> Node {
    let inventory = Inventory {
        memory: Memory {
            total_bytes: 24 * GIB,
            free_bytes: 900 << 20,
            available_bytes: 1025 << 20,
        },
        nodes: vec![numa(0, MemoryKind::Dram, vec![0])],
        ..Inventory::default()
    };
    let available = Available {
        host: Bytes::mib(1025),
        cgroup: None,
        nodes_free: vec![NodeFree { numa_node: NumaNode(0), free: Bytes::mib(900) }],
        pressure: None,
        load: None,
        disks: Vec::new(),
    };
    Node::new(inventory, &available, Vec::new(), &[])
}

/// The tiers of a job without `tiers` and `chunk`, for batches of `batch` MiB.
fn fit_unsaid(batch: u64, ranks: u32, node: &Node) -> Result<Layout, LayoutError> {
    let text = format!(
        "name: job\n\
         dataset: {{ source: file:///data, format: image-folder }}\n\
         order: {{ shuffle: sequential, epochs: 1 }}\n\
         batch_size: 4\n\
         world: {{ nodes: 1, ranks_per_node: {ranks} }}\n"
    );
    let job = Job::parse(&text, Path::new("/jobs/job.yaml")).unwrap();
    let sizes = Sizes::of(64, || std::iter::repeat_n(Bytes((batch << 20) / 4), 64));
    let demand = Demand::of(&job, &sizes).unwrap();
    layout_of(&job, &demand, node, Overcommit::Refused, &Measured::default())
}

#[test]
fn on_a_node_that_others_filled_a_job_gets_its_share_of_the_rest() {
    let layout = fit_unsaid(20, 1, &filled_host()).unwrap();
    let main = &layout.tiers[0];
    assert_eq!(main.budget, Bytes::mib(205));
    assert_eq!(layout.staged.arena, Bytes(4 * ((20 << 20) + 4096)));
    assert_eq!((layout.chunk, main.cache), (Bytes::mib(8), Bytes::mib(120)));
}

#[test]
fn staging_gets_two_batches_of_each_rank_although_the_share_is_less() {
    let layout = fit_unsaid(40, 4, &filled_host()).unwrap();
    assert_eq!(layout.staged.arena, Bytes(2 * ((40 << 20) + 4096)), "{layout:?}");
    let error = fit_unsaid(400, 4, &filled_host()).unwrap_err().to_string();
    let sentence =
        "tiers.main-memory: 768.75 MiB cannot hold a batch of 400.00 MiB for each of 4 ranks";
    assert!(error.starts_with(sentence), "{error}");
}

#[test]
fn tiers_that_keep_nothing_are_named() {
    let unused = |tiers: &str| {
        let job = job(tiers);
        let layout = layout_of(
            &job,
            &demand(&job),
            &plain_host(),
            Overcommit::Refused,
            &Measured::default(),
        )
        .unwrap();
        layout.unused_tiers(&job).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let sentence = "tiers.main-memory keeps no sample: of 700 MiB staging takes 256.03 MiB, and \
                    443.96 MiB are less than a chunk of 512 MiB; give it at least 769 MiB, or a \
                    smaller chunk";
    assert_eq!(unused("  main-memory: { size: 700 MiB }\n"), [sentence]);
    assert_eq!(unused("  main-memory: { size: 800 MiB }\n"), [""; 0]);
    assert_eq!(
        unused("  main-memory: { size: 700 MiB }\n  storage: { path: /nvme, size: 1 GiB }\n"),
        [""; 0]
    );
}

/// The kinds of the tiers with their budgets in MiB, as the session and the predictions see them.
fn order_of(layout: &Layout) -> Vec<(Kind, u64)> {
    layout.tiers.iter().map(|it| (it.settings.kind, it.budget.0 >> 20)).collect()
}

const SLOW_CARD: &str = "  main-memory: { size: 1 GiB }\n\
                         \x20 cxl-memory: { size: 2 GiB, emulate: { bandwidth: 50 MB/s } }\n\
                         \x20 scratch: { path: /ram, size: 512 MiB }\n\
                         \x20 storage: { path: /nvme, size: 4 GiB, writes_per_epoch: 1 GiB }\n";

#[test]
fn each_tier_takes_its_budget_and_limits_to_the_place_that_its_speed_gives_it() {
    let layout = fit(SLOW_CARD, &plain_host()).unwrap();
    let expected = [
        (Kind::MainMemory, 1024),
        (Kind::Scratch, 512),
        (Kind::CxlMemory, 2048),
        (Kind::Storage, 4096),
    ];
    assert_eq!(order_of(&layout), expected);
    let job = job(SLOW_CARD);
    let sizes = vec![Bytes::mib(8); 16];
    let settings = layout.session(&job, sizes.into(), job.order(16).unwrap(), NodeId(0));
    let kinds: Vec<Kind> = settings.tiers.iter().map(|tier| tier.kind).collect();
    assert_eq!(kinds, expected.map(|(kind, _)| kind));
    assert_eq!(settings.aim.wears, [false, false, false, true]);
    assert_eq!(settings.aim.writes_per_epoch, [None, None, None, Some(Bytes(GIB))]);
}

#[test]
fn the_budgets_of_tiers_that_share_memory_go_to_the_fastest_first() {
    // 20 GiB are free, of which 18 may be used: the sizes leave less than the shares.
    let tiers = |mb_per_s: u32| {
        format!(
            "  main-memory: {{ size: 15 GiB }}\n\
             \x20 cxl-memory: {{ reserve: 20 %, emulate: {{ bandwidth: {mb_per_s} MB/s }} }}\n\
             \x20 scratch: {{ path: /ram, reserve: 10 % }}\n"
        )
    };
    let first = |mb_per_s| order_of(&fit(&tiers(mb_per_s), &plain_host()).unwrap())[1];
    let (kind, budget) = first(50);
    assert_eq!((kind, budget), (Kind::Scratch, 2048));
    assert_eq!(first(9_000).0, Kind::CxlMemory);
}

#[test]
fn figures_of_another_host_order_nothing() {
    let node =
        host(vec![numa(0, MemoryKind::Dram, vec![0, 1]), numa(2, MemoryKind::Cxl, Vec::new())]);
    let figures_from = |host: &str| {
        let mut report = direct::tests::machine();
        host.clone_into(&mut report.host);
        let (job, measured) = (job(CXL), known(Some(&report), &node));
        let layout = layout_of(&job, &demand(&job), &node, Overcommit::Refused, &measured).unwrap();
        layout.tiers[1].standing.figures.from.clone()
    };
    let report = "probe report /tiers.json of an unknown date";
    assert_eq!(figures_from("host"), report);
    assert_eq!(
        figures_from("another"),
        format!("none; {report}: measured on the host another, and this is host")
    );
}

fn fit_on(nodes: Vec<NumaInventory>, tiers: &str) -> Layout {
    fit(tiers, &host_for(nodes, tiers)).unwrap()
}

fn sockets() -> Vec<NumaInventory> {
    vec![numa(0, MemoryKind::Dram, vec![0, 1]), numa(1, MemoryKind::Dram, vec![2, 3])]
}

fn with_card() -> Vec<NumaInventory> {
    vec![numa(0, MemoryKind::Dram, vec![0, 1]), numa(2, MemoryKind::Cxl, Vec::new())]
}

#[test]
fn a_job_without_tiers_gets_what_the_node_has() {
    let alone = fit_on(vec![numa(0, MemoryKind::Dram, vec![0])], "");
    assert_eq!(order_of(&alone), [(Kind::MainMemory, 4096)]);
    let layout = fit_on(with_card(), "");
    assert_eq!(order_of(&layout), [(Kind::MainMemory, 4096), (Kind::CxlMemory, 2048)]);
    let card = &layout.tiers[1];
    assert_eq!(card.settings.backing, Backing::Memory(Locality::Numa(NumaNode(2))));
    assert_eq!((card.origin, card.share), (Origin::Real, Some(Percent::DEFAULT)));
    let both = fit_on(sockets(), "");
    assert_eq!(order_of(&both), [(Kind::MainMemory, 6144)], "a neighbour is main memory");
}

#[test]
fn memory_that_says_nothing_of_itself_is_used_only_by_name_and_memory_of_a_gpu_never() {
    let with = |kind| vec![numa(0, MemoryKind::Dram, vec![0, 1]), numa(2, kind, Vec::new())];
    let [gpu, unknown] = [MemoryKind::Gpu, MemoryKind::CpuLess].map(with);
    for nodes in [&gpu, &unknown] {
        let layout = fit_on(nodes.clone(), "");
        let main = order_of(&layout)[0];
        assert_eq!(order_of(&layout), [(Kind::MainMemory, main.1)], "{nodes:?}");
        assert_eq!(main.1, 4096, "a share of what is free on node 0 and of the page cache alone");
    }
    let named = "  main-memory: { size: 1 GiB }\n  cxl-memory: { numa_nodes: [2], size: 2 GiB }\n";
    let layout = fit_on(unknown.clone(), named);
    assert_eq!(order_of(&layout), [(Kind::MainMemory, 1024), (Kind::CxlMemory, 2048)]);
    assert_eq!(layout.tiers[1].origin, Origin::Real);
    let refused = |tiers| fit(tiers, &host_for(gpu.clone(), tiers)).unwrap_err();
    let error = refused(named);
    let message = "tiers.cxl-memory.numa_nodes: 2: this is memory of a GPU, which is never a tier; \
                   name one of 0, or remove the key";
    assert_eq!((error.to_string().as_str(), error.keys().len()), (message, 3));
    let error =
        refused("  main-memory: { size: 1 GiB }\n  scratch: { numa_node: 2, size: 1 GiB }\n");
    assert!(error.to_string().starts_with("tiers.scratch.numa_node: 2: this is memory"), "{error}");
    let mut rated = unknown.clone();
    rated[1].rated = Some(Rated { read_latency_ns: Some(300), ..Rated::default() });
    assert_eq!(order_of(&fit_on(rated, "")).len(), 2, "the firmware says what it is");
}

#[test]
fn a_neighbour_that_plays_cxl_memory_is_claimed_once() {
    let tiers = "  main-memory: { reserve: 20 % }\n  \
                 cxl-memory: { numa_nodes: [1], reserve: 20 % }\n";
    // Of 30 GiB, 10 are free on each node, and the page cache is taken to be spread evenly.
    let layout = fit_on(sockets(), tiers);
    assert_eq!(order_of(&layout), [(Kind::MainMemory, 3072), (Kind::CxlMemory, 2048)]);
    let backings: Vec<_> = layout.tiers.iter().map(|tier| &tier.settings.backing).collect();
    let there = Backing::Memory(Locality::Numa(NumaNode(1)));
    assert_eq!(backings, [&Backing::Spread(vec![NumaNode(0)]), &there]);
    let cpus = layout.tiers.iter().map(|tier| tier.settings.cpus.as_slice());
    assert_eq!(cpus.collect::<Vec<_>>(), [[0, 1], [0, 1]], "the CPUs of node 1 are not the job's");
    let all = "  main-memory: { size: 10 GiB }\n  cxl-memory: { numa_nodes: [0], size: 10 GiB }\n";
    let only = vec![numa(0, MemoryKind::Dram, vec![0])];
    let error = fit(all, &host_for(only, all)).unwrap_err();
    assert!(error.is_shortage(), "both are the one node's: {error}");
}

#[test]
fn main_memory_is_taken_on_all_sockets_of_the_job_in_turn() {
    let layout = fit_on(sockets(), "  main-memory: { reserve: 20 % }\n");
    let main = &layout.tiers[0].settings;
    assert_eq!(main.backing, Backing::Spread(vec![NumaNode(0), NumaNode(1)]));
    assert_eq!(main.cpus, [0_usize; 0]);
    let one = fit_on(with_card(), "  main-memory: { reserve: 20 % }\n");
    assert_eq!(one.tiers[0].settings.backing, Backing::Memory(Locality::Anywhere));
}

#[test]
fn without_the_right_to_mount_the_ram_disk_that_is_there_limits_a_scratch_tier() {
    let small = || plain_host().with_ram_disk("/run/scratch".into(), Some(Bytes::mib(64)));
    let shared = fit("  main-memory: { size: 1 GiB }\n  scratch: {}\n", &small()).unwrap();
    assert_eq!(shared.scratch().unwrap().budget, Bytes::mib(64));
    let sized = "  main-memory: { size: 1 GiB }\n  scratch: { size: 1 GiB }\n";
    let error = fit(sized, &small()).unwrap_err().to_string();
    assert_eq!(
        error,
        "tier scratch asks for 1 GiB; 64 MiB are left for it; ask for less, or for a share"
    );
    assert_eq!(fit(sized, &plain_host()).unwrap().scratch().unwrap().budget, Bytes(GIB));
}

#[test]
fn a_ram_disk_without_a_path_counts_against_the_memory_of_its_node() {
    let ram_disk = |layout: &Layout| {
        let scratch = layout.scratch().unwrap();
        let Backing::RamDisk(_, locality) = scratch.settings.backing else { panic!("{scratch:?}") };
        (locality, scratch.pool, scratch.budget)
    };
    let layout = fit_on(with_card(), "  scratch: {}\n");
    let (locality, pool, budget) = ram_disk(&layout);
    assert_eq!((locality, budget), (Locality::Numa(NumaNode(2)), Bytes(2 * GIB)));
    let card = layout.tiers.iter().find(|tier| tier.settings.kind == Kind::CxlMemory).unwrap();
    assert_eq!(card.pool, pool, "both draw on what is free there");
    let (locality, pool, budget) =
        ram_disk(&fit_on(vec![numa(0, MemoryKind::Dram, vec![0])], "  scratch: {}\n"));
    assert_eq!((locality, pool, budget), (Locality::Anywhere, MEMORY, Bytes(4 * GIB)));
    let (locality, pool, _) = ram_disk(&fit_on(sockets(), "  scratch: { numa_node: 1 }\n"));
    assert_eq!((locality, pool), (Locality::Numa(NumaNode(1)), MEMORY));
    let full = "  cxl-memory: { size: 6 GiB }\n  scratch: { size: 6 GiB }\n";
    let error = fit(full, &host_for(with_card(), full)).unwrap_err();
    assert!(error.is_shortage(), "the card has 10 GiB free: {error}");
    let missing = fit("  scratch: { numa_node: 7 }\n", &plain_host()).unwrap_err();
    assert_eq!(missing.keys(), ["tiers", "scratch", "numa_node"]);
}

#[test]
fn directories_of_one_device_share_a_disk_unless_it_is_memory() {
    let mount = |path: &str, medium, device: &str| Mount {
        path: path.into(),
        root: "/".into(),
        file_system: String::new(),
        source: String::new(),
        device: device.to_owned(),
        medium,
        options: String::new(),
        overlay_upper: None,
    };
    let mounts = [
        mount("/", Medium::SolidState, "8:1"),
        mount("/home", Medium::SolidState, "8:1"),
        mount("/scratch", Medium::Memory, "0:30"),
        mount("/nvme", Medium::SolidState, "259:0"),
    ];
    let is_one = |one: &str, other: &str| node::is_one_disk(&mounts, one.as_ref(), other.as_ref());
    assert!(is_one("/var/tierfeed", "/home/data") && is_one("/nvme/cache", "/nvme/data"));
    assert!(!is_one("/nvme/cache", "/data"));
    assert!(!is_one("/scratch/cache", "/scratch/data"));
}
