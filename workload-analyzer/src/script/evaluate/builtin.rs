//! Functions of Python and its library that give something known for something known.

use super::{
    Evaluator,
    operator::{from_mapping, joined},
};
use crate::script::{
    program::StepId,
    tree::{Call, Expr, How, Kind},
    value::{Env, Known, Value},
};

impl<'a> Evaluator<'a> {
    /// What a function of Python's library gives; `None` if it is none of those that are followed.
    pub(super) fn builtin(&self, path: &str, call: &'a Call, env: &Env<'a>) -> Option<Known<'a>> {
        let first = || self.argument(call, env, "", Some(0));
        match path {
            "int" => Some(self.converted(call, env, int)),
            "float" => Some(self.converted(call, env, float)),
            "str" | "os.fspath" => Some(self.converted(call, env, text)),
            "bool" => Some(self.converted(call, env, |it| it.truth().map(Value::Bool))),
            "abs" => Some(self.converted(call, env, |it| match it {
                Value::Int(int) => int.checked_abs().map(Value::Int),
                Value::Float(float) => Some(Value::Float(float.abs())),
                _ => None,
            })),
            "len" => Some(self.converted(call, env, len)),
            "min" | "max" => Some(self.extreme(path, call, env)),
            "list" | "tuple" | "sorted" | "copy.deepcopy" | "copy.copy" | "os.path.expanduser"
            | "os.path.abspath" | "os.path.realpath" | "os.path.normpath"
            | "os.path.expandvars" => {
                Some(first().unwrap_or_else(|| Known::certain(Value::Sequence([].into()))))
            }
            "pathlib.Path" | "os.path.join" | "pathlib.PurePath" | "pathlib.PosixPath" => {
                Some(self.path(call, env))
            }
            "dict" => Some(self.dict_of(call, env)),
            "os.environ.get" | "os.getenv" => Some(self.environment(call, env)),
            "getattr" => self.got_attribute(call, env),
            _ => None,
        }
    }

    /// Methods of texts and mappings.
    pub(super) fn method(
        &self,
        on: &Known<'a>,
        call: &'a Call,
        env: &Env<'a>,
    ) -> Option<Known<'a>> {
        match (&on.value, call.last_name()) {
            (Value::Text(base), "joinpath") => {
                let path = self.path(call, env);
                let inner = path.str().map(|inner| joined(base, inner));
                Some(match inner {
                    Some(inner) => Known::from_all(Value::Text(inner.into()), &[on, &path]),
                    None => path,
                })
            }
            (Value::Text(_), "expanduser" | "resolve" | "absolute" | "as_posix" | "strip") => {
                Some(on.clone())
            }
            (Value::Dict(pairs), "get") => {
                let key = self.argument(call, env, "", Some(0))?;
                let found = pairs.iter().rev().find(|(it, _)| it.value == key.value);
                let default = || self.argument(call, env, "default", Some(1));
                let known = found.map(|(_, value)| value.clone()).or_else(default);
                let place = || from_mapping(on, || self.line(env.step, call));
                Some(known.unwrap_or(Known::certain(Value::None)).likely(place))
            }
            _ => None,
        }
    }

    fn line(&self, step: StepId, call: &Call) -> String {
        self.program.place(step, call.callee.line)
    }

    fn converted(
        &self,
        call: &'a Call,
        env: &Env<'a>,
        to: impl Fn(&Value<'a>) -> Option<Value<'a>>,
    ) -> Known<'a> {
        match (call.arguments.first(), self.argument(call, env, "", Some(0))) {
            (Some(argument), Some(known)) => {
                let converted = self.each(&argument.value, env, &known, to);
                // What is computed is the call, not only what stands in it.
                let is_why_needed = converted.is_unknown() && !known.is_unknown();
                if is_why_needed { self.computed_call(call, env) } else { converted }
            }
            _ => self.computed_call(call, env),
        }
    }

    fn computed_call(&self, call: &Call, env: &Env<'a>) -> Known<'a> {
        let callee = self.program.text(env.step, &call.callee);
        let inner = call.arguments.first().map(|it| self.program.text(env.step, &it.value));
        Known::unknown(format!("computed: {callee}({})", inner.unwrap_or_default()))
    }

    fn extreme(&self, path: &str, call: &'a Call, env: &Env<'a>) -> Known<'a> {
        let places = call.arguments.iter().filter(|it| it.how == How::Place);
        let known: Vec<_> = places.map(|it| self.eval(&it.value, env)).collect();
        let ints: Option<Vec<_>> = known.iter().map(Known::int).collect();
        let found = ints.filter(|it| it.len() > 1 && it.len() == call.arguments.len());
        let found = found.and_then(|ints| {
            if path == "min" { ints.into_iter().min() } else { ints.into_iter().max() }
        });
        match found {
            Some(int) => Known::from_all(Value::Int(int), &known.iter().collect::<Vec<_>>()),
            None => self.computed_call(call, env),
        }
    }

    fn path(&self, call: &'a Call, env: &Env<'a>) -> Known<'a> {
        let mut whole = Known::text("");
        for argument in &call.arguments {
            let part = self.eval(&argument.value, env);
            whole = self.both(&argument.value, env, (&whole, &part), |left, right| {
                match (left, right) {
                    (Value::Text(left), Value::Text(right)) => {
                        Some(Value::Text(joined(left, right).into()))
                    }
                    _ => None,
                }
            });
        }
        whole
    }

    fn dict_of(&self, call: &'a Call, env: &Env<'a>) -> Known<'a> {
        let mut pairs = Vec::new();
        for argument in &call.arguments {
            let value = self.eval(&argument.value, env);
            match (&argument.how, &value.value) {
                (How::Name(name), _) => pairs.push((Known::text(name.as_str()), value)),
                (How::Names | How::Place, Value::Dict(more)) => pairs.extend(more.iter().cloned()),
                _ => return self.computed_call(call, env),
            }
        }
        Known::certain(Value::Dict(pairs.into()))
    }

    fn environment(&self, call: &'a Call, env: &Env<'a>) -> Known<'a> {
        let name = self.argument(call, env, "key", Some(0));
        let name = name.as_ref().and_then(Known::str).unwrap_or("a variable").to_owned();
        match self.argument(call, env, "default", Some(1)) {
            Some(known) if !known.is_unknown() && known.value != Value::None => {
                known.likely(|| format!("unless the environment has {name}"))
            }
            _ => Known::unknown(format!("from the environment: {name}")),
        }
    }

    /// `getattr(args, "name", default)`
    fn got_attribute(&self, call: &'a Call, env: &Env<'a>) -> Option<Known<'a>> {
        let (base, name) = (call.arguments.first()?, call.arguments.get(1)?);
        let Kind::Text(name) = &name.value.kind else { return None };
        let known = self.attribute(&base.value, name, env);
        if !known.is_unknown() {
            return Some(known);
        }
        let default = self.argument(call, env, "", Some(2))?;
        Some(default.likely(|| format!("default of getattr, {}", self.line(env.step, call))))
    }

    /// An element of what a value is unpacked to.
    pub(super) fn element(&self, value: &'a Expr, index: usize, env: &Env<'a>) -> Known<'a> {
        let known = self.eval(value, env);
        let element = |it: Known<'a>| match &it.value {
            Value::Sequence(items) => {
                items.get(index).cloned().unwrap_or_else(|| self.computed(value, env))
            }
            // `accelerator.prepare(model, loader)` gives back what it gets.
            Value::Made(made) if made.path.ends_with(".prepare") => {
                let given = self.argument(made.call, &made.env, "", Some(index));
                given.unwrap_or_else(|| self.computed(value, env))
            }
            Value::Made(made) if made.path.ends_with(".parse_args_into_dataclasses") => {
                self.dataclass(made, index).unwrap_or_else(|| self.computed(value, env))
            }
            // Options beside what is left of the command line; the parts of a dataset that is split.
            Value::Made(_) => it,
            _ => Known::unknown(self.reason(&it, value, env)),
        };
        let why = known.why.clone();
        let elements = known.alternatives().into_iter().map(element).collect();
        Known::one_of(elements, || why.as_deref().unwrap_or("one of several").to_owned())
    }

    /// `HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()`
    fn dataclass(&self, made: &crate::script::value::Made<'a>, index: usize) -> Option<Known<'a>> {
        let parser = made.on.as_ref()?.made()?;
        let classes = self.argument(parser.call, &parser.env, "dataclass_types", Some(0))?;
        let class = match classes.value {
            Value::Sequence(ref classes) => classes.get(index)?.value.clone(),
            single => single,
        };
        match class {
            Value::Class(class) => Some(Known::certain(Value::Instance(class, None))),
            // A dataclass of a library has defaults of its own.
            _ => Some(Known::unknown("given on the command line")),
        }
    }

    /// What a name is while `for name in over` runs.
    pub(super) fn looped(&self, name: &str, over: &'a Expr, env: &Env<'a>) -> Known<'a> {
        let known = self.eval(over, env);
        match &known.value {
            Value::Sequence(items) if items.len() <= super::CALLERS_MAX => {
                let place = self.place(env.step, over);
                Known::one_of(items.to_vec(), || format!("each of those at {place}"))
            }
            _ => Known::unknown(format!(
                "`{name}` changes in the loop, {}",
                self.place(env.step, over)
            )),
        }
    }
}

fn int<'a>(value: &Value<'a>) -> Option<Value<'a>> {
    match value {
        Value::Int(int) => Some(Value::Int(*int)),
        Value::Bool(bool) => Some(Value::Int(i64::from(*bool))),
        Value::Text(text) => text.trim().parse().ok().map(Value::Int),
        #[expect(clippy::cast_possible_truncation, reason = "checked to be in the range of i64")]
        Value::Float(float) if float.abs() < 9e15 => Some(Value::Int(float.trunc() as i64)),
        _ => None,
    }
}

fn float<'a>(value: &Value<'a>) -> Option<Value<'a>> {
    #[expect(clippy::cast_precision_loss, reason = "Python's own conversion")]
    match value {
        Value::Int(int) => Some(Value::Float(*int as f64)),
        Value::Float(float) => Some(Value::Float(*float)),
        Value::Text(text) => text.trim().parse().ok().map(Value::Float),
        _ => None,
    }
}

fn text<'a>(value: &Value<'a>) -> Option<Value<'a>> {
    match value {
        Value::Text(text) => Some(Value::Text(text.clone())),
        Value::Int(int) => Some(Value::Text(int.to_string().into())),
        _ => None,
    }
}

fn len<'a>(value: &Value<'a>) -> Option<Value<'a>> {
    let len = match value {
        Value::Sequence(items) => items.len(),
        Value::Dict(pairs) => pairs.len(),
        Value::Text(text) => text.chars().count(),
        _ => return None,
    };
    i64::try_from(len).ok().map(Value::Int)
}
