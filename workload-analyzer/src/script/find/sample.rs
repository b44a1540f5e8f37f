//! What becomes of a sample: transforms, and the shape that comes out if it is literal.
//!
//! The shape is what a batch consists of: its bytes are the sum over its samples of width, height,
//! depth and the bytes of an element (DeepMemoryDL, 3.3.2).

use super::{Finder, Found};
use crate::script::{
    finding::{Fact, Finding, Kind, Literal},
    known::{Effect, LISTS, TRANSFORMS, element_bytes},
    program::FunctionId,
    tree::Call,
    value::{Certainty, Env, Known, Made, Value},
};

/// What is known of a sample so far.
struct Sample<'a> {
    sides: Option<Vec<Known<'a>>>,
    /// The shape says its own channels.
    is_whole: bool,
    channels: Option<i64>,
    is_channels_sure: bool,
    element: Option<String>,
    /// Which transforms said so.
    steps: Vec<String>,
    are_channels_first: bool,
}

impl<'a> Finder<'_, 'a> {
    pub(super) fn samples(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut functions: Vec<FunctionId> = Vec::new();
        for found in &self.calls {
            if LISTS.contains(&&*found.path) {
                findings.extend(self.in_each_context(&found.site, |env| self.list(found, env)));
            }
            let is_single = TRANSFORMS.iter().any(|(path, _)| *path == &*found.path);
            let function = self.evaluator.program.function_of(found.site.step);
            if let Some(function) = function.filter(|it| is_single && !functions.contains(it))
                && found.path.starts_with("tensorflow.")
            {
                functions.push(function);
                findings.extend(self.function(function, found));
            }
        }
        findings
    }

    /// What comes out of a list of transforms.
    pub(super) fn shape_of(&self, made: &Made<'a>) -> Option<Vec<Fact>> {
        if !LISTS.contains(&&*made.path) {
            return None;
        }
        let (_, sample) = self.transforms(made.call, &made.env);
        (!sample.steps.is_empty()).then(|| sample.facts())
    }

    /// What comes out of a function of `Dataset.map`, which may be wrapped in `partial`.
    pub(super) fn shape_of_function(&self, known: &Known<'a>) -> Option<Vec<Fact>> {
        match &known.value {
            Value::Function(function) => {
                let sample = self.transformed_by(*function);
                (sample.sides.is_some() || sample.channels.is_some()).then(|| sample.facts())
            }
            Value::Made(made) if &*made.path == "functools.partial" => {
                let inner = self.evaluator.argument(made.call, &made.env, "", Some(0))?;
                matches!(inner.value, Value::Function(_)).then(|| self.shape_of_function(&inner))?
            }
            _ => None,
        }
    }

    fn transforms(&self, call: &'a Call, env: &Env<'a>) -> (Vec<Known<'a>>, Sample<'a>) {
        let eval = |it: &'a crate::script::tree::Argument| self.evaluator.eval(&it.value, env);
        let first = call.arguments.first().map(eval);
        let items = match first.map(|known| known.value) {
            Some(Value::Sequence(items)) => items.to_vec(),
            _ => call.arguments.iter().map(eval).collect(),
        };
        let mut sample = Sample::new();
        for made in items.iter().filter_map(Known::made) {
            self.apply(&mut sample, &made.path, made.call, &made.env);
        }
        (items, sample)
    }

    fn transformed_by(&self, function: FunctionId) -> Sample<'a> {
        let mut sample = Sample::new();
        for found in &self.calls {
            if self.evaluator.program.function_of(found.site.step) == Some(function) {
                let env = Env::at(found.site.step);
                self.apply(&mut sample, &found.path, found.site.call, &env);
            }
        }
        sample
    }

    /// `Compose([…])`
    fn list(&self, found: &Found<'a>, env: &Env<'a>) -> Option<Finding> {
        let (items, sample) = self.transforms(found.site.call, env);
        let is_list_of_transforms = !sample.steps.is_empty() || found.path.contains("ransforms");
        is_list_of_transforms.then(|| {
            let names = items.iter().map(|item| match item.made() {
                Some(made) => super::dataset::last(&made.path).to_owned(),
                None => self.shown(item, "?"),
            });
            let names: Vec<_> = names.collect();
            let mut finding =
                self.finding(Kind::Preprocessing, found.path.to_string(), &found.site);
            finding.facts = vec![Fact::said("steps", names.join(", "), Certainty::Certain)];
            let phase = self.phase_around(&found.site, env);
            finding.facts.extend(phase.map(|(phase, words)| {
                Fact::said("phase", phase.name(), Certainty::Likely).because(words)
            }));
            finding.facts.extend(sample.facts());
            finding
        })
    }

    /// A function that decodes and resizes, as `Dataset.map` takes.
    fn function(&self, function: FunctionId, first: &Found<'a>) -> Option<Finding> {
        let program = self.evaluator.program;
        let sample = self.transformed_by(function);
        let has_size = sample.sides.is_some() || sample.channels.is_some();
        has_size.then(|| {
            let name = &program.functions[function.0].tree.name;
            let mut finding = self.finding(Kind::Preprocessing, format!("`{name}`"), &first.site);
            let steps = sample.steps.join(", ");
            finding.facts = vec![Fact::said("steps", steps, Certainty::Certain)];
            finding.facts.extend(sample.facts());
            finding
        })
    }

    fn apply(&self, sample: &mut Sample<'a>, path: &str, call: &'a Call, env: &Env<'a>) {
        let Some((_, effect)) = TRANSFORMS.iter().find(|(known, _)| *known == path) else { return };
        sample.steps.push(super::dataset::last(path).to_owned());
        let argument = |name, place| self.evaluator.argument(call, env, name, place);
        match *effect {
            Effect::Sides { name, place } => {
                sample.set_sides(argument(name, place).map(|known| sides(&known)));
            }
            Effect::Resize { name, place } => {
                let known = argument(name, place);
                let is_one = known.as_ref().is_some_and(|known| known.int().is_some());
                sample.set_sides(known.filter(|_| !is_one).map(|known| sides(&known)));
            }
            Effect::Shape { name, place } => {
                sample.set_sides(argument(name, place).map(|known| sides(&known)));
                sample.is_whole = true;
            }
            Effect::HeightAndWidth { first } => {
                let height =
                    argument("height", Some(first)).or_else(|| argument("target_height", None));
                let width =
                    argument("width", Some(first + 1)).or_else(|| argument("target_width", None));
                sample.set_sides(height.zip(width).map(|(height, width)| vec![height, width]));
            }
            Effect::Channels { name, place, default } => {
                let channels = argument(name, place).map_or(Some(default), |known| known.int());
                sample.channels = channels.filter(|channels| *channels > 0);
                sample.is_channels_sure = sample.channels.is_some();
                sample.element.get_or_insert_with(|| "uint8".to_owned());
            }
            Effect::Gray => (sample.channels, sample.is_channels_sure) = (Some(1), true),
            Effect::Floats => sample.make_tensor("float32"),
            Effect::BytesOfImage => sample.make_tensor("uint8"),
            Effect::Type { name, place } => {
                let known = argument(name, place);
                let name = known.as_ref().and_then(|known| match &known.value {
                    Value::Symbol(path) => Some(super::dataset::last(path).to_owned()),
                    Value::Text(text) => Some(text.to_string()),
                    _ => None,
                });
                sample.element = name;
            }
        }
    }
}

/// One number stands for height and width.
fn sides<'a>(known: &Known<'a>) -> Vec<Known<'a>> {
    match &known.value {
        Value::Sequence(items) if items.len() == 1 => vec![items[0].clone(), items[0].clone()],
        Value::Sequence(items) => items.to_vec(),
        _ => vec![known.clone(), known.clone()],
    }
}

impl<'a> Sample<'a> {
    fn new() -> Self {
        Self {
            sides: None,
            is_whole: false,
            channels: None,
            is_channels_sure: false,
            element: None,
            steps: Vec::new(),
            are_channels_first: false,
        }
    }

    fn set_sides(&mut self, sides: Option<Vec<Known<'a>>>) {
        self.sides = sides;
        self.is_whole = false;
    }

    fn make_tensor(&mut self, element: &str) {
        self.element = Some(element.to_owned());
        self.are_channels_first = true;
        // Image folders are read as RGB.
        self.channels.get_or_insert(3);
    }

    /// The shape, and the bytes of a sample if all of it is known.
    fn facts(&self) -> Vec<Fact> {
        let unknown = |why: &str| {
            let fact = Fact::said("shape", "?", Certainty::Unknown).because(why);
            vec![Fact { value: Literal::Nothing, ..fact }]
        };
        let Some(sides) = &self.sides else { return unknown("no step fixes the size") };
        let mut dimensions = Vec::new();
        let mut certainty = Certainty::Certain;
        let mut why = None;
        for side in sides {
            let Some(length) = side.int().and_then(|it| u64::try_from(it).ok()) else {
                return unknown(side.why.as_deref().unwrap_or("a side is computed"));
            };
            if side.certainty > certainty {
                (certainty, why) = (side.certainty, side.why.as_deref().map(str::to_owned));
            }
            dimensions.push(length);
        }
        if !self.is_whole
            && let Some(channels) = self.channels.and_then(|it| u64::try_from(it).ok())
        {
            let place = if self.are_channels_first { 0 } else { dimensions.len() };
            dimensions.insert(place, channels);
            if !self.is_channels_sure {
                certainty = certainty.max(Certainty::Likely);
                why.get_or_insert_with(|| "3 channels, as image folders are read".to_owned());
            }
        }
        let has_channels = self.is_whole || self.channels.is_some();
        let words: Vec<_> = dimensions.iter().map(u64::to_string).collect();
        let element = self.element.as_deref().unwrap_or("elements of an unknown type");
        let text = format!("{} {element}", words.join(" x "));
        let because = |fact: Fact| match &why {
            Some(why) => fact.because(why.clone()),
            None => fact,
        };
        let mut facts = vec![because(Fact::said("shape", text, certainty))];
        let bytes = self.element.as_deref().and_then(element_bytes);
        let bytes =
            dimensions.iter().try_fold(bytes.unwrap_or(0), |bytes, it| bytes.checked_mul(*it));
        if let Some(bytes) = bytes.filter(|bytes| *bytes > 0 && has_channels) {
            let value = i64::try_from(bytes).map_or(Literal::Nothing, Literal::Int);
            let fact = Fact::said("sample_bytes", format!("{bytes} B"), certainty);
            facts.push(because(Fact { value, ..fact }));
        }
        facts
    }
}
