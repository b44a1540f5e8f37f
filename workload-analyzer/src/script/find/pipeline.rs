//! Pipelines: chains of methods from files to batches, in the order in which they run.

use std::rc::Rc;

use super::{Finder, argument_expr, loader::reads};
use crate::script::{
    finding::{Fact, Finding, Kind, Literal},
    known::{Default, Family, Parameter, family},
    tree::How,
    value::{Certainty, Env, Known, Made, Value},
};

/// Steps of a pipeline that are followed.
const STEPS_MAX: usize = 64;

/// The names of arguments that stand without them.
const PLACES: [(&str, &[&str]); 14] = [
    ("tensorflow.data.Dataset.shuffle", &["buffer_size", "seed", "reshuffle_each_iteration"]),
    ("tensorflow.data.Dataset.batch", &["batch_size", "drop_remainder"]),
    ("tensorflow.data.Dataset.padded_batch", &["batch_size", "padded_shapes"]),
    ("tensorflow.data.Dataset.prefetch", &["buffer_size"]),
    ("tensorflow.data.Dataset.cache", &["filename"]),
    ("tensorflow.data.Dataset.repeat", &["count"]),
    ("tensorflow.data.Dataset.shard", &["num_shards", "index"]),
    ("tensorflow.data.Dataset.take", &["count"]),
    ("tensorflow.data.Dataset.skip", &["count"]),
    ("tensorflow.data.Dataset.map", &["map_func", "num_parallel_calls"]),
    (
        "tensorflow.data.Dataset.interleave",
        &["map_func", "cycle_length", "block_length", "num_parallel_calls"],
    ),
    ("webdataset.WebDataset.shuffle", &["size"]),
    ("webdataset.WebDataset.batched", &["batchsize", "collation_fn", "partial"]),
    ("grain.MapDataset.batch", &["batch_size"]),
];

const TF_SHUFFLE: &[Parameter] = &[
    Parameter { name: "buffer_size", place: Some(0), default: Default::Silent },
    Parameter { name: "seed", place: Some(1), default: Default::Silent },
    Parameter { name: "reshuffle_each_iteration", place: Some(2), default: Default::Silent },
];
const OTHER_SHUFFLE: &[Parameter] =
    &[Parameter { name: "seed", place: None, default: Default::Silent }];

/// A step, and whether every way to the end goes through it.
struct Stage<'a> {
    made: Rc<Made<'a>>,
    is_always: bool,
}

impl<'a> Finder<'_, 'a> {
    pub(super) fn pipelines(&self) -> Vec<Finding> {
        let consumed = self.consumed();
        let mut findings = Vec::new();
        for found in &self.calls {
            let Some(of) = family(&found.path).filter(|it| is_method(it, &found.path)) else {
                continue;
            };
            if consumed.contains(&std::ptr::from_ref(found.site.expr)) {
                continue;
            }
            findings.extend(self.in_each_context(&found.site, |env| {
                let known = self.evaluator.eval(found.site.expr, env);
                self.pipeline(of, found, known.made()?, env)
            }));
        }
        findings
    }

    /// The steps that another step goes on from.
    fn consumed(&self) -> Vec<*const crate::script::tree::Expr> {
        let steps = self.calls.iter().filter(|found| family(&found.path).is_some());
        let before = steps.filter_map(|found| found.on.as_ref()).flat_map(Known::alternatives);
        before.filter_map(|known| known.made().map(|made| std::ptr::from_ref(made.expr))).collect()
    }

    fn pipeline(
        &self,
        of: &Family,
        found: &super::Found<'a>,
        end: &Rc<Made<'a>>,
        env: &Env<'a>,
    ) -> Option<Finding> {
        let mut stages = Vec::new();
        chain(end, true, &mut stages);
        stages.reverse();
        let known = Known::certain(Value::Made(Rc::clone(end)));
        let origin = self.origin(&known);
        let steps: Vec<Fact> = stages.iter().map(|stage| self.step(stage)).collect();
        // One method of something unknown is as likely a model or a table.
        if steps.len() < 2 && origin.path.is_empty() {
            return None;
        }
        let mut finding = self.finding(Kind::Pipeline, of.name, &found.site);
        finding.facts.extend(self.phase_of_loader(found, env, &origin));
        finding.facts.extend(reads(&origin));
        finding.facts.extend(steps);
        finding.facts.extend(self.batching(&stages, &origin));
        let maps = stages.iter().filter(|stage| stage.made.path.ends_with(".map")).rev();
        let shape = maps.filter_map(|stage| {
            let function = stage.made.call.arguments.first()?;
            self.shape_of_function(&self.evaluator.eval(&function.value, &stage.made.env))
        });
        let shape = shape.into_iter().next().unwrap_or_default();
        let bytes = super::loader::bytes_of_batch(finding.fact("batch_size"), &shape);
        finding.facts.extend(shape.into_iter().chain(bytes));
        finding.facts.push(self.order_of_pipeline(of, &stages, &origin));
        Some(finding)
    }

    fn step(&self, stage: &Stage<'a>) -> Fact {
        let made = &stage.made;
        let method = made.path.rsplit('.').next().unwrap_or_default();
        let names =
            PLACES.iter().find(|(it, _)| *it == &*made.path).map_or(&[][..], |(_, names)| *names);
        let mut shown = Vec::new();
        let mut worst = Known::certain(Value::None);
        for (place, argument) in made.call.arguments.iter().enumerate() {
            let known = self.evaluator.eval(&argument.value, &made.env);
            let text = self.shown(&known, &self.text(&made.env, &argument.value));
            let name = match &argument.how {
                How::Name(name) => Some(name.as_str()),
                _ => names.get(place).copied(),
            };
            // A function is what it is, even where it is not followed.
            let is_function = matches!(name, Some("map_func" | "collation_fn")) || name.is_none();
            if known.certainty > worst.certainty && !is_function {
                worst = known;
            }
            shown.push(name.map_or_else(|| text.clone(), |name| format!("{name}={text}")));
        }
        let mut text = format!("{method}({})", shown.join(", "));
        if !stage.is_always {
            text.push_str(" in some branches");
        }
        let place = self.evaluator.place_of(made);
        let why =
            worst.why.as_deref().map_or_else(|| place.clone(), |why| format!("{place}: {why}"));
        Fact::said("step", text, worst.certainty).because(why)
    }

    /// What the steps say of batches.
    fn batching(&self, stages: &[Stage<'a>], origin: &super::dataset::Origin<'a>) -> Vec<Fact> {
        let mut facts = Vec::new();
        let method = |stage: &&Stage<'a>, names: &[&str]| {
            names.iter().any(|name| stage.made.path.ends_with(&format!(".{name}")))
        };
        let batch = stages.iter().rfind(|it| method(it, &["batch", "padded_batch", "batched"]));
        let made = batch.map(|stage| &stage.made).or(origin.made.as_ref());
        let Some(made) = made else { return facts };
        let argument = |names: &[&str], place| {
            names.iter().find_map(|name| {
                let source = argument_expr(made.call, name, place)?;
                let known = self.evaluator.eval(source, &made.env);
                Some((self.shown(&known, &self.text(&made.env, source)), known))
            })
        };
        let place = batch.map(|_| 0);
        if let Some((text, known)) = argument(&["batch_size", "batchsize"], place) {
            facts.push(Fact::of("batch_size", &known, text));
        }
        if let Some((text, known)) = argument(&["drop_remainder"], batch.map(|_| 1)) {
            facts.push(Fact::of("drop_last", &known, text));
        }
        if let Some(shuffle) = stages.iter().find(|it| method(it, &["shuffle"])) {
            let made = &shuffle.made;
            let is_tf = made.path.starts_with("tensorflow.");
            let parameters = if is_tf { TF_SHUFFLE } else { OTHER_SHUFFLE };
            facts.extend(self.facts(parameters, made.call, &made.env));
        }
        facts
    }

    fn order_of_pipeline(
        &self,
        of: &Family,
        stages: &[Stage<'a>],
        origin: &super::dataset::Origin<'a>,
    ) -> Fact {
        let order = |name: &str, certainty| Fact::said("order.shuffle", name, certainty);
        let none = |why: &str| {
            let fact = Fact { value: Literal::Nothing, ..order("none", Certainty::Unknown) };
            fact.because(why.to_owned())
        };
        let find =
            |name: &str| stages.iter().find(|it| it.made.path.ends_with(&format!(".{name}")));
        let shuffle = find("shuffle");
        let seed = shuffle.and_then(|stage| {
            let made = &stage.made;
            self.evaluator.argument(made.call, &made.env, "seed", Some(1))
        });
        let is_seeded = seed.is_some_and(|seed| seed.value != Value::None);
        match of.name {
            "webdataset.WebDataset" => {
                none("WebDataset shuffles shards and a buffer, in an order of its own")
            }
            "datasets.Dataset" => match shuffle {
                Some(_) => none("datasets permutes by itself; give the loader's order instead"),
                None => {
                    order("sequential", Certainty::Likely).because("no shuffle before the loader")
                }
            },
            "grain.MapDataset" => match shuffle {
                Some(_) => order("grain", Certainty::Certain).because("MapDataset.shuffle"),
                None => order("sequential", Certainty::Certain).because("no shuffle"),
            },
            _ if find("interleave").is_some() && shuffle.is_none() => {
                none("files are interleaved; tierfeed reads them one after the other")
            }
            _ if find("interleave").is_some() => {
                none("samples are interleaved from files before they are shuffled")
            }
            _ if shuffle.is_some()
                && stages.iter().position(|it| it.made.path.ends_with(".shuffle"))
                    > stages.iter().position(|it| it.made.path.ends_with(".shard"))
                && find("shard").is_some() =>
            {
                none("the dataset is sharded before it is shuffled")
            }
            _ if shuffle.is_some() && self.lists_at_random(origin) => {
                none("the list of files is shuffled before the samples are")
            }
            _ => match (shuffle, is_seeded) {
                (None, _) if self.lists_at_random(origin) => none("the list of files is shuffled"),
                (None, _) => order("sequential", Certainty::Likely).because("no shuffle"),
                (Some(_), true) => {
                    order("tf-shuffle", Certainty::Certain).because("shuffle with a seed")
                }
                (Some(_), false) => none("shuffle without a seed: no run is like another"),
            },
        }
    }

    /// Whether the files come in another order in each run.
    fn lists_at_random(&self, origin: &super::dataset::Origin<'a>) -> bool {
        let Some(made) = &origin.made else { return false };
        let shuffle = self.evaluator.argument(made.call, &made.env, "shuffle", Some(1));
        let is_list = made.path.ends_with(".list_files");
        let is_folder = made.path.ends_with("image_dataset_from_directory");
        (is_list || is_folder) && shuffle.is_none_or(|it| it.bool() != Some(false))
    }
}

/// The last step that makes batches, in what a loader reads.
pub(super) fn batch_in<'a>(dataset: &Known<'a>) -> Option<Rc<Made<'a>>> {
    let end = dataset.alternatives().iter().find_map(|known| known.made().cloned())?;
    let mut stages = Vec::new();
    chain(&end, true, &mut stages);
    let mut stages = stages.into_iter();
    let is_batch = |stage: &Stage<'a>| {
        [".batched", ".batch", ".padded_batch"].iter().any(|name| stage.made.path.ends_with(name))
    };
    stages.find(is_batch).map(|stage| stage.made)
}

/// Goes back from the last step to the first; where branches meet, along the longest.
fn chain<'a>(end: &Rc<Made<'a>>, is_always: bool, stages: &mut Vec<Stage<'a>>) {
    let mut made = Rc::clone(end);
    let mut is_always = is_always;
    while stages.len() < STEPS_MAX {
        let Some(of) = family(&made.path).filter(|of| is_method(of, &made.path)) else { return };
        let on = made.on.clone().filter(|on| !matches!(on.value, Value::Symbol(_)));
        let Some(on) = on else { return };
        debug_assert!(is_method(of, &made.path));
        stages.push(Stage { made: Rc::clone(&made), is_always });
        let before = on.alternatives();
        let before: Vec<_> = before.iter().filter_map(|known| known.made()).collect();
        let lengths: Vec<_> = before.iter().map(|made| length(made)).collect();
        let Some(longest) = (0..before.len()).max_by_key(|index| lengths[*index]) else { return };
        // What the shortest way does not go through may be left out.
        let shortest = lengths.iter().min().copied().unwrap_or(0);
        is_always = before.len() < 2 || lengths[longest] <= shortest;
        let next = Rc::clone(before[longest]);
        if before.len() > 1 {
            let skipped = lengths[longest] - shortest;
            made = push_some(next, skipped, stages);
            is_always = true;
            continue;
        }
        made = next;
    }
}

/// Takes `count` steps that only some branches have; the step before them.
fn push_some<'a>(from: Rc<Made<'a>>, count: usize, stages: &mut Vec<Stage<'a>>) -> Rc<Made<'a>> {
    let mut made = from;
    for _ in 0..count {
        let next = made.on.as_ref().and_then(|on| {
            on.alternatives().iter().filter_map(|it| it.made().cloned()).max_by_key(length)
        });
        let Some(next) = next else { return made };
        stages.push(Stage { made, is_always: false });
        made = next;
    }
    made
}

/// Steps up to this one.
fn length(made: &Rc<Made<'_>>) -> usize {
    let mut made = Rc::clone(made);
    for length in 0..STEPS_MAX {
        let next = made
            .on
            .as_ref()
            .and_then(|on| on.alternatives().iter().find_map(|it| it.made().cloned()));
        match next {
            Some(next) => made = next,
            None => return length,
        }
    }
    STEPS_MAX
}

/// Whether a path is a step rather than what a pipeline begins with.
fn is_method(of: &Family, path: &str) -> bool {
    path.strip_prefix(of.name)
        .and_then(|rest| rest.strip_prefix('.'))
        .is_some_and(|method| of.has(method))
}
