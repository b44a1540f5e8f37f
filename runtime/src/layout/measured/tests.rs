use tierfeed_dataset::source::Identity;
use tierfeed_resource_gatherer::{
    calibrate::ColdStore,
    inventory::{Boot, Mount, Node as NumaNode, mount::Medium, node::MemoryKind},
    probe::estimate::Estimate,
};

use super::{super::direct::tests::machine, *};

const GIB: u64 = 1 << 30;

fn mount(path: &str, file_system: &str, source: &str, medium: Medium) -> Mount {
    Mount {
        path: path.into(),
        root: "/".into(),
        file_system: file_system.to_owned(),
        source: source.to_owned(),
        device: "0:40".to_owned(),
        medium,
        options: String::new(),
        overlay_upper: None,
    }
}

/// A socket and a CXL card of so many GiB; a RAM disk and a disk.
fn host(card_gib: u64) -> Inventory {
    let node = |id, kind, cpus: &[u32], gib| NumaNode {
        id,
        kind,
        cpus: cpus.to_vec(),
        memory_total_bytes: gib * GIB,
        ..NumaNode::default()
    };
    Inventory {
        host: "host".to_owned(),
        boot: Some(Boot::default()),
        nodes: vec![
            node(0, MemoryKind::Dram, &[0, 1], 16),
            node(2, MemoryKind::Cxl, &[], card_gib),
        ],
        mounts: vec![
            mount("/ram", "tmpfs", "tmpfs", Medium::Memory),
            mount("/disk", "ext4", "/dev/sda", Medium::SolidState),
        ],
        ..Inventory::default()
    }
}

/// Tiers with these figures, of main memory, the card and the RAM disk.
fn tiers(gb_per_s: f64) -> Vec<Tier> {
    let mut tiers = machine().tiers;
    let mut ram_disk = tiers[1].clone();
    (ram_disk.kind, ram_disk.path, ram_disk.numa_nodes) =
        (Kind::Scratch, Some("/ram/a".into()), Vec::new());
    tiers.push(ram_disk);
    for tier in &mut tiers {
        tier.estimates.copy_bytes_per_s = Some(Estimate::stated(gb_per_s * 1e9));
    }
    tiers[0].numa_nodes = vec![0];
    tiers
}

fn probe(then: Inventory) -> SavedReport {
    let mut report = machine();
    (report.tiers, report.inventory) = (tiers(9.0), then);
    report.transfers.clear();
    SavedReport { report, file: "/tiers.json".into(), written: None }
}

fn calibration(then: Inventory, place: &str) -> Calibration {
    let mut known = Calibration::of(then);
    known.tiers = tiers(7.0);
    known.cold_stores = vec![ColdStore {
        place: place.to_owned(),
        latency_ns: Estimate::stated(2e6),
        read_bytes_per_s: Estimate::stated(3e8),
        read_bytes: 64 << 20,
    }];
    known
}

/// The rate in GB/s, and its source.
fn found(measured: &Measured, kind: Kind, place: Measurable<'_>) -> (Option<f64>, String) {
    let TierFigures { profile, from } = measured.of_tier(&host(16), kind, place);
    (profile.and_then(|it| it.rated().bytes_per_s).map(|rate| rate / 1e9), from)
}

const CARD: Measurable<'_> = Measurable::NumaNode(2);
const PROBE: &str = "probe report /tiers.json of an unknown date";

#[test]
fn a_probe_counts_before_a_calibration_as_long_as_it_holds() {
    let both =
        |then| Measured::from(probe(then)).with_own(calibration(host(16), "/data"), Vec::new());
    let fresh = both(host(16));
    assert_eq!(found(&fresh, Kind::CxlMemory, CARD), (Some(9.0), PROBE.to_owned()));
    let stale = both(host(8));
    let why =
        format!("calibration at this start; {PROBE}: memory of node 2 was 8 GiB, is 16 GiB now");
    assert_eq!(found(&stale, Kind::CxlMemory, CARD), (Some(7.0), why));
    // The other tiers of the same report did not change.
    assert_eq!(
        found(&stale, Kind::MainMemory, Measurable::MainMemory),
        (Some(9.0), PROBE.to_owned())
    );
}

#[test]
fn without_figures_every_reason_is_told() {
    let said = |measured: &Measured| found(measured, Kind::CxlMemory, CARD);
    assert_eq!(said(&Measured::default()), (None, "none".to_owned()));
    let stale = Measured::from(probe(host(8)));
    let why = format!("none; {PROBE}: memory of node 2 was 8 GiB, is 16 GiB now");
    assert_eq!(said(&stale), (None, why));
    let failed = vec![(CARD.to_string(), "no answer within 2 s".to_owned())];
    let failed = stale.with_own(Calibration::of(host(16)), failed);
    let both = format!(
        "none; {PROBE}: memory of node 2 was 8 GiB, is 16 GiB now; not measured: no answer within 2 s"
    );
    assert_eq!(said(&failed), (None, both));
}

#[test]
fn calibrated_figures_of_a_directory_hold_on_its_mount_and_those_of_a_node_for_any_kind() {
    let known = Measured::default().with_own(calibration(host(16), "/data"), Vec::new());
    let rate = |kind, place| found(&known, kind, place).0;
    assert_eq!(rate(Kind::Scratch, Measurable::Directory("/ram/b".as_ref())), Some(7.0));
    assert_eq!(rate(Kind::Storage, Measurable::Directory("/disk".as_ref())), None);
    assert_eq!(rate(Kind::CxlMemory, Measurable::NumaNode(0)), Some(7.0), "a remote socket");
    let TierFigures { profile, .. } =
        known.of_tier(&host(16), Kind::CxlMemory, Measurable::NumaNode(0));
    assert_eq!(profile.unwrap().rated().kind, Kind::CxlMemory);
}

#[test]
fn a_cold_store_has_the_figures_of_its_own_server() {
    let bucket = |endpoint: Option<&str>| {
        cold_place(&Location::Bucket(Address {
            url: "s3://bucket/data".to_owned(),
            access: Access {
                endpoint: endpoint.map(str::to_owned),
                region: None,
                identity: Identity::Anonymous,
            },
        }))
    };
    let here = bucket(Some("http://127.0.0.1:9000"));
    let known = Measured::default().with_own(calibration(host(16), &here), Vec::new());
    let figures = known.cold_at(&host(16), &here);
    assert_eq!(figures.bandwidth, Some(BytesPerSecond(300_000_000)));
    assert_eq!(figures.latency, Some(Nanoseconds(2_000_000)));
    assert_eq!(figures.from, "calibration at this start");
    let mut little = calibration(host(16), &here);
    little.cold_stores[0].read_bytes = 400 << 10;
    let rough = Measured::default().with_own(little, Vec::new()).cold_at(&host(16), &here);
    let words = "calibration at this start; rough, because only 400 KiB were read";
    assert_eq!((rough.from.as_str(), rough.bandwidth), (words, figures.bandwidth));
    for other in [bucket(None), bucket(Some("http://127.0.0.1:9001"))] {
        let figures = known.cold_at(&host(16), &other);
        assert_eq!((figures.bandwidth, figures.from.as_str()), (None, "none"), "{other}");
    }
}

#[test]
fn the_name_of_a_host_becomes_a_plain_name_of_a_file() {
    let file = |host: &str| calibration_file(Path::new("/state/tiers.json"), host);
    assert_eq!(file("node-1.hpc"), Path::new("/state/calibration-node-1.hpc.json"));
    assert_eq!(file("../x/\n"), Path::new("/state/calibration-..x.json"));
}

#[test]
fn a_directory_behind_a_link_is_the_one_that_it_leads_to() {
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().canonicalize().unwrap();
    std::fs::create_dir(real.join("disk")).unwrap();
    std::os::unix::fs::symlink("disk", real.join("link")).unwrap();
    assert_eq!(without_links(&real.join("link")), real.join("disk"));
    assert_eq!(without_links(&real.join("link/not/there")), real.join("disk/not/there"));
    assert_eq!(without_links(Path::new("/no/such")), Path::new("/no/such"));
}
