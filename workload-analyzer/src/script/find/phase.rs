//! Phases: which functions and loops train, validate or evaluate.

use std::collections::BTreeMap;

use super::Finder;
use crate::script::{
    finding::{Fact, Finding, Kind},
    known::{Phase, TRAINING},
    program::{FunctionId, StepId},
    tree::Expr,
    value::{Certainty, Env},
};

/// Hooks of Lightning modules, which say their phase by their name.
const HOOKS: [(&str, Phase); 4] = [
    ("training_step", Phase::Training),
    ("validation_step", Phase::Validation),
    ("test_step", Phase::Evaluation),
    ("predict_step", Phase::Evaluation),
];

/// A call that tells a phase: its statement, line and name.
type Telling<'t> = (StepId, u32, &'t str, Phase);

impl<'a> Finder<'_, 'a> {
    pub(super) fn phases(&self) -> Vec<Finding> {
        let mut by_function: BTreeMap<Option<FunctionId>, Vec<Telling<'_>>> = BTreeMap::new();
        for found in &self.calls {
            let name = found.site.call.last_name();
            let Some((_, phase)) = TRAINING.iter().find(|(it, _)| *it == name) else { continue };
            // `model.train(False)` evaluates, and functions of these files are looked into themselves.
            let is_own = found.path.is_empty();
            let is_false = found.site.call.arguments.first().is_some_and(|argument| {
                matches!(argument.value.kind, crate::script::tree::Kind::Bool(false))
            });
            if is_own || (name == "train" && is_false) || is_plain_function(found) {
                continue;
            }
            let function = self.decorated(found.site.expr);
            let function = function.or(self.evaluator.program.function_of(found.site.step));
            let line = found.site.expr.line;
            by_function.entry(function).or_default().push((found.site.step, line, name, *phase));
        }
        let mut findings: Vec<_> = by_function
            .into_iter()
            .flat_map(|(function, calls)| self.phase(function, &calls))
            .collect();
        findings.extend(self.hooks());
        findings
    }

    /// The function that an expression decorates.
    fn decorated(&self, expr: &Expr) -> Option<FunctionId> {
        let mut functions = self.evaluator.program.functions.iter();
        let decorates = |decorator: &Expr| std::ptr::eq(decorator, expr);
        functions.position(|it| it.tree.decorators.iter().any(decorates)).map(FunctionId)
    }

    fn phase(&self, function: Option<FunctionId>, calls: &[Telling<'_>]) -> Vec<Finding> {
        let program = self.evaluator.program;
        let trains: Vec<_> = calls.iter().filter(|(.., phase)| *phase == Phase::Training).collect();
        let rests: Vec<_> = calls.iter().filter(|(.., phase)| *phase != Phase::Training).collect();
        // Whoever evaluates puts the model back to training at the end.
        let is_restored =
            !rests.is_empty() && trains.iter().all(|(_, _, name, _)| *name == "train");
        let trains = if is_restored && function.is_some() { Vec::new() } else { trains };
        let mut findings = Vec::new();
        for (calls, is_training) in [(trains, true), (rests, false)] {
            let Some((step, line, ..)) = calls.first() else { continue };
            let (place, name) = match function {
                Some(function) => {
                    let found = &program.functions[function.0];
                    (program.step(found.step).line, found.tree.name.as_str())
                }
                None => (*line, "the file"),
            };
            let named = Phase::of_name(name);
            let phase = match (is_training, named) {
                (true, _) => Phase::Training,
                (false, Some(phase)) if phase != Phase::Training => phase,
                (false, _) => {
                    calls.iter().map(|(.., phase)| *phase).min().unwrap_or(Phase::Evaluation)
                }
            };
            let words: Vec<_> =
                calls.iter().map(|(_, line, name, _)| format!("{name} ({line})")).collect();
            let mut finding = Finding {
                kind: Kind::Phase,
                what: format!("{}: {name}", phase.name()),
                file: program.modules[program.module_of(*step)].parsed.name.clone(),
                line: place,
                certainty: Certainty::Likely,
                why: Some(format!("calls {}", words.join(", "))),
                facts: Vec::new(),
            };
            finding.facts = self.loops_of(function, calls.iter().map(|(step, ..)| *step));
            findings.push(finding);
        }
        findings
    }

    /// What the loops around these statements go through.
    fn loops_of(
        &self,
        function: Option<FunctionId>,
        steps: impl Iterator<Item = StepId>,
    ) -> Vec<Fact> {
        let program = self.evaluator.program;
        let mut loops: Vec<usize> =
            steps.flat_map(|step| program.step(step).loops.to_vec()).collect();
        // `model.eval()` stands before the loop that it is about.
        if loops.is_empty() && function.is_some() {
            let own = program.loops.iter().enumerate();
            let own = own.filter(|(_, it)| program.function_of(it.step) == function);
            loops.extend(own.map(|(number, _)| number));
        }
        loops.sort_unstable();
        loops.dedup();
        let facts = loops.into_iter().filter_map(|number| {
            let found = &program.loops[number];
            let env = Env::at(found.step);
            found.target?;
            let loader = self.loader_of(found.over, &env)?;
            let text = self.text(&env, found.over);
            let place = program.place(found.step, program.step(found.step).line);
            Some(Fact::said("reads", format!("{text}: {loader}"), Certainty::Likely).because(place))
        });
        facts.collect()
    }

    /// The loader or pipeline that a loop goes through.
    fn loader_of(&self, over: &'a Expr, env: &Env<'a>) -> Option<String> {
        let mut known = self.evaluator.eval(over, env);
        // Through `enumerate`, `tqdm` and whatever else goes around it.
        for _ in 0..4 {
            let alternatives = known.alternatives();
            let made = alternatives.iter().find_map(|it| it.made())?.clone();
            let is_loader = super::spec_of(crate::script::known::LOADERS, &made.path).is_some();
            if is_loader || crate::script::known::family(&made.path).is_some() {
                let name = super::dataset::last(&made.path).to_owned();
                return Some(format!("{name} at {}", self.evaluator.place_of(&made)));
            }
            known = self.evaluator.argument(made.call, &made.env, "", Some(0))?;
        }
        None
    }

    fn hooks(&self) -> Vec<Finding> {
        let program = self.evaluator.program;
        let mut findings = Vec::new();
        for function in &program.functions {
            let name = function.tree.name.as_str();
            let hook =
                HOOKS.iter().find(|(hook, _)| *hook == name).filter(|_| function.class.is_some());
            let Some((_, phase)) = hook else { continue };
            findings.push(Finding {
                kind: Kind::Phase,
                what: format!("{}: {name}", phase.name()),
                file: program.modules[program.module_of(function.step)].parsed.name.clone(),
                line: program.step(function.step).line,
                certainty: Certainty::Certain,
                why: Some("a hook of Lightning".to_owned()),
                facts: Vec::new(),
            });
        }
        findings
    }
}

/// `evaluate(model)` of a library without a dot is a function like any other.
fn is_plain_function(found: &super::Found<'_>) -> bool {
    found.site.call.receiver().is_none() && found.path.starts_with("*.")
}
