//! What the author may not have meant, or what tierfeed cannot follow.

use super::{Finder, Found};
use crate::script::{
    finding::{Fact, Finding, Kind},
    known::family,
    tree::Kind as Tree,
    value::{Certainty, Env, Known},
};

impl<'a> Finder<'_, 'a> {
    pub(super) fn advice(&self, findings: &[Finding]) -> Vec<Finding> {
        let mut advice = Vec::new();
        for found in &self.calls {
            advice.extend(self.forgotten_epoch(found));
            advice.extend(self.random_windows(found));
            advice.extend(self.in_each_context(&found.site, |env| self.order_of_steps(found, env)));
        }
        advice.extend(Self::unseeded(findings));
        advice.extend(self.undealt(findings));
        advice
    }

    fn said(&self, what: &str, why: &str, found: &Found<'a>) -> Finding {
        let mut finding = self.finding(Kind::Advice, what, &found.site);
        finding.why = Some(why.to_owned());
        finding
    }

    /// `DistributedSampler` without `set_epoch` permutes every epoch alike.
    fn forgotten_epoch(&self, found: &Found<'a>) -> Option<Finding> {
        if &*found.path != "torch.utils.data.DistributedSampler" {
            return None;
        }
        let env = Env::at(found.site.step);
        let shuffle = self.evaluator.argument(found.site.call, &env, "shuffle", Some(3));
        let shuffles = shuffle.is_none_or(|shuffle| shuffle.bool() != Some(false));
        let is_set = self.calls.iter().any(|it| it.site.call.last_name() == "set_epoch");
        let sets_itself = self.distributes_by_itself().is_some();
        (shuffles && !is_set && !sets_itself).then(|| {
            let why = "every epoch has the same order; call sampler.set_epoch(epoch) before each";
            let mut finding = self.said("set_epoch is never called", why, found);
            finding.certainty = Certainty::Likely;
            finding
        })
    }

    /// Windows at random places of a file of tokens are no permutation of samples.
    fn random_windows(&self, found: &Found<'a>) -> Option<Finding> {
        if !matches!(&*found.path, "torch.randint" | "numpy.random.randint" | "numpy.random.choice")
        {
            return None;
        }
        let program = self.evaluator.program;
        let function = program.function_of(found.site.step)?;
        let reads_tokens = |it: &&Found<'a>| {
            let is_map = matches!(&*it.path, "numpy.memmap" | "numpy.fromfile");
            is_map && program.module_of(it.site.step) == program.module_of(found.site.step)
        };
        self.calls.iter().find(reads_tokens)?;
        // The bound of the draw is the length of what is read.
        let bound = found.site.call.arguments.iter().any(|argument| {
            let mut open = vec![&argument.value];
            while let Some(expr) = open.pop() {
                if matches!(&expr.kind, Tree::Call(call) if call.last_name() == "len") {
                    return true;
                }
                open.extend(expr.children());
            }
            false
        });
        bound.then(|| {
            let name = &program.functions[function.0].tree.name;
            let why = "windows overlap and repeat: no order of a job file is this one";
            let mut finding = self.said("samples are windows at random places", why, found);
            finding.facts.push(Fact::said("in", name.clone(), Certainty::Certain));
            finding.certainty = Certainty::Likely;
            finding
        })
    }

    /// Steps of a pipeline that stand in an order that is seldom meant.
    fn order_of_steps(&self, found: &Found<'a>, env: &Env<'a>) -> Option<Finding> {
        let of = family(&found.path).filter(|it| it.name == "tensorflow.data.Dataset")?;
        let method = found.path.strip_prefix(of.name)?.strip_prefix('.')?;
        let on = self.evaluator.eval(found.site.call.receiver()?, env);
        let before = |name: &str| is_behind(&on, &format!("{}.{name}", of.name));
        match method {
            "cache" if before("shuffle") => Some(self.said(
                "cache behind shuffle",
                "the first epoch's order is kept for all epochs; cache before the shuffle",
                found,
            )),
            "shuffle" if before("batch") => Some(self.said(
                "shuffle behind batch",
                "batches are shuffled, not samples; shuffle before the batch",
                found,
            )),
            "shuffle" if before("repeat") => Some(self.said(
                "shuffle behind repeat",
                "samples of one epoch mix with those of the next; shuffle before the repeat",
                found,
            )),
            _ => None,
        }
    }

    /// Several processes, and a loader that gives each of them everything.
    fn undealt(&self, findings: &[Finding]) -> Vec<Finding> {
        const DEALERS: [&str; 4] = [
            "torch.utils.data.DistributedSampler",
            "accelerate.Accelerator",
            "lightning.Trainer",
            "deepspeed.initialize",
        ];
        let calls = |path: &str| self.calls.iter().any(|found| &*found.path == path);
        let is_distributed = calls("torch.nn.parallel.DistributedDataParallel")
            || calls("torch.distributed.init_process_group");
        if !is_distributed || DEALERS.into_iter().any(calls) {
            return Vec::new();
        }
        let is_undealt = |it: &&Finding| {
            let is_plain = it.fact("sampler").is_some_and(|fact| fact.text == "None");
            let is_training = it.fact("phase").is_none_or(|fact| fact.text == "training");
            it.kind == Kind::Loader && is_plain && is_training && it.fact("batch_sampler").is_none()
        };
        let advice = findings.iter().filter(is_undealt).map(|loader| Finding {
            kind: Kind::Advice,
            what: "several ranks, but no sampler that deals samples to them".to_owned(),
            why: Some("every rank reads the whole dataset; use DistributedSampler".to_owned()),
            certainty: Certainty::Likely,
            facts: Vec::new(),
            ..loader.clone()
        });
        advice.collect()
    }

    /// An order that is drawn from a generator which nobody seeds.
    fn unseeded(findings: &[Finding]) -> Vec<Finding> {
        let is_seeded = findings.iter().any(|it| {
            it.kind == Kind::Seed
                && [
                    "torch.manual_seed",
                    "lightning.seed_everything",
                    "transformers.set_seed",
                    "accelerate.utils.set_seed",
                    "composer.utils.reproducibility.seed_all",
                ]
                .contains(&it.what.as_str())
        });
        let draws = |it: &&Finding| {
            let order = it.fact("order.shuffle").map(|fact| fact.text.as_str());
            it.kind == Kind::Loader
                && order.is_some_and(|order| order == "torch-random")
                && it.fact("generator").is_none()
        };
        let unseeded = findings.iter().filter(draws).filter(|_| !is_seeded);
        let advice = unseeded.map(|loader| Finding {
            kind: Kind::Advice,
            what: "the shuffle has no seed".to_owned(),
            why: Some(
                "no run is like another; call torch.manual_seed first, or publish the order"
                    .to_owned(),
            ),
            certainty: Certainty::Likely,
            facts: Vec::new(),
            ..loader.clone()
        });
        advice.collect()
    }
}

/// Whether a step of this name comes before, on every way.
fn is_behind(on: &Known<'_>, path: &str) -> bool {
    const STEPS_MAX: usize = 64;

    let mut known = on.clone();
    for _ in 0..STEPS_MAX {
        let alternatives = known.alternatives();
        let Some(made) = alternatives.iter().find_map(Known::made) else { return false };
        if &*made.path == path {
            return alternatives.len() == 1;
        }
        let Some(before) = made.on.clone() else { return false };
        known = before;
    }
    false
}
