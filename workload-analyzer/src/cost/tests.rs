use std::path::Path;

use proptest::prelude::*;
use tierfeed_core::units::{Bytes, Nanoseconds};

use super::{prices::FILE_BYTES_MAX, *};
use crate::yaml::{YamlError, scalar::Scalar as _};

const PRICES: &str = "\
vm: 0.6 $/h
disk: 0.04 $/GB/month
store: 0.02 $/GB/month
class_a: 0.05 $/10k
class_b: 0.004 $/10k
list_page: 1000
system_disk: 16 GB
storage_charged: started-months
";

const HOUR: Nanoseconds = Nanoseconds(3600 * 1_000_000_000);

fn parse(text: &str) -> Result<Prices, YamlError> {
    Prices::parse(text, Path::new("p.yaml"))
}

fn prices() -> Prices {
    parse(PRICES).unwrap()
}

/// [`PRICES`] with line `number` (from 1) replaced by `line`.
fn prices_with(number: usize, line: &str) -> String {
    let mut lines: Vec<_> = PRICES.lines().collect();
    lines[number - 1] = line;
    lines.join("\n") + "\n"
}

#[track_caller]
fn check(text: &str, message: &str) {
    assert_eq!(parse(text).unwrap_err().to_string(), format!("p.yaml:{message}"));
}

fn usage() -> Usage {
    Usage {
        nodes: 3,
        epochs: 2,
        samples: 42_000,
        objects: 42_000,
        dataset: Bytes(250_000_000),
        disk: Some(HOUR),
        direct: Some(HOUR),
        prefetched: Some(Prefetched {
            time: HOUR,
            cache: Bytes(12_000_000),
            fetch: 1024,
            misses: Some(9_000),
        }),
        planned: Some(Planned { time: HOUR, cache: Bytes(0), cold_reads: 60_000 }),
    }
}

fn nanos(dollars: &str) -> Money {
    let price = Requested::parse(&format!("{dollars} $/1")).unwrap();
    price.charge(1)
}

#[test]
fn every_key_of_a_file_of_prices_arrives() {
    let prices = prices();
    assert_eq!(prices.vm.charge(HOUR), Money::cents(60));
    assert_eq!(prices.disk.monthly(Bytes(1_000_000_000)), Money::cents(4));
    assert_eq!(prices.store.monthly(Bytes(1_000_000_000)), Money::cents(2));
    assert_eq!(prices.class_a.charge(10_000), Money::cents(5));
    assert_eq!(prices.class_b.charge(100_000), Money::cents(4));
    assert_eq!(prices.list_page, 1000);
    assert_eq!(prices.system_disk, Bytes(16_000_000_000));
    assert_eq!(prices.storage_charged, StorageCharged::StartedMonths);
    let required = PRICES.lines().take(5).collect::<Vec<_>>().join("\n");
    let short = parse(&required).unwrap();
    assert_eq!(short, Prices { system_disk: Bytes(0), ..prices });
    let by_time = parse(&prices_with(8, "storage_charged: time")).unwrap();
    assert_eq!(by_time.storage_charged, StorageCharged::Time);
}

#[test]
fn the_example_holds_the_prices_that_its_comments_tell() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/prices.yaml");
    let prices = Prices::load(&path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(prices.vm.charge(HOUR), nanos("0.5684"));
    assert_eq!(prices.class_b.charge(10_000), nanos("0.004"));
    assert_eq!(prices.system_disk, Bytes(16_000_000_000));
    assert_eq!(prices.storage_charged, StorageCharged::StartedMonths);
}

/// Each amount is worked out by hand from the equation above it.
#[test]
fn a_bill_is_what_the_equations_give_by_hand() {
    let bill = bill(&prices(), &usage());
    let charge = |scenario| *bill.of(scenario).unwrap();
    // (1), (2): 3 x (0.04 x 16.25 + 0.60)
    let disk = charge(Scenario::Disk);
    assert_eq!((disk.compute, disk.storage()), (nanos("1.8"), nanos("1.95")));
    assert_eq!((disk.api, disk.total()), (Money(0), nanos("3.75")));
    // (3): 0.02 x 0.25 + 3 x 0.04 x 16; (4): 2 x 3 x 42 listings, 2 x 42,000 reads
    let direct = charge(Scenario::Direct);
    assert_eq!((direct.store, direct.disk), (nanos("0.005"), nanos("1.92")));
    assert_eq!(direct.requests, Requests { listings: 252, reads: 84_000 });
    assert_eq!((direct.api, direct.total()), (nanos("0.03486"), nanos("3.75986")));
    // (3): 3 x 0.04 x 0.012 more; (5): 42 times as many listings
    let fetched = charge(Scenario::Prefetched);
    assert_eq!((fetched.store, fetched.disk), (nanos("0.005"), nanos("1.92144")));
    assert_eq!(fetched.requests, Requests { listings: 10_584, reads: 84_000 });
    assert_eq!((fetched.api, fetched.total()), (nanos("0.08652"), nanos("3.81296")));
    // 14 fetches of each node's 14,000; 9,000 are read twice.
    let prototype = charge(Scenario::Prototype);
    assert_eq!(prototype.requests, Requests { listings: 3_528, reads: 102_000 });
    assert_eq!(prototype.api, nanos("0.05844"));
    let planned = charge(Scenario::Planned);
    assert_eq!(planned.requests, Requests { listings: 42, reads: 60_000 });
    assert_eq!((planned.api, planned.total()), (nanos("0.02421"), nanos("3.74921")));
    assert_eq!(bill.cheapest().unwrap().scenario, Scenario::Planned);
}

/// With the list price of 0.004 dollars per 10,000 reads; the text of the paper says 0.002.
#[test]
fn equations_four_and_five_give_all_but_one_cell_of_table_two() {
    let cents = |samples, fetch: Option<u64>| {
        let usage = Usage { samples, objects: samples, ..usage() };
        let bill = bill(
            &prices(),
            &Usage {
                prefetched: fetch.map(|fetch| Prefetched {
                    time: HOUR,
                    cache: Bytes(0),
                    fetch,
                    misses: None,
                }),
                ..usage
            },
        );
        let scenario = if fetch.is_some() { Scenario::Prefetched } else { Scenario::Direct };
        bill.of(scenario).unwrap().api.to_cents()
    };
    // CIFAR-10: three parts of 11,667.
    assert_eq!(
        [cents(35_001, None), cents(35_001, Some(1024)), cents(35_001, Some(2048))],
        [3, 7, 5]
    );
    assert_eq!([cents(42_000, None), cents(42_000, Some(2048))], [3, 6]);
    // Printed is 8.
    assert_eq!(cents(42_000, Some(1024)), 9);
}

#[test]
fn storage_is_charged_for_started_months_or_for_the_time() {
    let month = price::MONTH;
    let dollar = Money::cents(100);
    let charge = |by: StorageCharged, time: u64| by.charge(dollar, Nanoseconds(time)).to_cents();
    let (started, time) = (StorageCharged::StartedMonths, StorageCharged::Time);
    assert_eq!([0, 1, month.0, month.0 + 1].map(|it| charge(started, it)), [100, 100, 100, 200]);
    assert_eq!([0, 1, month.0 / 2, month.0 * 3].map(|it| charge(time, it)), [0, 0, 50, 300]);
}

#[test]
fn a_scenario_of_unknown_time_is_not_on_the_bill() {
    let known = Usage { disk: None, direct: None, planned: None, ..usage() };
    let scenarios: Vec<_> = bill(&prices(), &known).charges.iter().map(|it| it.scenario).collect();
    assert_eq!(scenarios, [Scenario::Prefetched, Scenario::Prototype]);
    let nothing = bill(&prices(), &Usage { prefetched: None, ..known });
    assert_eq!(nothing.cheapest(), None);
}

#[test]
fn a_bill_is_printed_with_units_and_sums() {
    let (prices, usage) = (prices(), usage());
    let bill = bill(&prices, &Usage { planned: None, prefetched: None, ..usage });
    let text = table(&bill, &prices);
    let rows: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1], ["disk", "0", "0", "$0.0000", "$1.95", "$1.80", "$3.75", "cheapest"]);
    assert_eq!(rows[2], ["direct", "252", "84000", "$0.0349", "$1.93", "$1.80", "$3.76"]);
    let json = serde_json::to_value(&bill).unwrap();
    assert_eq!(json["charges"][1]["way"], "direct");
    assert_eq!(json["charges"][1]["class_a_requests"], 252);
    assert_eq!(json["charges"][1]["api_usd"], 0.034_86);
    assert_eq!(json["charges"][0]["total_usd"], 3.75);
}

#[test]
fn a_wrong_value_is_named_with_its_line_and_what_would_be_right() {
    check(
        &prices_with(1, "vm: 0.6 $/day"),
        "1: vm is `0.6 $/day`; expected one of the units $/h, $/min, $/s, for example `0.95 $/h`",
    );
    check(
        &prices_with(2, "disk: cheap"),
        "2: disk is `cheap`; expected an amount in dollars, for example `0.04 $/GB/month`",
    );
    check(
        &prices_with(3, "store: -1 $/GB/month"),
        "3: store is `-1 $/GB/month`; expected an amount in dollars, for example `0.04 $/GB/month`",
    );
    check(
        &prices_with(4, "class_a: 0.05"),
        "4: class_a is `0.05`; expected one of the units $/…, as in the example, for example \
         `0.05 $/10k`",
    );
    check(
        &prices_with(5, "class_b: 0.004 $/0k"),
        "5: class_b is `0.004 $/0k`; expected one of the units $/10k, $/1000, $/1M, or another number \
         of requests, for example `0.05 $/10k`",
    );
    check(&prices_with(6, "list_page: 0"), "6: list_page is `0`; it must be between 1 and 1000000");
    check(
        &prices_with(7, "system_disk: 16"),
        "7: system_disk is `16`; expected one of the units B, kB, MB, GB, TB, KiB, MiB, GiB, TiB, for \
         example `16 GB`",
    );
    check(
        &prices_with(8, "storage_charged: never"),
        "8: storage_charged is `never`; expected one of started-months, time",
    );
}

#[test]
fn a_file_that_is_no_prices_is_refused() {
    check(&PRICES.replace("vm: 0.6 $/h\n", ""), "1: missing field `vm`");
    check(
        &prices_with(6, "page: 1000"),
        "6: page: unknown field `page`, expected one of `vm`, `disk`, `store`, `class_a`, `class_b`, \
         `list_page`, `system_disk`, `storage_charged`",
    );
    for text in ["", "[]", "vm", "vm: [1]", "vm: {", "\u{0}", "vm: *a", &PRICES.repeat(2)] {
        let message = parse(text).unwrap_err().to_string();
        assert!(message.starts_with("p.yaml:"), "{text:?}: {message}");
    }
    let repeated = parse(&prices_with(2, "vm: 0.7 $/h")).unwrap_err().to_string();
    assert!(repeated.starts_with("p.yaml:2: ") && repeated.contains("vm"), "{repeated}");
}

#[test]
fn a_file_that_cannot_be_read_or_is_too_large_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let absent = Prices::load(&folder.path().join("absent.yaml")).unwrap_err();
    assert!(matches!(absent, YamlError::Unreadable { .. }), "{absent}");
    let path = folder.path().join("large.yaml");
    let len = usize::try_from(FILE_BYTES_MAX.0).unwrap();
    std::fs::write(&path, "#".repeat(len + 1)).unwrap();
    assert!(matches!(Prices::load(&path).unwrap_err(), YamlError::TooLarge { .. }));
    let padding = "#".repeat(len - PRICES.len());
    std::fs::write(&path, format!("{PRICES}{padding}")).unwrap();
    assert_eq!(Prices::load(&path).unwrap(), prices());
}

proptest! {
    #[test]
    fn no_text_makes_the_prices_panic(line in 1_usize..9, value in ".{0,30}") {
        let key = PRICES.lines().nth(line - 1).unwrap().split(':').next().unwrap();
        _ = parse(&prices_with(line, &format!("{key}: {value}")));
        _ = parse(&value);
    }

    /// A larger amount of any input never costs less.
    #[test]
    fn more_use_never_costs_less(
        nodes in any::<u32>(), epochs in any::<u32>(), samples in any::<u64>(), bytes in any::<u64>(),
        time in any::<u64>(), fetch in any::<u64>(), which in 0_usize..5,
    ) {
        let with = |nodes, epochs, samples, bytes, time| {
            let usage = Usage {
                nodes, epochs, samples, objects: samples, dataset: Bytes(bytes),
                disk: Some(Nanoseconds(time)), direct: Some(Nanoseconds(time)),
                prefetched: Some(Prefetched {
                    time: Nanoseconds(time), cache: Bytes(bytes), fetch, misses: Some(samples),
                }),
                planned: Some(Planned {
                    time: Nanoseconds(time), cache: Bytes(bytes), cold_reads: samples,
                }),
            };
            bill(&prices(), &usage)
        };
        let less = |index, value: u64| if index == which { value / 2 } else { value };
        let small = |index, value: u32| if index == which { value / 2 } else { value };
        let all = with(nodes, epochs, samples, bytes, time);
        let part = with(
            small(0, nodes), small(1, epochs), less(2, samples), less(3, bytes), less(4, time),
        );
        for (part, all) in part.charges.iter().zip(&all.charges) {
            // With fewer nodes the parts of the others are larger and may need one more fetch.
            if which != 0 || part.scenario != Scenario::Prototype {
                prop_assert!(part.total() <= all.total(), "{part:?} {all:?}");
            }
        }
    }
}
