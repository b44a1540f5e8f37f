//! Where a script does something else than a job file says.
//!
//! Only what is at least likely is compared: a value that is unknown contradicts nothing.

use std::fmt;

use serde::Serialize;

use super::{Certainty, Fact, Finding, suggest};
use crate::Job;

/// A key of the job file that the script disagrees with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Contradiction {
    /// In the job file.
    pub key: &'static str,
    /// What the job file says.
    pub job: String,
    /// What the script says.
    pub script: String,
    /// Where the script says so.
    pub file: String,
    /// Counts from 1.
    pub line: u32,
    /// How sure the script's value is.
    pub certainty: Certainty,
    /// Where the script's value comes from.
    pub why: Option<String>,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, job, script, file, line, certainty, why } = self;
        write!(f, "{key}: {job} in the job, {script} at {file}:{line} [{certainty}")?;
        why.as_ref().map_or(Ok(()), |why| write!(f, ": {why}"))?;
        f.write_str("]")
    }
}

pub(super) fn contradictions(findings: &[Finding], job: &Job) -> Vec<Contradiction> {
    let Some(loader) = suggest::main_loader(findings) else { return Vec::new() };
    let mut found = Vec::new();
    let mut number = |key, place: &Finding, fact: Option<&Fact>, job: u64| {
        let script = fact.and_then(Fact::int);
        if let (Some(fact), Some(script)) = (fact, script)
            && u64::try_from(script) != Ok(job)
        {
            found.push(contradiction(key, job.to_string(), place, fact));
        }
    };
    number("batch_size", loader, loader.fact("batch_size"), job.batch_size.into());
    if let Some((place, fact)) = suggest::epochs(findings) {
        number("order.epochs", place, Some(fact), job.epochs.into());
    }
    let order = suggest::order(loader);
    let job_order = job.shuffle.name();
    if order == Some(job_order) && order != Some("sequential") && order != Some("published") {
        number("order.seed", loader, suggest::seed(findings, loader), job.seed);
    }
    // A published order is whatever the trainer reads.
    if let Some(fact) = loader.fact("order.shuffle").filter(|_| order.is_some())
        && order != Some(job_order)
        && job_order != "published"
    {
        found.push(contradiction("order.shuffle", job_order.to_owned(), loader, fact));
    }
    let format = loader.fact("format").filter(|fact| fact.str().is_some());
    if let Some(fact) = format.filter(|fact| fact.str() != Some(job.dataset.format.name())) {
        found.push(contradiction(
            "dataset.format",
            job.dataset.format.name().to_owned(),
            loader,
            fact,
        ));
    }
    found.extend(drop_last(loader, job));
    found.extend(world(findings, job));
    found
}

/// The job's `drop_last` is that of the sampler, which cuts an epoch to a multiple of the ranks.
fn drop_last(loader: &Finding, job: &Job) -> Option<Contradiction> {
    let fact = loader.fact("sampler.drop_last")?;
    let differs = fact.bool()? != job.drop_last;
    differs.then(|| contradiction("order.drop_last", job.drop_last.to_string(), loader, fact))
}

fn world(findings: &[Finding], job: &Job) -> Option<Contradiction> {
    let (place, ranks, nodes) = suggest::ranks(findings)?;
    let (of_job, of_script) =
        ((i64::from(job.world.nodes), i64::from(job.world.ranks_per_node)), (nodes, ranks));
    (of_job != of_script).then(|| Contradiction {
        key: "world",
        job: format!("{} nodes of {} ranks", of_job.0, of_job.1),
        script: format!("{nodes} nodes of {ranks} ranks"),
        file: place.file.clone(),
        line: place.line,
        certainty: Certainty::Likely,
        why: Some(place.what.clone()),
    })
}

fn contradiction(key: &'static str, job: String, place: &Finding, fact: &Fact) -> Contradiction {
    Contradiction {
        key,
        job,
        script: fact.text.clone(),
        file: place.file.clone(),
        line: place.line,
        certainty: fact.certainty,
        why: fact.why.clone(),
    }
}
