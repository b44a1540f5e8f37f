//! Prints a bill as text.

use std::fmt::Write as _;

use super::{Bill, Prices, StorageCharged};

/// The lines that `tierfeed plan --cost` shows: a row for each scenario, the columns of DELI's Table II.
#[must_use]
pub fn table(bill: &Bill, prices: &Prices) -> String {
    let mut text = format!(
        "{:<12}{:>14}{:>14}{:>12}{:>12}{:>12}{:>12}\n",
        "data", "listed", "read", "requests", "storage", "compute", "total"
    );
    let cheapest = bill.cheapest().map(|it| it.scenario);
    for charge in &bill.charges {
        let mark = if cheapest == Some(charge.scenario) { "  cheapest" } else { "" };
        writeln!(
            text,
            "{:<12}{:>14}{:>14}{:>12}{:>12}{:>12}{:>12}{mark}",
            charge.scenario.name(),
            charge.requests.listings,
            charge.requests.reads,
            charge.api,
            charge.storage(),
            charge.compute,
            charge.total(),
        )
        .expect("writing to a string cannot fail");
    }
    text.push_str(match prices.storage_charged {
        StorageCharged::StartedMonths => "storage is charged for every month that the run begins\n",
        StorageCharged::Time => "storage is charged for as long as the run takes\n",
    });
    text
}
