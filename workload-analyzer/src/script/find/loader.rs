//! Loaders: their arguments, what they read, which phase they serve, and which order they read in.

mod order;

use super::{Finder, Found, dataset::Origin, spec_of};
use crate::script::{
    finding::{Fact, Finding, Kind, Literal},
    known::{Default, LOADERS, Parameter, Phase},
    value::{Certainty, Env, Known, Value},
};

/// # Source
///
/// `TrainingArguments` of Transformers 4 and 5.
const HUGGING_FACE: &[Parameter] = &[
    Parameter { name: "per_device_train_batch_size", place: None, default: Default::Int(8) },
    Parameter { name: "dataloader_num_workers", place: None, default: Default::Int(0) },
    Parameter { name: "dataloader_drop_last", place: None, default: Default::Bool(false) },
    Parameter { name: "dataloader_prefetch_factor", place: None, default: Default::Silent },
    Parameter { name: "gradient_accumulation_steps", place: None, default: Default::Silent },
    Parameter { name: "group_by_length", place: None, default: Default::Silent },
    Parameter { name: "seed", place: None, default: Default::Int(42) },
    Parameter { name: "data_seed", place: None, default: Default::Silent },
];

/// Arguments of a dataset that the order depends on.
const ORDER: [&str; 4] =
    ["shuffle_algo", "shuffle_seed", "shuffle_block_size", "num_canonical_nodes"];

/// Hooks of Lightning modules and data modules.
const HOOKS: [(&str, Phase); 4] = [
    ("train_dataloader", Phase::Training),
    ("val_dataloader", Phase::Validation),
    ("test_dataloader", Phase::Evaluation),
    ("predict_dataloader", Phase::Evaluation),
];

impl<'a> Finder<'_, 'a> {
    pub(super) fn loaders(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for found in &self.calls {
            if let Some(spec) = spec_of(LOADERS, &found.path) {
                let loader = |env: &Env<'a>| Some(self.loader(spec.parameters, found, env));
                findings.extend(self.in_each_context(&found.site, loader));
            }
            if matches!(&*found.path, "transformers.Trainer" | "transformers.Seq2SeqTrainer") {
                findings.extend(self.trainer(found));
            }
        }
        findings
    }

    fn loader(&self, parameters: &[Parameter], found: &Found<'a>, env: &Env<'a>) -> Finding {
        let call = found.site.call;
        let mut facts = self.facts(parameters, call, env);
        let dataset =
            ["dataset", "data_source", "fname", "file_root", "path"].iter().find_map(|name| {
                let place = parameters.iter().find(|it| it.name == *name)?.place;
                self.evaluator.argument(call, env, name, place)
            });
        let origin = self.origin_of_loader(found, dataset.as_ref(), &facts);
        if let Some(phase) = self.phase_of_loader(found, env, &origin) {
            facts.insert(0, phase);
        }
        facts.extend(reads(&origin));
        facts.extend(origin.facts.iter().filter(|fact| ORDER.contains(&fact.name)).cloned());
        facts.extend(self.seed_of_grain(found, env));
        facts.extend(self.of_sampler(found, env));
        facts.push(self.order_of(found, env, &origin));
        self.batch_of_dataset(&mut facts, dataset.as_ref(), found, env);
        facts.extend(self.shape_of_batch(&facts, &origin));
        let mut finding = self.finding(Kind::Loader, found.path.to_string(), &found.site);
        finding.facts = facts;
        finding
    }

    /// A loader that does not batch gets batches: from a pipeline, or from Grain's `Batch`.
    fn batch_of_dataset(
        &self,
        facts: &mut Vec<Fact>,
        dataset: Option<&Known<'a>>,
        found: &Found<'a>,
        env: &Env<'a>,
    ) {
        let own = facts.iter().position(|fact| fact.name == "batch_size");
        if own.is_some_and(|own| facts[own].text != "None") {
            return;
        }
        let operations = self.evaluator.argument(found.site.call, env, "operations", None);
        let operations = operations.into_iter().flat_map(|known| match known.value {
            Value::Sequence(items) => items.to_vec(),
            _ => Vec::new(),
        });
        let of_grain = operations.into_iter().filter_map(|known| known.made().cloned());
        let of_grain = of_grain.filter(|made| &*made.path == "grain.Batch").last();
        let made = of_grain.or_else(|| super::pipeline::batch_in(dataset?));
        let Some(made) = made else { return };
        let names = ["batch_size", "batchsize"];
        let parameters =
            names.map(|name| Parameter { name, place: Some(0), default: Default::Silent });
        let fact = parameters.iter().find_map(|it| self.fact(it, made.call, &made.env));
        let Some(fact) = fact.map(|fact| Fact { name: "batch_size", ..fact }) else { return };
        let why = format!("batches are made at {}", self.evaluator.place_of(&made));
        let why = fact.why.clone().map_or(why.clone(), |inner| format!("{why}: {inner}"));
        match own {
            Some(own) => facts[own] = fact.because(why),
            None => facts.push(fact.because(why)),
        }
    }

    /// The shape that the transforms of the dataset make, and the bytes of a batch.
    fn shape_of_batch(&self, facts: &[Fact], origin: &Origin<'a>) -> Vec<Fact> {
        let Some(made) = &origin.made else { return Vec::new() };
        let mut arguments =
            made.call.arguments.iter().map(|it| self.evaluator.eval(&it.value, &made.env));
        let shape = arguments.find_map(|known| self.shape_of(known.made()?));
        let mut shape = shape.unwrap_or_default();
        let batch = facts.iter().find(|fact| fact.name == "batch_size");
        shape.extend(bytes_of_batch(batch, &shape));
        shape
    }

    fn origin_of_loader(
        &self,
        found: &Found<'a>,
        dataset: Option<&Known<'a>>,
        facts: &[Fact],
    ) -> Origin<'a> {
        let origin = dataset.map(|dataset| self.origin(dataset)).unwrap_or_default();
        let Some(format) = crate::script::known::Format::of(&found.path) else { return origin };
        let crate::script::known::Format::Named(format) = format else { return origin };
        // A loader that reads files itself.
        let source =
            facts.iter().find(|it| ["fname", "file_root", "path", "paths"].contains(&it.name));
        Origin {
            name: format.to_owned(),
            format: Some(Fact::said("format", format, Certainty::Certain)),
            source: source.cloned().map(|fact| Fact { name: "source", ..fact }),
            hints: source.map(|fact| fact.text.clone()).into_iter().collect(),
            ..origin
        }
    }

    pub(super) fn phase_of_loader(
        &self,
        found: &Found<'a>,
        env: &Env<'a>,
        origin: &Origin<'a>,
    ) -> Option<Fact> {
        let program = self.evaluator.program;
        let function = program.function_of(found.site.step);
        let name =
            function.map(|it| program.functions[it.0].tree.name.as_str()).unwrap_or_default();
        let said = |phase: Phase, certainty| Fact::said("phase", phase.name(), certainty);
        if let Some((hook, phase)) = HOOKS.iter().find(|(hook, _)| *hook == name) {
            return Some(said(*phase, Certainty::Certain).because(format!("in {hook}")));
        }
        // A literal that says which part of the data this is says more than a name does.
        let hint = origin.hints.iter().find_map(|hint| Some((Phase::of_name(hint)?, hint)));
        let around = self.phase_around(&found.site, env);
        match (hint, around) {
            (Some((phase, hint)), around) => {
                // Whether what is held out is called validation or evaluation is a matter of taste.
                let is_training = |phase| phase == Phase::Training;
                let agrees =
                    around.is_none_or(|(other, _)| is_training(other) == is_training(phase));
                let why = format!("its data: {}", hint.trim_start_matches("validation: "));
                Some(if agrees {
                    said(phase, Certainty::Likely).because(why)
                } else {
                    said(phase, Certainty::Likely).because(format!("{why}, but its name differs"))
                })
            }
            (None, Some((phase, words))) => Some(said(phase, Certainty::Likely).because(words)),
            (None, None) => None,
        }
    }

    /// `transformers.Trainer` makes its loader itself.
    fn trainer(&self, found: &Found<'a>) -> Option<Finding> {
        let env = Env::at(found.site.step);
        let argument =
            |name: &str, place| self.evaluator.argument(found.site.call, &env, name, place);
        let settings = argument("args", Some(1))?;
        let mut finding = self.finding(Kind::Loader, found.path.to_string(), &found.site);
        finding
            .facts
            .push(Fact::said("phase", "training", Certainty::Certain).because("train_dataset"));
        if let Some(made) = settings.made() {
            finding.facts.extend(self.facts(HUGGING_FACE, made.call, &made.env));
        } else {
            let place = settings.why.as_deref().unwrap_or("its arguments are not followed");
            let fact = Fact::said("per_device_train_batch_size", "?", Certainty::Unknown);
            finding.facts.push(Fact { value: Literal::Nothing, ..fact.because(place) });
        }
        for fact in &mut finding.facts {
            // The names that every loader has.
            fact.name = match fact.name {
                "per_device_train_batch_size" => "batch_size",
                "dataloader_num_workers" => "num_workers",
                "dataloader_drop_last" => "drop_last",
                "dataloader_prefetch_factor" => "prefetch_factor",
                other => other,
            };
        }
        let dataset = argument("train_dataset", Some(3));
        let origin = dataset.map(|dataset| self.origin(&dataset)).unwrap_or_default();
        finding.facts.extend(reads(&origin));
        let order = Fact::said("order.shuffle", "published", Certainty::Likely);
        finding.facts.push(order.because("batches are dealt to the ranks, not samples"));
        Some(finding)
    }
}

/// The bytes of a decoded batch: `S_b` in DeepMemoryDL, 3.3.2.
pub(super) fn bytes_of_batch(batch: Option<&Fact>, shape: &[Fact]) -> Option<Fact> {
    let sample = shape.iter().find(|fact| fact.name == "sample_bytes")?;
    let batch = batch?;
    let bytes = batch.int()?.checked_mul(sample.int()?)?;
    let worse = if batch.certainty > sample.certainty { batch } else { sample };
    let fact = Fact::said("batch_bytes", format!("{bytes} B"), worse.certainty);
    Some(Fact { value: Literal::Int(bytes), why: worse.why.clone(), ..fact })
}

/// What a loader reads, as facts.
pub(super) fn reads(origin: &Origin<'_>) -> Vec<Fact> {
    let mut facts = Vec::new();
    if !origin.name.is_empty() {
        facts.push(Fact::said("reads", origin.name.clone(), Certainty::Certain));
    }
    facts.extend(origin.format.clone());
    facts.extend(origin.source.clone());
    facts
}
