//! What people see, on reports made by hand.

use crate::{
    inventory::Inventory,
    report::{
        Basis, COLUMNS, Report, Style, table,
        tests_support::{full, minimal},
    },
    sysroot::Sysroot,
    tests_support::FakeSysroot,
};

fn lines(report: &Report, style: Style) -> Vec<String> {
    table(report, style).lines().map(str::to_owned).collect()
}

fn line<'a>(lines: &'a [String], start: &str) -> &'a str {
    let found = lines.iter().find(|line| line.starts_with(start));
    found.unwrap_or_else(|| panic!("no line starts with {start:?}: {lines:#?}"))
}

#[test]
fn nothing_is_wider_than_a_hundred_columns() {
    for line in lines(&full(), Style::Plain) {
        assert!(line.chars().count() <= COLUMNS, "{} columns: {line}", line.chars().count());
    }
}

#[test]
fn every_section_is_there_and_an_empty_report_has_only_what_it_knows() {
    let mut report = full();
    report.pairs[2].remarks.push("the machine was disturbed".to_owned());
    let text = table(&report, Style::Plain);
    for line in [
        "tiers of fake, fastest first",
        "object stores\n  s3://bucket/prefix (objects made and removed): 0.090 ±2% GB/s with 1",
        "remarks\n  memory of NUMA node 2 from node 0: the machine was disturbed",
        "stated and measured differ",
        "left out\n  random writes: not asked for",
    ] {
        assert!(text.contains(line), "{line} is missing:\n{text}");
    }
    let inventory = Inventory::read(Sysroot(FakeSysroot::bare().path())).unwrap();
    assert_eq!(lines(&minimal(&inventory), Style::Plain).len(), 2);
}

#[test]
fn figures_carry_their_confidence_and_stated_ones_do_not() {
    let lines = lines(&full(), Style::Plain);
    let main = line(&lines, "main-memory");
    assert!(main.contains("99.8 ±2%") && main.contains("108 ns ±2%"), "{main}");
    assert!(main.ends_with("NUMA 0,1, DRAM"), "{main}");
    let emulated = line(&lines, "cxl-memory-2");
    assert!(emulated.contains("350 ns") && !emulated.contains('±'), "{emulated}");
    let storage = line(&lines, "storage");
    assert!(storage.contains("81.2 us ±2%") && storage.contains("742 k ±2%"), "{storage}");
}

#[test]
fn what_a_figure_is_worth_stands_below_its_tier() {
    let lines = lines(&full(), Style::Plain);
    let below = |start: &str| {
        let index = lines.iter().position(|line| line.starts_with(start)).unwrap();
        lines[index + 1].as_str()
    };
    assert_eq!(below("cxl-memory "), "  by configuration");
    assert_eq!(below("cxl-memory-2"), "  emulated");
    assert_eq!(below("scratch"), "  through the page cache");
    assert_eq!(below("storage"), "  not converged, contended");
    let mut unmeasured = full();
    unmeasured.tiers.truncate(1);
    unmeasured.tiers[0].estimates = crate::report::Figures::default();
    unmeasured.tiers[0].source = Basis::Rated;
    let text = table(&unmeasured, Style::Plain);
    assert!(text.contains("  not measured, placed by what the firmware states"), "{text}");
}

#[test]
fn only_what_differs_is_warned_of() {
    let text = table(&full(), Style::Plain);
    assert!(text.contains("NUMA node 2: the firmware states 170 ns of latency, measured 279 ns"));
    assert!(!text.contains("of reads"), "17.0 and 17.6 GB/s are alike");
}

#[test]
fn a_file_gets_no_colour_and_colour_changes_no_column() {
    let plain = table(&full(), Style::Plain);
    assert!(!plain.contains('\x1b'));
    let coloured = table(&full(), Style::Coloured);
    assert!(coloured.contains("\x1b[33m  emulated\x1b[0m"), "{coloured}");
    let without: String = coloured.replace("\x1b[0m", "");
    let without =
        ["1", "2", "33"].iter().fold(without, |it, code| it.replace(&format!("\x1b[{code}m"), ""));
    assert_eq!(without, plain);
}
