//! Training scripts: any text gives an analysis, and its job file is a file of YAML.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use tierfeed_workload_analyzer::{
    Job,
    job::JobError,
    script::{analyze_text, table},
};

fuzz_target!(|input: &[u8]| {
    let Ok(text) = str::from_utf8(input) else { return };
    let analysis = analyze_text("fuzz.py", text);
    let again = analyze_text("fuzz.py", text);
    // Not `==`: a value may be NaN.
    assert_eq!(format!("{analysis:?}"), format!("{again:?}"));
    let lines = u32::try_from(text.split('\n').count()).unwrap_or(u32::MAX);
    for finding in &analysis.findings {
        assert!((1..=lines).contains(&finding.line), "{finding:?} in {lines} lines");
    }
    for error in &analysis.syntax_errors {
        assert!((1..=lines).contains(&error.line), "{error:?} in {lines} lines");
    }
    let _ = table(&analysis);
    if let Err(JobError::Malformed { said, .. }) =
        Job::parse(&analysis.job_yaml, Path::new("/fuzz.yaml"))
    {
        let said = said.to_string();
        let is_incomplete = said.contains("missing field") || said.contains("EndOfStream");
        assert!(is_incomplete, "{said}:\n{}", analysis.job_yaml);
    }
});
