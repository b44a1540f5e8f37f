//! Prints an analysis for people.

use std::fmt::Write as _;

use super::{Analysis, Certainty, Fact, Finding};

/// The lines that `tierfeed analyze --script` shows.
#[must_use]
pub fn table(analysis: &Analysis) -> String {
    let mut text = String::new();
    let mut kind = None;
    for finding in &analysis.findings {
        if kind.replace(finding.kind) != Some(finding.kind) {
            let gap = if text.is_empty() { "" } else { "\n" };
            line(&mut text, &format!("{gap}{}", finding.kind.name()));
        }
        show(&mut text, finding);
    }
    if analysis.findings.is_empty() {
        line(&mut text, "nothing of PyTorch, TensorFlow or JAX was found");
    }
    section(&mut text, "not Python", &analysis.syntax_errors, |it| {
        format!("{}:{}  {}", it.file, it.line, it.what)
    });
    section(&mut text, "left out", &analysis.left_out, Clone::clone);
    section(
        &mut text,
        "contradictions with the job",
        &analysis.contradictions,
        ToString::to_string,
    );
    line(&mut text, "\njob file that this suggests");
    for suggested in analysis.job_yaml.lines() {
        line(&mut text, &format!("  {suggested}"));
    }
    text
}

fn section<T>(text: &mut String, title: &str, items: &[T], show: impl Fn(&T) -> String) {
    if !items.is_empty() {
        line(text, &format!("\n{title}"));
    }
    for item in items {
        line(text, &format!("  {}", show(item)));
    }
}

fn show(text: &mut String, finding: &Finding) {
    let sure = sure(finding.certainty, finding.why.as_deref());
    let place = format!("{}:{}", finding.file, finding.line);
    line(text, &format!("  {place}  {}{sure}", finding.what));
    for Fact { name, text: value, certainty, why, .. } in &finding.facts {
        line(text, &format!("    {name:<19} {value}{}", self::sure(*certainty, why.as_deref())));
    }
}

/// What is certain needs no word, but for where it comes from.
fn sure(certainty: Certainty, why: Option<&str>) -> String {
    match (certainty, why) {
        (Certainty::Certain, None) => String::new(),
        (Certainty::Certain, Some(why)) => format!("  ({why})"),
        (certainty, None) => format!("  [{certainty}]"),
        (certainty, Some(why)) => format!("  [{certainty}: {why}]"),
    }
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{}", line.trim_end()).expect("writing to a string cannot fail");
}
