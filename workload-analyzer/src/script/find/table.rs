//! Findings that are no more than a call and its arguments: processes, datasets, caches, seeds.

use super::{Finder, Found, spec_of};
use crate::script::{
    finding::{Fact, Finding, Kind},
    known::{CACHES, DATASETS, DISTRIBUTION, Format, OUT_OF_FILES, SEEDS, Spec},
    program::ClassId,
    tree::{Expr, Kind as Tree},
    value::{Certainty, Env},
};

/// Variables that a launcher sets for each process.
const LAUNCHER: [&str; 8] = [
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "RANK",
    "SLURM_LOCALID",
    "SLURM_PROCID",
    "TF_CONFIG",
    "WORLD_SIZE",
];

/// A cache that needs one of these arguments to be one.
const ONLY_WITH: [(&str, &str); 3] = [
    ("webdataset.WebDataset", "cache_dir"),
    ("streaming.StreamingDataset", "local"),
    ("ffcv.loader.Loader", "os_cache"),
];

impl<'a> Finder<'_, 'a> {
    pub(super) fn tables(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for found in &self.calls {
            for table in [DISTRIBUTION, DATASETS, CACHES, SEEDS] {
                if let Some(spec) = spec_of(table, &found.path) {
                    findings.extend(
                        self.in_each_context(&found.site, |env| self.of_table(spec, found, env)),
                    );
                }
            }
            findings.extend(self.reader(found));
            findings.extend(self.launcher(found));
        }
        findings.extend(self.classes());
        findings.extend(self.decorators());
        findings.extend(self.environment());
        findings
    }

    fn of_table(&self, spec: &Spec, found: &Found<'a>, env: &Env<'a>) -> Option<Finding> {
        let facts = self.facts(spec.parameters, found.site.call, env);
        let needs =
            ONLY_WITH.iter().find(|(path, _)| spec.kind == Kind::Cache && *path == spec.path);
        if needs.is_some_and(|(_, name)| !facts.iter().any(|fact| fact.name == *name)) {
            return None;
        }
        let what = match spec.says {
            "" => found.path.to_string(),
            says => format!("{}: {says}", found.path),
        };
        let mut finding = self.finding(spec.kind, what, &found.site);
        if spec.path.starts_with('*') {
            finding.certainty = Certainty::Likely;
            finding.why = Some("by its name; what it is called on is not followed".to_owned());
        }
        finding.facts = facts;
        Some(finding)
    }

    fn reader(&self, found: &Found<'a>) -> Option<Finding> {
        let spec = spec_of(OUT_OF_FILES, &found.path)?;
        let around = self.class_of(found);
        // Elsewhere these read a model or a state rather than samples.
        let is_any =
            matches!(spec.path, "torch.load" | "pickle.load" | "safetensors.torch.load_file");
        if is_any && !around.is_some_and(|class| self.is_dataset(class)) {
            return None;
        }
        let mut finding = self.of_table(spec, found, &Env::at(found.site.step))?;
        finding.facts.extend(
            self.evaluator
                .program
                .around(found.site.step)
                .map(|name| Fact::said("in", name, Certainty::Certain)),
        );
        if let Some(format) = self.format_read(found) {
            finding.facts.push(format);
        }
        Some(finding)
    }

    /// Datasets that these files define.
    fn classes(&self) -> Vec<Finding> {
        let program = self.evaluator.program;
        let classes = program.classes.iter().enumerate().map(|(id, class)| (ClassId(id), class));
        let datasets = classes.filter(|(id, _)| self.is_dataset(*id));
        let finding = |(id, class): (ClassId, &crate::script::program::Class<'a>)| Finding {
            kind: Kind::Dataset,
            what: format!("class {}", class.tree.name),
            file: program.modules[program.module_of(class.step)].parsed.name.clone(),
            line: program.step(class.step).line,
            certainty: Certainty::Certain,
            why: None,
            facts: {
                let bases = self.evaluator.library_bases(id);
                bases.iter().map(|it| Fact::said("is a", &**it, Certainty::Certain)).collect()
            },
        };
        datasets.map(finding).collect()
    }

    pub(super) fn class_of(&self, found: &Found<'a>) -> Option<ClassId> {
        self.evaluator.program.class_of(found.site.step)
    }

    /// Whether a loader can read from objects of this class.
    pub(super) fn is_dataset(&self, class: ClassId) -> bool {
        let scope = self.evaluator.program.classes[class.0].scope;
        let bindings = &self.evaluator.program.scopes[scope.0].bindings;
        bindings.contains_key("__getitem__")
            || self.evaluator.library_bases(class).iter().any(|base| base.ends_with("Dataset"))
    }

    /// The format that holds what a function reads.
    pub(super) fn format_read(&self, found: &Found<'a>) -> Option<Fact> {
        let format = Format::of(&found.path)?;
        let program = self.evaluator.program;
        let text = &program.modules[program.module_of(found.site.step)].parsed.text;
        let likely = |name: &str| Fact::said("format", name, Certainty::Likely);
        Some(match format {
            Format::Named(name) => likely(name).because(format!("read by {}", found.path)),
            Format::ByName => match (text.contains(".npz"), text.contains(".npy")) {
                (true, false) => likely("npz").because("the file speaks of .npz"),
                (false, true) => likely("npy").because("the file speaks of .npy"),
                _ => Fact {
                    value: crate::script::finding::Literal::Nothing,
                    ..Fact::said("format", "npy or npz", Certainty::Unknown)
                        .because("nothing here says which")
                },
            },
            Format::Synthetic | Format::Whole | Format::Foreign(_) | Format::Inner => return None,
        })
    }

    /// `os.environ.get("LOCAL_RANK")`
    fn launcher(&self, found: &Found<'a>) -> Option<Finding> {
        let is_read = matches!(&*found.path, "os.environ.get" | "os.getenv");
        let name = found.site.call.arguments.first().filter(|_| is_read)?;
        let Tree::Text(name) = &name.value.kind else { return None };
        LAUNCHER.contains(&name.as_str()).then(|| {
            self.finding(Kind::Distribution, format!("{name} of the environment"), &found.site)
        })
    }

    /// `@lru_cache` on a method; a bare decorator is no call.
    fn decorators(&self) -> Vec<Finding> {
        let program = self.evaluator.program;
        let mut findings = Vec::new();
        for function in &program.functions {
            for decorator in &function.tree.decorators {
                let known = self.evaluator.eval(decorator, &Env::at(function.step));
                let crate::script::value::Value::Symbol(path) = known.value else { continue };
                let Some(spec) = spec_of(CACHES, &path) else { continue };
                findings.push(Finding {
                    kind: spec.kind,
                    what: format!("{path} of `{}`: {}", function.tree.name, spec.says),
                    file: program.modules[program.module_of(function.step)].parsed.name.clone(),
                    line: decorator.line,
                    certainty: Certainty::Certain,
                    why: None,
                    facts: Vec::new(),
                });
            }
        }
        findings
    }

    /// `os.environ["RANK"]` is no call either: it is looked for where values are bound or passed.
    fn environment(&self) -> Vec<Finding> {
        let program = self.evaluator.program;
        let mut findings = Vec::new();
        let bound = program.scopes.iter().flat_map(|scope| scope.bindings.values().flatten());
        let bound = bound.filter_map(|binding| match binding.what {
            crate::script::program::Bound::To(value) => Some((binding.step, value)),
            _ => None,
        });
        let passed = program.calls.iter().flat_map(|site| {
            site.call.arguments.iter().map(|argument| (site.step, &argument.value))
        });
        for (step, expr) in bound.chain(passed) {
            let Some(name) = variable(expr).filter(|name| LAUNCHER.contains(name)) else {
                continue;
            };
            findings.push(Finding {
                kind: Kind::Distribution,
                what: format!("{name} of the environment"),
                file: program.modules[program.module_of(step)].parsed.name.clone(),
                line: expr.line,
                certainty: Certainty::Certain,
                why: None,
                facts: Vec::new(),
            });
        }
        findings
    }
}

/// `NAME` of `os.environ["NAME"]`.
fn variable(expr: &Expr) -> Option<&str> {
    let Tree::Item(base, key) = &expr.kind else { return None };
    match (&base.kind, &key.kind) {
        (Tree::Attribute(_, environ), Tree::Text(name)) if environ == "environ" => Some(name),
        (Tree::Name(environ), Tree::Text(name)) if environ == "environ" => Some(name),
        _ => None,
    }
}
