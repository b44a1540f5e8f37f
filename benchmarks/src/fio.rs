//! The flexible I/O tester, the reference of reads from disks.

use std::{path::Path, process::Command};

use anyhow::Context as _;
use serde::{Deserialize, de::DeserializeOwned};

use crate::processes::said;

/// The error is a sentence for users that says why there is no reference.
pub(crate) fn find(fio: &Path) -> Result<(), String> {
    let found = Command::new(fio).arg("--version").output();
    found.map(drop).map_err(|error| {
        format!(
            "no reference: {} cannot be started ({error}); install fio (Debian: apt-get install fio) or \
             name it with --fio",
            fio.display()
        )
    })
}

/// Runs fio, which was told to print JSON, and returns the first job of its report.
pub(crate) fn run<J: DeserializeOwned>(fio: &mut Command) -> anyhow::Result<J> {
    parse(&said(fio)?)
}

#[derive(Debug, Deserialize)]
struct Report<J> {
    jobs: Vec<J>,
}

/// The first job of a report. Notes about the machine may stand before the document.
pub(crate) fn parse<J: DeserializeOwned>(text: &str) -> anyhow::Result<J> {
    let document = text.find('{').map_or("", |start| &text[start..]);
    let report: Report<J> =
        serde_json::from_str(document).context("fio's report has another form than expected")?;
    report.jobs.into_iter().next().context("fio reports no job")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_behind_its_notes() {
        let text = r#"fio: a note
            {"fio version": "fio-3.33", "jobs": [{"jobname": "single"}]}"#;
        let job: serde_json::Value = parse(text).unwrap();
        assert_eq!(job["jobname"], "single");
        assert!(parse::<serde_json::Value>("fio: broken").is_err());
        assert!(parse::<serde_json::Value>(r#"{"jobs": []}"#).is_err());
    }
}
