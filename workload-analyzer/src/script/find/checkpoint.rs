//! Checkpoints: what writes the model, and how often.

use super::{Finder, Found, spec_of};
use crate::script::{
    evaluate::every,
    finding::{Fact, Finding, Kind},
    known::CHECKPOINTS,
    program::StepId,
    value::{Certainty, Env, Frame},
};

impl<'a> Finder<'_, 'a> {
    pub(super) fn checkpoints(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for found in &self.calls {
            if let Some(spec) = spec_of(CHECKPOINTS, &found.path) {
                findings.extend(self.in_each_context(&found.site, |env| {
                    let mut finding = self.checkpoint(spec, found);
                    finding.facts = self.facts(spec.parameters, found.site.call, env);
                    // A saving object says itself when it saves; a call saves when it is reached.
                    if !found.path.ends_with("Checkpoint") && !found.path.ends_with("Arguments") {
                        finding.facts.extend(self.how_often(env));
                    }
                    Some(finding)
                }));
            }
            findings.extend(self.model_save(found));
        }
        findings
    }

    fn checkpoint(&self, spec: &crate::script::known::Spec, found: &Found<'a>) -> Finding {
        let what = found.path.trim_start_matches("*.").to_owned();
        let mut finding = self.finding(Kind::Checkpoint, what, &found.site);
        if spec.path.starts_with('*') {
            finding.certainty = Certainty::Likely;
            finding.why = Some("by its name".to_owned());
        }
        finding
    }

    /// `model.save(path)`: of many things that have a `save`, those called a model or a checkpoint.
    fn model_save(&self, found: &Found<'a>) -> Option<Finding> {
        let is_save = found.site.call.last_name() == "save";
        let receiver = found.site.call.receiver().filter(|_| is_save)?;
        let env = Env::at(found.site.step);
        let name = self.text(&env, receiver).to_lowercase();
        let is_model =
            ["model", "net", "checkpoint", "ckpt", "manager"].iter().any(|it| name.contains(it));
        if spec_of(CHECKPOINTS, &found.path).is_some() || !is_model || name.contains("image") {
            return None;
        }
        let mut finding = self.finding(Kind::Checkpoint, format!("{name}.save"), &found.site);
        finding.certainty = Certainty::Likely;
        finding.why = Some("by its name".to_owned());
        finding.facts.extend(self.how_often(&env));
        Some(finding)
    }

    /// The conditions and loops around a call, and around the calls that lead to it.
    fn how_often(&self, env: &Env<'a>) -> Vec<Fact> {
        let mut facts = self.conditions(env.step, env);
        let mut frame: Option<&std::rc::Rc<Frame<'a>>> = env.frame.as_ref();
        while let Some(current) = frame {
            facts.extend(self.conditions(current.env.step, &current.env));
            frame = current.env.frame.as_ref();
        }
        facts
    }

    fn conditions(&self, step: StepId, env: &Env<'a>) -> Vec<Fact> {
        let program = self.evaluator.program;
        let mut facts = Vec::new();
        for number in &*program.step(step).loops {
            let found = &program.loops[*number];
            let at = Env { step: found.step, frame: env.frame.clone() };
            let over = self.text(&at, found.over);
            let place = program.place(found.step, program.step(found.step).line);
            let words = match found.target {
                Some(target) => format!("for {} in {over}", self.text(&at, target)),
                None => format!("while {over}"),
            };
            facts.push(Fact::said("in the loop", words, Certainty::Certain).because(place));
        }
        for arm in &*program.step(step).arms {
            let branch = &program.branches[arm.branch];
            let Some(test) = branch.test else { continue };
            let at = Env { step: branch.step, frame: env.frame.clone() };
            if let Some((what, count)) = every(test).filter(|_| arm.arm == 0) {
                let known = self.evaluator.eval(count, &at);
                let shown = self.shown(&known, &self.text(&at, count));
                let of = self.text(&at, what);
                facts.push(Fact::of("every", &known, format!("{shown} of `{of}`")));
            }
            let words = self.text(&at, test);
            if words.starts_with("__name__") {
                continue;
            }
            let words = if arm.arm == 0 { words } else { format!("not ({words})") };
            facts.push(Fact::said("if", words, Certainty::Certain));
        }
        facts
    }
}
