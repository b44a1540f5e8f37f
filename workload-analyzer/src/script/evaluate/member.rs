//! Attributes: of modules, of classes and their objects, and of what holds options.

use std::rc::Rc;

use super::{Evaluator, operator::from_mapping};
use crate::script::{
    known,
    program::{Bound, ClassId, StepId},
    tree::{Expr, How, Kind},
    value::{Env, Frame, Known, Made, Value},
};

/// What options are called where nobody can say what the name holds.
const OPTION_NAMES: [&str; 16] = [
    "FLAGS", "arg", "args", "argv", "cfg", "conf", "config", "flags", "hparams", "hp", "opt",
    "options", "opts", "params", "parsed", "settings",
];

/// Objects that keep what they are made with under its own name.
const NAMESPACES: [&str; 6] = [
    "argparse.Namespace",
    "dict",
    "easydict.EasyDict",
    "ml_collections.ConfigDict",
    "omegaconf.OmegaConf.create",
    "types.SimpleNamespace",
];

impl<'a> Evaluator<'a> {
    pub(super) fn attribute(&self, base: &'a Expr, name: &'a str, env: &Env<'a>) -> Known<'a> {
        let known = self.eval(base, env);
        self.attribute_of(&known, base, name, env)
    }

    /// An attribute of what `base` is known to be.
    pub(super) fn attribute_of(
        &self,
        known: &Known<'a>,
        base: &'a Expr,
        name: &'a str,
        env: &Env<'a>,
    ) -> Known<'a> {
        let is_options = matches!(
            &base.kind,
            Kind::Name(last) | Kind::Attribute(_, last) if OPTION_NAMES.contains(&last.as_str())
        );
        let members = known.alternatives().into_iter().map(|it| {
            let member = self.member(&it, name, env);
            if !member.is_unknown() || !is_options || !it.is_unknown() {
                return member;
            }
            self.option(name).unwrap_or(member)
        });
        let why = || known.why.as_deref().unwrap_or("one of several").to_owned();
        Known::one_of(members.collect(), why)
    }

    fn member(&self, base: &Known<'a>, name: &'a str, env: &Env<'a>) -> Known<'a> {
        let unknown = || Known::unknown(format!("`{name}` of an object is not followed"));
        match &base.value {
            Value::Module(module) => self.in_module(*module, name).unwrap_or_else(unknown),
            Value::Symbol(path) => self.symbol_member(path, name, env),
            Value::Class(class) => self.class_member(*class, None, name).unwrap_or_else(unknown),
            Value::Instance(class, made) => {
                self.class_member(*class, made.as_ref(), name).unwrap_or_else(unknown)
            }
            Value::Settings(class, made) => self.setting(*class, made.as_ref(), name),
            Value::Made(made) => self.made_member(made, name),
            Value::Dict(pairs) => {
                let found = pairs.iter().rev().find(|(key, _)| key.str() == Some(name));
                let from = || {
                    from_mapping(base, || {
                        self.program.place(env.step, self.program.step(env.step).line)
                    })
                };
                found.map_or_else(unknown, |(_, value)| value.clone().likely(from))
            }
            Value::Unknown => base.clone(),
            _ => unknown(),
        }
    }

    fn symbol_member(&self, path: &str, name: &str, env: &Env<'a>) -> Known<'a> {
        let full = format!("{path}.{name}");
        if matches!(path, "absl.flags.FLAGS" | "tensorflow.app.flags.FLAGS") {
            return self.option(name).unwrap_or_else(|| Known::unknown(format!("option {name}")));
        }
        let module = self.program.module_of(env.step);
        let value = match self.program.modules[module].parsed.links.get(&full) {
            Some(local) => Value::Module(*local),
            None => Value::Symbol(known::canonical(&full).into()),
        };
        Known::certain(value)
    }

    fn made_member(&self, made: &Rc<Made<'a>>, name: &str) -> Known<'a> {
        if known::gives_options(&made.path) {
            let missing =
                || Known::unknown(format!("no option `{name}` is declared in these files"));
            return self.option(name).unwrap_or_else(missing);
        }
        if NAMESPACES.contains(&&*made.path) {
            let inner = self.argument(made.call, &made.env, "", Some(0));
            if let Some(Known { value: Value::Dict(pairs), .. }) = inner
                && let Some((_, value)) =
                    pairs.iter().rev().find(|(key, _)| key.str() == Some(name))
            {
                let place = || format!("from {} at {}", made.path, self.place_of(made));
                return value.clone().likely(place);
            }
            let arguments = made.call.arguments.iter();
            let own = arguments.rev().find(|it| matches!(&it.how, How::Name(it) if it == name));
            if let Some(argument) = own {
                let place = || format!("from {} at {}", made.path, self.place_of(made));
                return self.eval(&argument.value, &made.env).likely(place);
            }
        }
        Known::certain(Value::Member(Rc::clone(made), name.into()))
    }

    pub(in crate::script) fn place_of(&self, made: &Made<'a>) -> String {
        self.place(made.env.step, made.expr)
    }

    /// A name that a class, its objects or its bases have.
    pub(super) fn class_member(
        &self,
        class: ClassId,
        made: Option<&Rc<Made<'a>>>,
        name: &'a str,
    ) -> Option<Known<'a>> {
        let found = &self.program.classes[class.0];
        if let Some(bindings) = found.attributes.get(name) {
            let known = bindings.iter().map(|it| self.own_attribute(it.step, it.what, class, made));
            return Some(Known::one_of(known.collect(), || format!("`self.{name}` is set twice")));
        }
        if let Some(bindings) = self.bindings_in(found.scope, name) {
            return self.class_binding(class, made, name, bindings);
        }
        if name == "hparams" {
            return Some(Known::certain(Value::Settings(class, made.cloned())));
        }
        self.inherited(class, made, name)
    }

    fn class_binding(
        &self,
        class: ClassId,
        made: Option<&Rc<Made<'a>>>,
        name: &'a str,
        bindings: &[crate::script::program::Binding<'a>],
    ) -> Option<Known<'a>> {
        // A field of a dataclass may be given when an object is made.
        let is_field =
            matches!(bindings.last().map(|it| it.what), Some(Bound::To(_) | Bound::Declared));
        let given = made.filter(|_| is_field).and_then(|made| {
            let mut arguments = made.call.arguments.iter();
            let own = arguments.find(|it| matches!(&it.how, How::Name(it) if it == name))?;
            Some(self.eval(&own.value, &made.env))
        });
        if given.is_some() {
            return given;
        }
        let env = Env::at(bindings.first()?.step);
        let known = self.flow(name, bindings, None, &env);
        let class_name = &self.program.classes[class.0].tree.name;
        Some(match known.value {
            Value::Function(function) => {
                let this = Value::Instance(class, made.cloned());
                Known::certain(Value::Method(function, this.into()))
            }
            Value::Made(ref field) if field.path.ends_with(".field") => {
                let default = field.call.arguments.iter();
                let mut default = default.filter(|it| it.how == How::Name("default".to_owned()));
                let value = default.next().map(|it| self.eval(&it.value, &field.env));
                value.unwrap_or(known).likely(|| format!("default of {class_name}.{name}"))
            }
            _ => known.likely(|| format!("default of {class_name}.{name}")),
        })
    }

    fn own_attribute(
        &self,
        step: StepId,
        what: Bound<'a>,
        class: ClassId,
        made: Option<&Rc<Made<'a>>>,
    ) -> Known<'a> {
        let env = Env { step, frame: self.frame_of_method(step, class, made) };
        match what {
            Bound::To(value) => {
                let known = self.eval(value, &env);
                let is_plain = known.value.is_plain();
                let place = || format!("assigned at {}", self.place(step, value));
                if is_plain { known.likely(place) } else { known }
            }
            Bound::Element(value, index) => self.element(value, index, &env),
            Bound::Changed(value) => {
                Known::unknown(format!("changed at {}", self.place(step, value)))
            }
            _ => Known::unknown("is not followed"),
        }
    }

    /// In `__init__` the parameters are what the object was made with.
    fn frame_of_method(
        &self,
        step: StepId,
        class: ClassId,
        made: Option<&Rc<Made<'a>>>,
    ) -> Option<Rc<Frame<'a>>> {
        let made = made?;
        let function = self.program.function_of(step)?;
        (self.initialiser(class) == Some(function)).then(|| {
            Rc::new(Frame {
                function,
                call: made.call,
                env: made.env.clone(),
                this: Some(Rc::new(Value::Instance(class, Some(Rc::clone(made))))),
            })
        })
    }

    pub(super) fn initialiser(&self, class: ClassId) -> Option<crate::script::program::FunctionId> {
        let bindings = self.bindings_in(self.program.classes[class.0].scope, "__init__")?;
        bindings.iter().rev().find_map(|binding| match binding.what {
            Bound::Function(function) => Some(function),
            _ => None,
        })
    }

    /// `self.hparams.name`: the parameter of `__init__`.
    fn setting(&self, class: ClassId, made: Option<&Rc<Made<'a>>>, name: &'a str) -> Known<'a> {
        let missing = || Known::unknown(format!("`{name}` is no parameter of __init__"));
        let Some(function) = self.initialiser(class) else { return missing() };
        let found = &self.program.functions[function.0];
        let parameters = &found.tree.parameters;
        let Some(index) = parameters.iter().position(|it| it.name == name) else {
            return missing();
        };
        let env = Env { step: found.step, frame: None };
        match made.and_then(|_| Self::frame_for(function, class, made)) {
            Some(frame) => self.parameter(function, index, &Env { frame: Some(frame), ..env }),
            None => self.parameter(function, index, &env),
        }
    }

    fn frame_for(
        function: crate::script::program::FunctionId,
        class: ClassId,
        made: Option<&Rc<Made<'a>>>,
    ) -> Option<Rc<Frame<'a>>> {
        let made = made?;
        let this = Some(Rc::new(Value::Instance(class, Some(Rc::clone(made)))));
        Some(Rc::new(Frame { function, call: made.call, env: made.env.clone(), this }))
    }

    fn inherited(
        &self,
        class: ClassId,
        made: Option<&Rc<Made<'a>>>,
        name: &'a str,
    ) -> Option<Known<'a>> {
        self.bases(class).into_iter().find_map(|base| match base {
            Value::Class(base) if base != class => self.class_member(base, made, name),
            Value::Symbol(path) => {
                let path = format!("{path}.{name}");
                Some(Known::certain(Value::Symbol(path.into())))
            }
            _ => None,
        })
    }

    /// What a class is derived from directly.
    pub(in crate::script) fn bases(&self, class: ClassId) -> Vec<Value<'a>> {
        let found = &self.program.classes[class.0];
        let env = Env::at(found.step);
        let bases = found.tree.bases.iter().filter(|base| base.how == How::Place);
        bases.map(|base| self.eval(&base.value, &env).value).collect()
    }

    /// The library classes that a class is derived from, over other classes of these files.
    pub(in crate::script) fn library_bases(&self, class: ClassId) -> Vec<Rc<str>> {
        let mut open = vec![class];
        let mut seen = Vec::new();
        let mut found = Vec::new();
        while let Some(class) = open.pop() {
            if seen.contains(&class) {
                continue;
            }
            seen.push(class);
            for base in self.bases(class) {
                match base {
                    Value::Class(base) => open.push(base),
                    Value::Symbol(path) => found.push(path),
                    _ => {}
                }
            }
        }
        found
    }
}
