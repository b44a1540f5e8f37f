//! Prints an analysis as text.

use std::fmt::Write as _;

use super::{Analysis, Phase};
use crate::demand::seconds::in_words;

/// The lines of `tierfeed analyze` about the job itself.
#[must_use]
pub fn table(analysis: &Analysis) -> String {
    let mut rows: Vec<_> = analysis.phases.iter().map(|it| (it.phase.name(), phase(it))).collect();
    if let Some(batch) = analysis.decoded_batch {
        rows.push(("decoded batch", batch.to_string()));
    }
    rows.push(("shards", shards(analysis)));
    let memory = &analysis.memory;
    if memory.needed.0 > 0 {
        let mut text = format!(
            "{} of main memory a node: model {}, decoded batches {}, checkpoint {}",
            memory.needed, memory.model, memory.decoded, memory.checkpoint
        );
        if memory.missing.0 > 0 {
            let more = format!("; {} more than is free beside the tiers", memory.missing);
            text.push_str(&more);
        }
        rows.push(("job needs", text));
    }
    if let Some(it) = &analysis.checkpoint {
        let rate = it.write_rate.map_or_else(String::new, |rate| format!(", at least at {rate}"));
        let text =
            format!("{} every {} steps, {} in all{rate}", it.bytes, it.every_steps, it.total);
        rows.push(("checkpoints", text));
    }
    rows.extend(analysis.warnings.iter().map(|it| ("warning", it.clone())));
    let mut text = String::new();
    for (name, value) in rows {
        writeln!(text, "{name:<20}{value}").expect("writing to a string cannot fail");
    }
    text
}

fn phase(phase: &Phase) -> String {
    let rate = phase.rank_rate.map_or_else(String::new, |rate| format!(", {rate} a rank"));
    let time = phase.time.map_or_else(String::new, |time| format!(" in {}", in_words(time)));
    format!(
        "{} x {} samples, {} in {} steps of {}{time}{rate}",
        phase.passes, phase.samples, phase.bytes, phase.steps, phase.batch
    )
}

fn shards(analysis: &Analysis) -> String {
    let it = &analysis.shards;
    let evenly = if it.even {
        "evenly".to_owned()
    } else {
        let idle = match it.idle_workers {
            0 => String::new(),
            count => format!(", {count} workers have none"),
        };
        format!(
            "unevenly: dealt whole, the busiest worker reads {:.1} % longer{idle}",
            it.longer_percent
        )
    };
    format!(
        "{} objects of {}; {} ({}) a rank, {} ({}) a worker, {evenly}",
        it.objects, it.object, it.objects_per_rank, it.rank, it.objects_per_worker, it.worker
    )
}
