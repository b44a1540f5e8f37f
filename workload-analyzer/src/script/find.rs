//! Looks for everything that the tables know.
//!
//! Each finder is small: it goes through the calls, which have been resolved once, and asks the
//! evaluator for the arguments that a table names.

mod advice;
mod checkpoint;
mod dataset;
mod epochs;
mod imports;
mod loader;
mod phase;
mod pipeline;
mod sample;
mod table;

use std::{collections::BTreeMap, rc::Rc};

use super::{
    evaluate::{Callee, Evaluator},
    finding::{Fact, Finding, Kind},
    known::{Default, Parameter, Phase, Spec},
    parse::shortened,
    program::{Bound, Site, StepId},
    tree::{Call, Expr, How},
    value::{Certainty, Env, Known, Value},
};

/// Findings of one analysis; the rest is not looked for.
pub(super) const FINDINGS_MAX: usize = 2_000;

/// Everything found, sorted by kind and place.
pub(super) fn all(evaluator: &Evaluator<'_>) -> Vec<Finding> {
    let finder = Finder::new(evaluator);
    let mut findings = finder.imports();
    findings.extend(finder.tables());
    findings.extend(finder.loaders());
    findings.extend(finder.pipelines());
    findings.extend(finder.samples());
    findings.extend(finder.checkpoints());
    findings.extend(finder.phases());
    findings.extend(finder.epochs());
    let advice = finder.advice(&findings);
    findings.extend(advice);
    let file = |finding: &Finding| {
        let mut modules = evaluator.program.modules.iter();
        modules.position(|module| module.parsed.name == finding.file)
    };
    findings.sort_by_key(|finding| (finding.kind, file(finding), finding.line));
    findings.dedup();
    findings.truncate(FINDINGS_MAX);
    findings
}

/// A call, with what it calls.
#[derive(Debug)]
pub(super) struct Found<'a> {
    site: Site<'a>,
    /// The full name; `*.name` if only the last is known; empty for what is in these files.
    path: Rc<str>,
    on: Option<Known<'a>>,
}

/// What a call is looked up by.
fn found<'a>(evaluator: &Evaluator<'a>, site: Site<'a>) -> Found<'a> {
    let (path, on) = match evaluator.callee(site.call, &Env::at(site.step)) {
        Callee::Library(path, on) => (path, on),
        Callee::Unknown(on) => (format!("*.{}", site.call.last_name()).into(), on),
        Callee::Function(..) | Callee::Class(_) => ("".into(), None),
    };
    if &*path != "super.__init__" {
        return Found { site, path, on };
    }
    // `super().__init__(…)` is a call of what the class is derived from.
    let class = evaluator.program.class_of(site.step);
    let bases = class.map(|class| evaluator.library_bases(class)).unwrap_or_default();
    let known = bases.into_iter().find(|base| super::known::is_known(base));
    Found { site, path: known.unwrap_or(path), on: None }
}

pub(super) struct Finder<'p, 'a> {
    evaluator: &'p Evaluator<'a>,
    calls: Vec<Found<'a>>,
    /// The name that a statement assigns to, if it is one.
    names: BTreeMap<StepId, &'a str>,
}

impl<'p, 'a> Finder<'p, 'a> {
    fn new(evaluator: &'p Evaluator<'a>) -> Self {
        let calls = evaluator.program.calls.iter().map(|site| found(evaluator, *site)).collect();
        Self { evaluator, calls, names: names(evaluator) }
    }

    fn text(&self, env: &Env<'a>, expr: &Expr) -> String {
        self.evaluator.program.text(env.step, expr)
    }

    fn finding(&self, kind: Kind, what: impl Into<String>, site: &Site<'a>) -> Finding {
        let program = self.evaluator.program;
        let file = program.modules[program.module_of(site.step)].parsed.name.clone();
        Finding {
            kind,
            what: what.into(),
            file,
            line: site.expr.line,
            certainty: Certainty::Certain,
            why: None,
            facts: Vec::new(),
        }
    }

    /// What `parameters` of a call are.
    fn facts(&self, parameters: &[Parameter], call: &'a Call, env: &Env<'a>) -> Vec<Fact> {
        parameters.iter().filter_map(|parameter| self.fact(parameter, call, env)).collect()
    }

    fn fact(&self, parameter: &Parameter, call: &'a Call, env: &Env<'a>) -> Option<Fact> {
        let Parameter { name, place, default } = parameter;
        let Some(known) = self.evaluator.argument(call, env, name, *place) else {
            let known = Known::certain(match default {
                Default::Silent => return None,
                Default::None => Value::None,
                Default::Bool(bool) => Value::Bool(*bool),
                Default::Int(int) => Value::Int(*int),
                Default::Text(text) => Value::Text((*text).into()),
            });
            let text = self.shown(&known, "");
            return Some(Fact::of(name, &known, text).because("default of the library"));
        };
        let source = argument_expr(call, name, *place).map(|expr| self.text(env, expr));
        let text = self.shown(&known, source.as_deref().unwrap_or("?"));
        let mut fact = Fact::of(name, &known, text);
        if known.made().is_some_and(|made| is_computed(&made.path)) {
            (fact.certainty, fact.why) = (Certainty::Unknown, Some("computed".to_owned()));
        }
        Some(fact)
    }

    /// A value for people; what is unknown is shown as it stands in the source.
    fn shown(&self, known: &Known<'a>, source: &str) -> String {
        let program = self.evaluator.program;
        match &known.value {
            Value::None => "None".to_owned(),
            Value::Bool(true) => "True".to_owned(),
            Value::Bool(false) => "False".to_owned(),
            Value::Int(int) => int.to_string(),
            Value::Float(float) => float.to_string(),
            Value::Text(text) => shortened(text),
            Value::Sequence(items) if items.iter().all(|item| item.value.is_plain()) => {
                let items: Vec<_> = items.iter().map(|item| self.shown(item, "?")).collect();
                shortened(&format!("[{}]", items.join(", ")))
            }
            Value::Symbol(path) => path.to_string(),
            Value::Function(function) | Value::Method(function, _) => {
                program.functions[function.0].tree.name.clone()
            }
            Value::Class(class) => program.classes[class.0].tree.name.clone(),
            Value::Made(made) | Value::Instance(_, Some(made)) => self.text(&made.env, made.expr),
            Value::Any(alternatives) => {
                let shown: Vec<_> = alternatives.iter().map(|it| self.shown(it, source)).collect();
                shown.join(" or ")
            }
            _ => source.to_owned(),
        }
    }

    /// The same call as seen from each place that leads to it, and once if all see the same.
    fn in_each_context(
        &self,
        site: &Site<'a>,
        to: impl Fn(&Env<'a>) -> Option<Finding>,
    ) -> Vec<Finding> {
        let contexts = self.evaluator.contexts(&Env::at(site.step));
        let several = contexts.len() > 1;
        let mut findings: Vec<(Finding, Vec<String>)> = Vec::new();
        for env in contexts {
            let Some(finding) = to(&env) else { continue };
            let place = env.frame.as_ref().map(|frame| {
                let program = self.evaluator.program;
                program.place(frame.env.step, program.step(frame.env.step).line)
            });
            match findings.iter_mut().find(|(known, _)| *known == finding) {
                Some((_, places)) => places.extend(place),
                None => findings.push((finding, place.into_iter().collect())),
            }
        }
        let are_different = findings.len() > 1;
        let with_places = |(mut finding, places): (Finding, Vec<String>)| {
            if several && are_different {
                let called = Fact::said("called from", places.join(", "), Certainty::Certain);
                finding.facts.insert(0, called);
            }
            finding
        };
        findings.into_iter().map(with_places).collect()
    }

    /// The phase that the surroundings of a call speak of, and what says so.
    fn phase_around(&self, site: &Site<'a>, env: &Env<'a>) -> Option<(Phase, String)> {
        let program = self.evaluator.program;
        let assigned = |step| self.names.get(&step).map(|name| format!("assigned to `{name}`"));
        let mut named: Vec<String> = assigned(site.step).into_iter().collect();
        let mut frame = env.frame.as_ref();
        while let Some(current) = frame {
            let step = current.env.step;
            named.extend(assigned(step));
            named.extend(program.around(step).map(|name| format!("called in `{name}`")));
            frame = current.env.frame.as_ref();
        }
        let around = program.around(site.step).map(|name| format!("in `{name}`"));
        let mut words = named.into_iter().chain(around);
        words.find_map(|words| Phase::of_name(&words).map(|phase| (phase, words)))
    }
}

/// Whether a library computes a value, rather than making an object that a table knows.
fn is_computed(path: &str) -> bool {
    let last = path.rsplit('.').next().unwrap_or(path);
    last.starts_with(char::is_lowercase) && !super::known::is_known(path)
}

/// The expression that a call gives for a parameter.
fn argument_expr<'a>(call: &'a Call, name: &str, place: Option<usize>) -> Option<&'a Expr> {
    let by_name = call.arguments.iter().find(|it| matches!(&it.how, How::Name(it) if it == name));
    let by_place = || {
        let mut places = call.arguments.iter().filter(|it| it.how == How::Place);
        places.nth(place?)
    };
    by_name.or_else(by_place).map(|argument| &argument.value)
}

fn names<'a>(evaluator: &Evaluator<'a>) -> BTreeMap<StepId, &'a str> {
    let scopes = evaluator.program.scopes.iter().map(|scope| &scope.bindings);
    let classes = evaluator.program.classes.iter().map(|class| &class.attributes);
    let mut names = BTreeMap::new();
    for (name, bindings) in scopes.chain(classes).flatten() {
        for binding in bindings {
            if matches!(binding.what, Bound::To(_)) {
                names.insert(binding.step, *name);
            }
        }
    }
    names
}

fn spec_of<'s>(table: &'s [Spec], path: &str) -> Option<&'s Spec> {
    table.iter().find(|spec| spec.is_about(path))
}
