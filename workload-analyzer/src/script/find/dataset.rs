//! What a loader reads, through whatever is wrapped around it.

use std::rc::Rc;

use super::{Finder, argument_expr, spec_of};
use crate::script::{
    finding::{Fact, Literal},
    known::{DATASETS, Format, OUT_OF_FILES, PARTS, WRAPPERS},
    program::ClassId,
    value::{Certainty, Env, Frame, Known, Made, Value},
};

/// Wrappers inside one another that are followed.
const DEPTH_MAX: u32 = 24;

/// Where samples come from.
#[derive(Debug, Clone, Default)]
pub(super) struct Origin<'a> {
    /// The dataset, for people.
    pub(super) name: String,
    /// The library's class or function, empty for one of these files.
    pub(super) path: Rc<str>,
    pub(super) format: Option<Fact>,
    pub(super) source: Option<Fact>,
    /// The call that makes it.
    pub(super) made: Option<Rc<Made<'a>>>,
    /// It is a part of what the files hold.
    pub(super) is_part: bool,
    /// What is known of its arguments.
    pub(super) facts: Vec<Fact>,
    /// Arguments that say which part of the data this is: `train=False`, `split="val"`, a path.
    pub(super) hints: Vec<String>,
}

impl<'a> Finder<'_, 'a> {
    pub(super) fn origin(&self, known: &Known<'a>) -> Origin<'a> {
        self.origin_within(known, DEPTH_MAX)
    }

    fn origin_within(&self, known: &Known<'a>, depth: u32) -> Origin<'a> {
        if depth == 0 {
            return Origin::default();
        }
        match &known.value {
            Value::Made(made) => self.origin_of_made(made, depth),
            Value::Instance(class, made) => self.origin_of_class(*class, made.as_ref()),
            Value::Any(several) | Value::Sequence(several) => {
                let origins: Vec<_> =
                    several.iter().map(|it| self.origin_within(it, depth - 1)).collect();
                merged(origins)
            }
            _ => Origin::default(),
        }
    }

    fn origin_of_made(&self, made: &Rc<Made<'a>>, depth: u32) -> Origin<'a> {
        let inner = |known: &Known<'a>| self.origin_within(known, depth - 1);
        if let Some(on) = &made.on
            && crate::script::known::family(&made.path).is_some()
            && !matches!(on.value, Value::Symbol(_))
        {
            let from = inner(on);
            let opened = self.opened_by(made);
            return if opened.format.is_some() {
                Origin { source: from.source.or(opened.source), hints: from.hints, ..opened }
            } else {
                from
            };
        }
        let first = argument_expr(made.call, "dataset", Some(0))
            .map(|it| self.evaluator.eval(it, &made.env));
        if WRAPPERS.contains(&&*made.path) {
            let origin = first.map(|it| inner(&it)).unwrap_or_default();
            let name = format!("{} over {}", last(&made.path), origin.name);
            let is_part = origin.is_part || PARTS.contains(&&*made.path);
            return Origin { name, is_part, ..origin };
        }
        let Some(spec) =
            spec_of(DATASETS, &made.path).or_else(|| spec_of(OUT_OF_FILES, &made.path))
        else {
            let name = last(&made.path).to_owned();
            return Origin {
                name,
                path: Rc::clone(&made.path),
                made: Some(Rc::clone(made)),
                ..Origin::default()
            };
        };
        let facts = self.facts(spec.parameters, made.call, &made.env);
        Self::origin_of_facts(&made.path, facts, Some(made))
    }

    fn origin_of_facts(
        path: &Rc<str>,
        facts: Vec<Fact>,
        made: Option<&Rc<Made<'a>>>,
    ) -> Origin<'a> {
        const SOURCES: [&str; 14] = [
            "root",
            "urls",
            "remote",
            "local",
            "input_dir",
            "data_dir",
            "filenames",
            "file_pattern",
            "directory",
            "paths",
            "path",
            "file",
            "fname",
            "filename",
        ];
        const PARTS: [&str; 3] = ["split", "name", "subset"];
        let find = |name: &str| facts.iter().find(|fact| fact.name == name);
        let mut hints: Vec<String> = Vec::new();
        match find("train").and_then(Fact::bool) {
            Some(true) => hints.push("train=True".to_owned()),
            Some(false) => hints.push("validation: train=False".to_owned()),
            None => {}
        }
        hints.extend(PARTS.iter().filter_map(|name| Some(find(name)?.str()?.to_owned())));
        let source = SOURCES.iter().find_map(|name| find(name)).cloned();
        hints.extend(source.iter().map(|source| source.text.clone()));
        let source = source.filter(|_| Format::of(path) != Some(Format::Whole));
        let source = source.map(|fact| directory_of_list(path_of_hub(path, fact)));
        let source = source.map(|source| Fact { name: "source", ..source });
        Origin {
            name: last(path).to_owned(),
            path: Rc::clone(path),
            format: format_of(path, source.as_ref()),
            source,
            made: made.cloned(),
            is_part: false,
            hints,
            facts,
        }
    }

    /// What the function of `interleave` or `flat_map` opens.
    fn opened_by(&self, made: &Made<'a>) -> Origin<'a> {
        if !made.path.ends_with(".interleave") && !made.path.ends_with(".flat_map") {
            return Origin::default();
        }
        let Some(function) = argument_expr(made.call, "map_func", Some(0)) else {
            return Origin::default();
        };
        let known = self.evaluator.eval(function, &made.env);
        let path = match &known.value {
            Value::Symbol(path) => spec_of(DATASETS, path).map(|_| Rc::clone(path)),
            Value::Function(function) => {
                let is_in = |it: &&super::Found<'a>| {
                    self.evaluator.program.function_of(it.site.step) == Some(*function)
                };
                let mut calls = self.calls.iter().filter(is_in);
                calls.find(|it| spec_of(DATASETS, &it.path).is_some()).map(|it| Rc::clone(&it.path))
            }
            // A lambda: what is called between its first byte and its last.
            _ => {
                let module = |step| self.evaluator.program.module_of(step);
                let is_in = |it: &&super::Found<'a>| {
                    module(it.site.step) == module(made.env.step)
                        && function.span.0 <= it.site.expr.span.0
                        && it.site.expr.span.1 <= function.span.1
                };
                let mut calls = self.calls.iter().filter(is_in);
                calls.find(|it| spec_of(DATASETS, &it.path).is_some()).map(|it| Rc::clone(&it.path))
            }
        };
        path.map(|path| Self::origin_of_facts(&path, Vec::new(), None)).unwrap_or_default()
    }

    fn origin_of_class(&self, class: ClassId, made: Option<&Rc<Made<'a>>>) -> Origin<'a> {
        let program = self.evaluator.program;
        let name = program.classes[class.0].tree.name.clone();
        let hints = made.map(|made| self.hints_of(made)).unwrap_or_default();
        for base in self.evaluator.library_bases(class) {
            let Some(spec) = spec_of(DATASETS, &base) else { continue };
            let (call, env) = self.initialised_as(class, made);
            let Some(call) = call else { continue };
            let origin =
                Self::origin_of_facts(&base, self.facts(spec.parameters, call, &env), made);
            return Origin {
                name: format!("{name}, a {}", last(&base)),
                hints: [hints, origin.hints].concat(),
                ..origin
            };
        }
        let read = self.calls.iter().filter(|found| self.class_of(found) == Some(class));
        let read: Vec<_> = read.filter(|it| spec_of(OUT_OF_FILES, &it.path).is_some()).collect();
        let format = read.iter().find_map(|found| self.format_read(found));
        let source = made.and_then(|made| self.source_of(made)).or_else(|| {
            let found = read.first()?;
            let spec = spec_of(OUT_OF_FILES, &found.path)?;
            let env = Env::at(found.site.step);
            let facts = self.facts(spec.parameters, found.site.call, &env);
            let path = facts.into_iter().next().filter(|fact| fact.str().is_some())?;
            Some(Fact { name: "source", ..path })
        });
        let by = read.first().map(|it| format!("{name}, which calls {}", it.path)).unwrap_or(name);
        Origin { name: by, format, source, made: made.cloned(), hints, ..Origin::default() }
    }

    /// The call that a library class is initialised with: `super().__init__(…)`, else that of the class.
    fn initialised_as(
        &self,
        class: ClassId,
        made: Option<&Rc<Made<'a>>>,
    ) -> (Option<&'a crate::script::tree::Call>, Env<'a>) {
        let program = self.evaluator.program;
        let own = self.calls.iter().find(|it| {
            let name = it.site.call.last_name();
            name == "__init__" && program.class_of(it.site.step) == Some(class)
        });
        match (own, made) {
            (Some(own), made) => {
                let frame = made.zip(program.function_of(own.site.step)).map(|(made, function)| {
                    let this = Some(Rc::new(Value::Instance(class, Some(Rc::clone(made)))));
                    Rc::new(Frame { function, call: made.call, env: made.env.clone(), this })
                });
                (Some(own.site.call), Env { step: own.site.step, frame })
            }
            (None, Some(made)) => (Some(made.call), made.env.clone()),
            (None, None) => (None, Env::at(program.classes[class.0].step)),
        }
    }

    /// The first argument that is a path, by its name or its look.
    fn source_of(&self, made: &Made<'a>) -> Option<Fact> {
        const NAMES: [&str; 10] = [
            "root",
            "data_dir",
            "data_root",
            "data_path",
            "path",
            "directory",
            "file",
            "filename",
            "root_dir",
            "index_file",
        ];
        let arguments = &made.call.arguments;
        let named = arguments.iter().find(|it| {
            matches!(&it.how, crate::script::tree::How::Name(name) if NAMES.contains(&name.as_str()))
        });
        let argument = named.or_else(|| arguments.first())?;
        let known = self.evaluator.eval(&argument.value, &made.env);
        let text = self.shown(&known, &self.text(&made.env, &argument.value));
        let is_path = known.str().is_some_and(|text| text.contains('/') || text.contains('.'));
        let fact = Fact::of("source", &known, text);
        if is_path || (named.is_some() && known.str().is_some()) {
            let why = fact.why.clone().unwrap_or_else(|| "an argument of the class".to_owned());
            return Some(
                Fact { certainty: fact.certainty.max(Certainty::Likely), ..fact }.because(why),
            );
        }
        known.is_unknown().then_some(fact)
    }

    fn hints_of(&self, made: &Made<'a>) -> Vec<String> {
        let mut hints = Vec::new();
        for argument in &made.call.arguments {
            let known = self.evaluator.eval(&argument.value, &made.env);
            let name = match &argument.how {
                crate::script::tree::How::Name(name) => name.as_str(),
                _ => "",
            };
            match known.value {
                Value::Text(text) => hints.push(text.to_string()),
                Value::Bool(true) if name.contains("train") => hints.push("train=True".to_owned()),
                Value::Bool(false) if name.contains("train") => {
                    hints.push("validation: train=False".to_owned());
                }
                _ => hints.push(self.text(&made.env, &argument.value)),
            }
        }
        hints
    }
}

/// The format that holds what a dataset reads.
fn format_of(path: &str, source: Option<&Fact>) -> Option<Fact> {
    let certain = |name: &str| Fact::said("format", name, Certainty::Certain);
    match Format::of(path)? {
        Format::Named(name)
            if path.starts_with("datasets.") || path.starts_with("tensorflow_d") =>
        {
            let why = "the format of its cache, unless it streams";
            Some(Fact { certainty: Certainty::Likely, ..certain(name).because(why) })
        }
        Format::Named(name) => Some(certain(name).because(format!("as {} reads", last(path)))),
        Format::ByName => {
            let name = source.and_then(|source| source.str()).unwrap_or_default();
            let ending = name.rsplit('.').next().filter(|it| ["npy", "npz"].contains(it))?;
            Some(certain(ending).because("as the file is named"))
        }
        Format::Synthetic => {
            let none = Fact { value: Literal::Nothing, ..certain("none") };
            Some(none.because("made up in memory, nothing is read"))
        }
        Format::Whole => {
            let none = Fact { value: Literal::Nothing, ..certain("none") };
            Some(none.because("held in memory as a whole"))
        }
        Format::Foreign(name) => {
            let foreign = Fact { value: Literal::Nothing, ..certain(name) };
            let why = "tierfeed has no such format";
            Some(Fact { certainty: Certainty::Unknown, ..foreign.because(why) })
        }
        Format::Inner => None,
    }
}

fn at_most_likely(fact: Fact, why: &str) -> Fact {
    match fact.certainty {
        Certainty::Certain => Fact { certainty: Certainty::Likely, ..fact.because(why) },
        Certainty::Likely | Certainty::Unknown => fact,
    }
}

/// Files that are listed one by one are found in their directory, if they have the same.
fn directory_of_list(fact: Fact) -> Fact {
    let Literal::List(items) = &fact.value else { return fact };
    let mut directories: Vec<&str> = Vec::new();
    for item in items {
        let Literal::Text(path) = item else { return Fact { value: Literal::Nothing, ..fact } };
        directories.push(path.rsplit_once('/').map_or("", |(directory, _)| directory));
    }
    directories.dedup();
    let value = match directories.as_slice() {
        [directory] if !directory.is_empty() => Literal::Text((*directory).to_owned()),
        _ => Literal::Nothing,
    };
    Fact { value, ..fact }
}

/// `load_dataset("name")` takes a name that is no path.
fn path_of_hub(path: &str, fact: Fact) -> Fact {
    let is_path = fact.str().is_some_and(|text| text.starts_with(['/', '.']));
    if path != "datasets.load_dataset" || is_path || fact.name != "path" {
        return fact;
    }
    let why = "a name, not a path: its files are in the cache of `datasets`";
    Fact { value: Literal::Nothing, certainty: Certainty::Unknown, ..fact.because(why) }
}

fn merged(mut origins: Vec<Origin<'_>>) -> Origin<'_> {
    // Made-up data is for trying things out; a job is about the files.
    let is_synthetic = |it: &Origin<'_>| Format::of(&it.path) == Some(Format::Synthetic);
    if origins.iter().any(|it| !is_synthetic(it) && !it.name.is_empty()) {
        let synthetic: Vec<_> = origins.extract_if(.., |it| is_synthetic(it)).collect();
        if let Some(other) = synthetic.first() {
            let why = format!("unless it is {}", other.name);
            for origin in &mut origins {
                origin.format = origin.format.take().map(|fact| at_most_likely(fact, &why));
                origin.source = origin.source.take().map(|fact| at_most_likely(fact, &why));
            }
        }
    }
    let mut names: Vec<_> = origins.iter().map(|origin| origin.name.clone()).collect();
    names.retain(|name| !name.is_empty());
    names.dedup();
    let name = names.join(" or ");
    let mut known = origins.into_iter().filter(|origin| !origin.name.is_empty());
    let Some(first) = known.next() else { return Origin::default() };
    let rest: Vec<_> = known.collect();
    let text = |fact: &Option<Fact>| fact.as_ref().map(|fact| fact.text.clone());
    let is_one_format = rest.iter().all(|it| text(&it.format) == text(&first.format));
    let is_one_source = rest.iter().all(|it| text(&it.source) == text(&first.source));
    Origin {
        name,
        format: first.format.filter(|_| is_one_format),
        source: first.source.filter(|_| is_one_source),
        hints: if rest.is_empty() { first.hints } else { Vec::new() },
        ..first
    }
}

/// The last name of a path.
pub(super) fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}
