//! Calls: what is called, with what, and what functions of these files give back.

use std::{collections::BTreeMap, rc::Rc};

use super::{CALLERS_MAX, Evaluator};
use crate::script::{
    known,
    program::{FunctionId, Owner, Site},
    tree::{Call, Expr, How, Kind, ParameterKind},
    value::{Certainty, Env, Frame, Known, Made, Value},
};

/// What a call calls.
#[derive(Debug, Clone)]
pub(in crate::script) enum Callee<'a> {
    /// Something of a library, by its full name, and what it is called on if that is an object.
    Library(Rc<str>, Option<Known<'a>>),
    Function(FunctionId, Option<Rc<Value<'a>>>),
    Class(crate::script::program::ClassId),
    /// Not known, but for the last name.
    Unknown(Option<Known<'a>>),
}

impl<'a> Evaluator<'a> {
    /// Where each function of these files is called, as far as that can be seen.
    pub(super) fn callers(&self) -> BTreeMap<FunctionId, Vec<Site<'a>>> {
        let mut sites: BTreeMap<FunctionId, Vec<Site<'a>>> = BTreeMap::new();
        for site in &self.program.calls {
            let callee = self.callee(site.call, &Env::at(site.step));
            let function = match callee {
                Callee::Function(function, _) => Some(function),
                Callee::Class(class) => self.initialiser(class),
                Callee::Library(..) | Callee::Unknown(_) => None,
            };
            if let Some(function) = function {
                sites.entry(function).or_default().push(*site);
            }
        }
        sites
    }

    pub(in crate::script) fn callee(&self, call: &'a Call, env: &Env<'a>) -> Callee<'a> {
        let on = call.receiver().map(|receiver| self.eval(receiver, env));
        if let Some(on) = &on
            && let Some(path) = self.fluent(on, call.last_name(), env)
        {
            return Callee::Library(path, Some(on.clone()));
        }
        // What stands before the dot is evaluated once: a chain of methods would take twice as long with
        // every method else.
        let callee = match (&call.callee.kind, &on) {
            (Kind::Attribute(base, name), Some(on)) => self.attribute_of(on, base, name, env),
            _ => self.eval(&call.callee, env),
        };
        match callee.alternatives().into_iter().map(|it| it.value).find(|it| *it != Value::Unknown)
        {
            Some(Value::Symbol(path)) => Callee::Library(path, on),
            Some(Value::Member(made, name)) => {
                let path = format!("{}.{name}", made.path);
                Callee::Library(known::canonical(&path).into(), on)
            }
            Some(Value::Function(function)) => Callee::Function(function, None),
            Some(Value::Method(function, this)) => Callee::Function(function, Some(this)),
            Some(Value::Class(class)) => Callee::Class(class),
            _ => Callee::Unknown(on),
        }
    }

    /// The full name of a method of an object that gives another such object: of a tf.data pipeline.
    fn fluent(&self, on: &Known<'a>, method: &str, env: &Env<'a>) -> Option<Rc<str>> {
        let family = |it: &Known<'a>| it.made().and_then(|made| known::family(&made.path));
        let family = on.alternatives().iter().find_map(family);
        // Where a pipeline begins may be hidden; its steps cannot be mistaken.
        let guessed = || {
            let is_pipeline = on.alternatives().iter().any(Known::is_unknown);
            let module = self.program.module_of(env.step);
            let mut imports = self.program.modules[module].imports.iter();
            let is_tf = imports.any(|(_, import)| import.module.starts_with("tensorflow"));
            let family = known::family("tensorflow.data.Dataset")?;
            (is_pipeline && is_tf && family.is_telling(method)).then_some(family)
        };
        let family = family.or_else(guessed)?;
        family.has(method).then(|| format!("{}.{method}", family.name).into())
    }

    pub(super) fn call(&self, expr: &'a Expr, call: &'a Call, env: &Env<'a>) -> Known<'a> {
        let made = |path: Rc<str>, on| Rc::new(Made { path, expr, call, env: env.clone(), on });
        match self.callee(call, env) {
            Callee::Library(path, on) => {
                let known = self.builtin(&path, call, env);
                known.unwrap_or_else(|| Known::certain(Value::Made(made(path, on))))
            }
            Callee::Function(function, this) => self.returned(function, this, call, env),
            Callee::Class(class) => {
                Known::certain(Value::Instance(class, Some(made("".into(), None))))
            }
            Callee::Unknown(on) => {
                let known = on.and_then(|on| self.method(&on, call, env));
                known.unwrap_or_else(|| self.computed(expr, env))
            }
        }
    }

    fn returned(
        &self,
        function: FunctionId,
        this: Option<Rc<Value<'a>>>,
        call: &'a Call,
        env: &Env<'a>,
    ) -> Known<'a> {
        let found = &self.program.functions[function.0];
        let name = &found.tree.name;
        if env.frame_of(function).is_some() {
            return Known::unknown(format!("`{name}` calls itself"));
        }
        let frame = Rc::new(Frame { function, call, env: env.clone(), this });
        let mut known = Vec::new();
        for (step, value) in &found.returns {
            let at = Env { step: *step, frame: Some(Rc::clone(&frame)) };
            let arms = &self.program.step(*step).arms;
            let is_skipped = |arm: &crate::script::program::Arm| {
                self.decided(arm.branch, &at).is_some_and(|taken| taken != arm.arm)
            };
            if arms.iter().any(is_skipped) {
                continue;
            }
            known.push(self.eval(value, &at));
            let is_sure =
                |arm: &crate::script::program::Arm| self.decided(arm.branch, &at).is_some();
            if arms.iter().all(is_sure) {
                break;
            }
        }
        if known.is_empty() {
            return Known::unknown(format!("`{name}` returns nothing that is followed"));
        }
        Known::one_of(known, || format!("`{name}` returns one of several"))
    }

    /// What a parameter is: what the call that leads here gives, else what all callers give.
    pub(super) fn parameter(&self, function: FunctionId, index: usize, env: &Env<'a>) -> Known<'a> {
        let found = &self.program.functions[function.0];
        let parameter = &found.tree.parameters[index];
        if let (Some(class), 0) = (found.class, index)
            && !self.is_static(function)
        {
            let frame = env.frame_of(function);
            let this = frame.and_then(|frame| frame.this.as_deref().cloned());
            return Known::certain(this.unwrap_or(Value::Instance(class, None)));
        }
        if parameter.kind == ParameterKind::Rest {
            return Known::unknown(format!("`{}` holds any number of arguments", parameter.name));
        }
        if let Some(frame) = env.frame_of(function) {
            return self.passed(frame, index);
        }
        let sites = self.sites_of(function);
        if sites.is_empty() {
            return self.without_caller(function, index);
        }
        if sites.len() > CALLERS_MAX {
            return Known::unknown(format!("`{}` has {} callers", found.tree.name, sites.len()));
        }
        let known =
            sites.iter().map(|site| self.passed(&self.frame_at(function, site, None), index));
        Known::one_of(known.collect(), || {
            let places: Vec<_> = sites.iter().map(|it| self.place(it.step, it.expr)).collect();
            format!("differs from call to call: {}", places.join(", "))
        })
    }

    pub(in crate::script) fn frame_at(
        &self,
        function: FunctionId,
        site: &Site<'a>,
        up: Option<Rc<Frame<'a>>>,
    ) -> Rc<Frame<'a>> {
        let env = Env { step: site.step, frame: up };
        let this = match self.callee(site.call, &env) {
            Callee::Function(_, this) => this,
            Callee::Class(class) => {
                let made = Made {
                    path: "".into(),
                    expr: site.expr,
                    call: site.call,
                    env: env.clone(),
                    on: None,
                };
                Some(Rc::new(Value::Instance(class, Some(Rc::new(made)))))
            }
            Callee::Library(..) | Callee::Unknown(_) => None,
        };
        Rc::new(Frame { function, call: site.call, env, this })
    }

    fn is_static(&self, function: FunctionId) -> bool {
        let decorators = &self.program.functions[function.0].tree.decorators;
        decorators.iter().any(|it| matches!(&it.kind, Kind::Name(name) if name == "staticmethod"))
    }

    /// Whether the command line gives the parameters, by decorators of click.
    fn is_command(&self, function: FunctionId) -> bool {
        let is_option =
            |it: &Expr| matches!(&it.kind, Kind::Call(it) if it.last_name() == "option");
        self.program.functions[function.0].tree.decorators.iter().any(is_option)
    }

    fn without_caller(&self, function: FunctionId, index: usize) -> Known<'a> {
        let found = &self.program.functions[function.0];
        let parameter = &found.tree.parameters[index];
        if self.is_command(function)
            && let Some(option) = self.option(&parameter.name)
        {
            return option;
        }
        let name = &parameter.name;
        match &parameter.default {
            Some(default) => {
                let known = self.eval(default, &Env::at(found.step));
                known.likely(|| format!("default of parameter `{name}` of {}", found.tree.name))
            }
            None => Known::unknown(format!(
                "parameter `{name}` of {}, which nothing in these files calls",
                found.tree.name
            )),
        }
    }

    /// What a call gives for a parameter.
    fn passed(&self, frame: &Rc<Frame<'a>>, index: usize) -> Known<'a> {
        let found = &self.program.functions[frame.function.0];
        let parameter = &found.tree.parameters[index];
        let skipped = usize::from(found.class.is_some() && !self.is_static(frame.function));
        let place = match parameter.kind {
            ParameterKind::Plain => index.checked_sub(skipped),
            ParameterKind::ByName | ParameterKind::Rest => None,
        };
        if let Some(known) = self.argument(frame.call, &frame.env, &parameter.name, place) {
            return known;
        }
        let is_open = frame.call.arguments.iter().any(|it| matches!(it.how, How::Splat));
        match &parameter.default {
            Some(default) if !is_open => self.eval(default, &Env::at(found.step)),
            None if self.is_command(frame.function) => self.without_caller(frame.function, index),
            _ => Known::unknown(format!(
                "parameter `{}` of {}, called at {}",
                parameter.name,
                found.tree.name,
                self.program.place(frame.env.step, self.program.step(frame.env.step).line),
            )),
        }
    }

    /// The argument with this name, or at this place; `None` if the call has no such.
    pub(in crate::script) fn argument(
        &self,
        call: &'a Call,
        env: &Env<'a>,
        name: &str,
        place: Option<usize>,
    ) -> Option<Known<'a>> {
        let mut places = 0;
        let mut hidden = None;
        for argument in &call.arguments {
            match &argument.how {
                How::Name(own) if own == name => return Some(self.eval(&argument.value, env)),
                How::Place if hidden.is_none() && place == Some(places) => {
                    return Some(self.eval(&argument.value, env));
                }
                How::Place => places += 1,
                How::Splat if place.is_some() => {
                    let splat = self.eval(&argument.value, env);
                    hidden = Some(Known::unknown(self.reason(&splat, &argument.value, env)));
                }
                How::Names => match self.spread(&argument.value, name, env) {
                    Some(Ok(known)) => return Some(known),
                    Some(Err(unknown)) => hidden = Some(unknown),
                    None => {}
                },
                How::Name(_) | How::Splat => {}
            }
        }
        hidden
    }

    /// What `**values` gives for a name; an error if that is not known.
    fn spread(
        &self,
        values: &'a Expr,
        name: &str,
        env: &Env<'a>,
    ) -> Option<Result<Known<'a>, Known<'a>>> {
        let known = self.eval(values, env);
        let mut found = Vec::new();
        for alternative in known.alternatives() {
            let Value::Dict(pairs) = &alternative.value else {
                return Some(Err(Known::unknown(self.reason(&alternative, values, env))));
            };
            let own = pairs.iter().rev().find(|(key, _)| key.str() == Some(name));
            match own {
                Some((_, value)) => found.push(value.clone()),
                None if alternative.certainty == Certainty::Unknown => {
                    return Some(Err(Known::unknown(self.reason(&alternative, values, env))));
                }
                None => {}
            }
        }
        let text = self.program.text(env.step, values);
        let place = self.place(env.step, values);
        (!found.is_empty()).then(|| {
            let known = Known::one_of(found, || format!("one of several `{text}`"));
            // A mapping that stands in the call is as good as arguments.
            let is_literal = matches!(values.kind, Kind::Dict(_));
            Ok(if is_literal {
                known
            } else {
                known.likely(|| format!("from `**{text}`, {place}"))
            })
        })
    }

    /// The calls that lead to a statement, one by one; the one without any if there are too many.
    pub(in crate::script) fn contexts(&self, env: &Env<'a>) -> Vec<Env<'a>> {
        const CONTEXTS_MAX: usize = 8;
        const CALLS_MAX: usize = 4;

        let unknown = || vec![env.clone()];
        let scope = self.program.step(env.step).scope;
        let Owner::Function(function) = self.program.scopes[scope.0].owner else {
            return unknown();
        };
        let sites = self.sites_of(function);
        if sites.is_empty() || sites.len() > CONTEXTS_MAX {
            return unknown();
        }
        let mut contexts = Vec::new();
        for site in sites {
            if self.program.function_of(site.step) == Some(function) {
                continue;
            }
            for outer in self.contexts_of_caller(&Env::at(site.step), CALLS_MAX) {
                let frame = self.frame_at(function, site, outer.frame);
                contexts.push(Env { step: env.step, frame: Some(frame) });
            }
        }
        if contexts.is_empty() || contexts.len() > CONTEXTS_MAX { unknown() } else { contexts }
    }

    fn contexts_of_caller(&self, env: &Env<'a>, calls_left: usize) -> Vec<Env<'a>> {
        let Some(function) = self.program.function_of(env.step) else { return vec![env.clone()] };
        let sites = self.sites_of(function);
        if calls_left == 0 || sites.len() != 1 {
            return vec![env.clone()];
        }
        let outer = Env::at(sites[0].step);
        if self.program.function_of(outer.step) == Some(function) {
            return vec![env.clone()];
        }
        let outer = self.contexts_of_caller(&outer, calls_left - 1);
        let frame = |up: Env<'a>| self.frame_at(function, &sites[0], up.frame);
        outer.into_iter().map(|up| Env { step: env.step, frame: Some(frame(up)) }).collect()
    }
}
