//! How many times the data is gone through.

use super::{Finder, spec_of};
use crate::script::{
    finding::{Fact, Finding, Kind, Literal},
    known::EPOCHS,
    program::Loop,
    tree::{Expr, Kind as Tree},
    value::{Certainty, Env, Known, Value},
};

impl<'a> Finder<'_, 'a> {
    pub(super) fn epochs(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for found in &self.calls {
            let Some(spec) = spec_of(EPOCHS, &found.path) else { continue };
            findings.extend(self.in_each_context(&found.site, |env| {
                let facts = self.facts(spec.parameters, found.site.call, env);
                let what = found.path.trim_start_matches("*.");
                let mut finding = self.finding(Kind::Epochs, what, &found.site);
                finding.facts = facts.into_iter().flat_map(named_alike).collect();
                (!finding.facts.is_empty()).then_some(finding)
            }));
        }
        findings.extend(self.evaluator.program.loops.iter().filter_map(|it| self.epoch_loop(it)));
        findings
    }

    /// `for epoch in range(start, epochs)`
    fn epoch_loop(&self, found: &Loop<'a>) -> Option<Finding> {
        let target = match &found.target?.kind {
            Tree::Name(name) => name.as_str(),
            _ => return None,
        };
        if !target.to_ascii_lowercase().contains("epoch") && target != "ep" {
            return None;
        }
        let env = Env::at(found.step);
        let (start, end) = self.range(found.over, &env)?;
        let program = self.evaluator.program;
        let known = passes(&start, &end);
        let text = self.shown(&known, &self.text(&env, found.over));
        let mut facts = vec![Fact::of("epochs", &known, text)];
        if start.int() != Some(0) {
            facts.push(Fact::of("start", &start, self.shown(&start, "?")));
        }
        Some(Finding {
            kind: Kind::Epochs,
            what: format!("for {target} in {}", self.text(&env, found.over)),
            file: program.modules[program.module_of(found.step)].parsed.name.clone(),
            line: program.step(found.step).line,
            certainty: Certainty::Certain,
            why: None,
            facts,
        })
    }

    /// The bounds of a `range`, through whatever shows progress around it.
    fn range(&self, over: &'a Expr, env: &Env<'a>) -> Option<(Known<'a>, Known<'a>)> {
        let Tree::Call(call) = &over.kind else { return None };
        let eval =
            |index: usize| call.arguments.get(index).map(|it| self.evaluator.eval(&it.value, env));
        let zero = || Known::certain(Value::Int(0));
        match call.last_name() {
            "range" | "trange" => match (eval(0), eval(1)) {
                (Some(start), Some(end)) => Some((start, end)),
                (Some(end), None) => Some((zero(), end)),
                _ => None,
            },
            "tqdm" | "track" | "master_bar" => self.range(&call.arguments.first()?.value, env),
            _ => None,
        }
    }
}

fn passes<'a>(start: &Known<'a>, end: &Known<'a>) -> Known<'a> {
    match (start.int(), end.int()) {
        (Some(start_at), Some(end_at)) => {
            let mut known =
                Known::from_all(Value::Int(end_at.saturating_sub(start_at)), &[start, end]);
            known.why = end.why.clone().or(known.why);
            known
        }
        // A run that is resumed starts later, and ends at the same epoch.
        (None, Some(_)) if start.is_unknown() => {
            end.clone().likely(|| "from the first epoch".to_owned())
        }
        _ => end.clone(),
    }
}

/// `epochs` in whatever words; steps are no epochs.
fn named_alike(fact: Fact) -> Vec<Fact> {
    match fact.name {
        "max_epochs" | "num_train_epochs" | "num_epochs" => {
            let whole = match fact.value {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "checked to be a small whole number"
                )]
                Literal::Float(float) if float.fract() == 0.0 && float.abs() < 1e9 => {
                    Literal::Int(float as i64)
                }
                ref other => other.clone(),
            };
            vec![Fact { name: "epochs", value: whole, ..fact }]
        }
        "max_duration" => {
            let passes = fact.str().and_then(|text| text.strip_suffix("ep")?.parse().ok());
            let epochs = passes.map(|passes| Fact {
                name: "epochs",
                value: Literal::Int(passes),
                text: passes.to_string(),
                ..fact.clone()
            });
            [fact].into_iter().chain(epochs).collect()
        }
        "count" => vec![Fact { name: "repeat", ..fact }],
        _ => vec![fact],
    }
}
