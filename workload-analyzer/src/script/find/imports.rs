//! Frameworks, by what is imported.

use super::Finder;
use crate::script::{
    finding::{Finding, Kind},
    known::{FRAMEWORKS, canonical},
    value::Certainty,
};

impl Finder<'_, '_> {
    pub(super) fn imports(&self) -> Vec<Finding> {
        let program = self.evaluator.program;
        let mut findings: Vec<Finding> = Vec::new();
        for module in &program.modules {
            for (step, import) in &module.imports {
                let path = canonical(import.module);
                let package = path.split('.').next().unwrap_or_default();
                let is_known = FRAMEWORKS.contains(&package) && !import.module.starts_with('.');
                // A file of the user's own may have the name of a package.
                let is_local = module.parsed.links.contains_key(import.module);
                let is_named = findings.iter().any(|finding| finding.what == package);
                if !is_known || is_local || is_named {
                    continue;
                }
                findings.push(Finding {
                    kind: Kind::Framework,
                    what: package.to_owned(),
                    file: module.parsed.name.clone(),
                    line: program.step(*step).line,
                    certainty: Certainty::Certain,
                    why: Some(match import.member {
                        Some(member) => format!("from {} import {member}", import.module),
                        None => format!("import {}", import.module),
                    }),
                    facts: Vec::new(),
                });
            }
        }
        findings
    }
}
