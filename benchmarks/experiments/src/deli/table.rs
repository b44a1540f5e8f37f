//! The comparisons as tables.

use std::fmt::Write as _;

use super::{Outcome, Row, TOLERANCE, setting::Setting, table_two};

/// All comparisons as text.
#[must_use]
pub fn table(outcome: &Outcome) -> String {
    let mut text = String::from("Miss rates of the second epoch, cache without prefetching:\n");
    write_rows(&mut text, &outcome.caching);
    text.push_str("\nTimes that the model of prefetching takes from the measurements:\n");
    _ = writeln!(
        text,
        "{:<10}{:>10}{:>10}{:>10}{:>13}{:>13}{:>10}",
        "", "miss", "hit", "compute", "fetch start", "its samples", "parallel"
    );
    for it in &outcome.paces {
        let ms = |seconds: f64| format!("{:.2} ms", seconds * 1e3);
        _ = writeln!(
            text,
            "{:<10}{:>10}{:>10}{:>10}{:>13}{:>13}{:>10.1}",
            it.workload,
            ms(it.miss_s),
            ms(it.hit_s),
            ms(it.compute_s),
            format!("{:.2} s", it.fetch_start_s),
            ms(it.fetch_sample_s),
            it.parallel
        );
    }
    text.push_str("\nMiss rates with prefetching:\n");
    write_rows(&mut text, &outcome.fetching);
    write_table_two(&mut text, &outcome.table_two);
    text
}

fn write_rows(text: &mut String, rows: &[Row]) {
    _ = writeln!(
        text,
        "{:<10}{:<13}{:>6}{:>7}{:>10}{:>11}{:>7}{:>10}{:>17}{:>9}{:>9}",
        "",
        "",
        "batch",
        "fetch",
        "threshold",
        "cache",
        "epoch",
        "measured",
        "from to",
        "model",
        "off"
    );
    for row in rows {
        let Setting { batch, fetch, threshold, cache } = row.setting;
        let alone = row.series == "cache alone";
        let number = |value: u32| if alone { "-".to_owned() } else { value.to_string() };
        let range = format!("{:.4} {:.4}", row.measured_min, row.measured_max);
        _ = writeln!(
            text,
            "{:<10}{:<13}{:>6}{:>7}{:>10}{:>11}{:>7}{:>10.4}{:>17}{:>9.4}{:>+9.4}{}",
            row.workload,
            row.series,
            number(batch),
            number(fetch),
            number(threshold),
            cache.map_or_else(|| "unlimited".to_owned(), |it| it.to_string()),
            row.epoch,
            row.measured,
            range,
            row.modelled,
            row.off(),
            mark(row),
        );
    }
    let agreeing = rows.iter().filter(|row| row.agrees()).count();
    let between = rows.iter().filter(|row| row.is_between()).count();
    _ = writeln!(
        text,
        "{agreeing} of {} within {TOLERANCE}, {between} between the measurements",
        rows.len()
    );
}

fn mark(row: &Row) -> &'static str {
    match (row.fitted, row.agrees(), row.is_between()) {
        (true, ..) => "  fitted",
        (false, true, _) => "",
        (false, false, true) => "  between the measurements",
        (false, false, false) => "  not met",
    }
}

fn write_table_two(text: &mut String, outcome: &table_two::Outcome) {
    text.push_str("\nTable II, dollars printed and computed, assumed:\n");
    for line in table_two::ASSUMED.lines() {
        _ = writeln!(text, "  {line}");
    }
    _ = writeln!(text, "  dataset: {}", table_two::DATASET);
    for cells in outcome.cells.chunk_by(|a, b| (a.workload, a.method) == (b.workload, b.method)) {
        let first = &cells[0];
        _ = write!(text, "{:<10}{:<17}", first.workload, first.method);
        for cell in cells {
            let printed = format!("{}.{:02}", cell.printed_cents / 100, cell.printed_cents % 100);
            let mark = if cell.is_same { ' ' } else { '*' };
            let name = cell.column.name();
            _ = write!(text, "{name:>10} {printed} {:.4}{mark}", cell.computed_usd);
        }
        text.push('\n');
    }
    text.push_str("* not the same in cents\n");
    for it in &outcome.alternatives {
        let share = |at: usize| format!("{}/{}", it.same[at], it.printed[at]);
        _ = writeln!(
            text,
            "the same: requests {}, storage {}, compute {}, total {}: {}",
            share(0),
            share(1),
            share(2),
            share(3),
            it.assumed
        );
    }
    match outcome.vm_usd_per_h {
        Some((from, to)) => {
            _ = writeln!(text, "compute comes out for machines of {from:.4} to {to:.4} $/h");
        }
        None => text.push_str("compute comes out for no price of a machine\n"),
    }
    for it in &outcome.samples {
        let range = |range: Option<(u64, u64)>| match range {
            Some((from, to)) => format!("for {from} to {to} samples"),
            None => "for no number of samples".to_owned(),
        };
        _ = writeln!(
            text,
            "{}, {} samples: requests come out {}; with the text's class B {}",
            it.workload,
            it.samples,
            range(it.as_assumed),
            range(it.as_printed)
        );
    }
}
