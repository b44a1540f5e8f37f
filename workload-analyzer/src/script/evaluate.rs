//! Says what an expression of a script is when it runs, without running it.
//!
//! Names are followed to where they are bound, options to their defaults, functions to what they
//! return, parameters to what they are called with. What cannot be followed is unknown, and says why.
//!
//! 1. Nothing of a script is executed, and no file is read.
//! 2. Every question ends: following costs fuel, and nests no deeper than [`DEPTH_MAX`].

mod builtin;
mod call;
mod lookup;
mod member;
mod operator;
mod option;

use std::{cell::Cell, collections::BTreeMap, rc::Rc};

use super::{
    program::{FunctionId, Program, Site, StepId},
    tree::{Expr, Kind, Piece},
    value::{Env, Known, Value},
};
pub(super) use call::Callee;
pub(super) use operator::every;

/// Expressions that are followed from one another.
pub(super) const DEPTH_MAX: u32 = 60;

/// Expressions that are looked at to answer one question.
pub(super) const FUEL_OF_QUESTION: u32 = 10_000;

/// Expressions that are looked at in one analysis.
pub(super) const FUEL: u32 = 4_000_000;

/// Callers of a function that are followed.
pub(super) const CALLERS_MAX: usize = 8;

#[derive(Debug)]
pub(super) struct Evaluator<'a> {
    pub(super) program: &'a Program<'a>,
    /// Where each function, or the class whose `__init__` it is, is called.
    sites: BTreeMap<FunctionId, Vec<Site<'a>>>,
    options: BTreeMap<String, Vec<option::Choice<'a>>>,
    fuel: Cell<u32>,
    fuel_of_question: Cell<u32>,
    depth: Cell<u32>,
}

impl<'a> Evaluator<'a> {
    pub(super) fn new(program: &'a Program<'a>) -> Self {
        let mut evaluator = Self {
            program,
            sites: BTreeMap::new(),
            options: BTreeMap::new(),
            fuel: Cell::new(FUEL),
            fuel_of_question: Cell::new(0),
            depth: Cell::new(0),
        };
        evaluator.options = option::of(program);
        evaluator.sites = evaluator.callers();
        evaluator
    }

    /// Whether something was left unknown because the analysis had taken as long as it may.
    pub(super) fn is_exhausted(&self) -> bool {
        self.fuel.get() == 0
    }

    pub(super) fn eval(&self, expr: &'a Expr, env: &Env<'a>) -> Known<'a> {
        if self.depth.get() == 0 {
            self.fuel_of_question.set(FUEL_OF_QUESTION);
        }
        if self.depth.get() >= DEPTH_MAX || !self.spend() {
            return Known::unknown("follows from too much to be followed here");
        }
        self.depth.set(self.depth.get() + 1);
        let known = self.kind(expr, env);
        self.depth.set(self.depth.get() - 1);
        known
    }

    /// Takes one unit of fuel; false if there is none left.
    fn spend(&self) -> bool {
        let (fuel, of_question) = (self.fuel.get(), self.fuel_of_question.get());
        if fuel == 0 || of_question == 0 {
            return false;
        }
        self.fuel.set(fuel - 1);
        self.fuel_of_question.set(of_question - 1);
        true
    }

    fn kind(&self, expr: &'a Expr, env: &Env<'a>) -> Known<'a> {
        match &expr.kind {
            Kind::Name(name) => self.lookup(name, env),
            Kind::Attribute(base, name) => self.attribute(base, name, env),
            Kind::Call(call) => self.call(expr, call, env),
            Kind::Text(text) => Known::text(text.as_str()),
            Kind::Format(pieces) => self.format(pieces, env),
            Kind::Int(int) => Known::certain(Value::Int(*int)),
            Kind::Float(float) => Known::certain(Value::Float(*float)),
            Kind::Bool(bool) => Known::certain(Value::Bool(*bool)),
            Kind::None => Known::certain(Value::None),
            Kind::Sequence(items) => {
                Self::sequence(&items.iter().map(|item| self.eval(item, env)).collect::<Vec<_>>())
            }
            Kind::Dict(pairs) => self.dict(pairs, env),
            Kind::Binary(operator, left, right) => {
                let (left, right) = (self.eval(left, env), self.eval(right, env));
                self.binary(expr, env, *operator, &left, &right)
            }
            Kind::Negative(inner) => self.negative(expr, inner, env),
            Kind::Not(inner) => {
                let inner = self.eval(inner, env);
                self.each(expr, env, &inner, |it| it.truth().map(|truth| Value::Bool(!truth)))
            }
            Kind::Logic(logic, left, right) => self.logic(*logic, left, right, env),
            Kind::Compare(comparison, left, right) => {
                let (left, right) = (self.eval(left, env), self.eval(right, env));
                self.compare(expr, env, *comparison, &left, &right)
            }
            Kind::Choice { test, then, otherwise } => self.choice(test, then, otherwise, env),
            Kind::Item(base, index) => {
                let (base, index) = (self.eval(base, env), self.eval(index, env));
                self.item(expr, env, &base, &index)
            }
            Kind::Bound => Known::unknown("changes from call to call"),
            Kind::Other(_) => self.computed(expr, env),
        }
    }

    /// Unknown because it is computed.
    pub(super) fn computed(&self, expr: &Expr, env: &Env<'a>) -> Known<'a> {
        Known::unknown(format!("computed: {}", self.program.text(env.step, expr)))
    }

    pub(super) fn place(&self, step: StepId, expr: &Expr) -> String {
        self.program.place(step, expr.line)
    }

    pub(super) fn sites_of(&self, function: FunctionId) -> &[Site<'a>] {
        self.sites.get(&function).map(Vec::as_slice).unwrap_or_default()
    }

    fn sequence(items: &[Known<'a>]) -> Known<'a> {
        let value = Value::Sequence(items.into());
        Known::from_all(value, &items.iter().collect::<Vec<_>>())
    }

    fn dict(&self, pairs: &'a [(Option<Expr>, Expr)], env: &Env<'a>) -> Known<'a> {
        let mut known = Vec::new();
        let mut rest = None;
        for (key, value) in pairs {
            let value = self.eval(value, env);
            match key {
                Some(key) => known.push((self.eval(key, env), value)),
                None => match &value.value {
                    Value::Dict(more) => known.extend(more.iter().cloned()),
                    _ => rest = Some(value),
                },
            }
        }
        let mut dict = Known::certain(Value::Dict(known.into()));
        // A key that is not among these may be among those that are unknown.
        if let Some(rest) = rest {
            (dict.certainty, dict.why) = (super::value::Certainty::Unknown, rest.why);
        }
        dict
    }

    fn format(&self, pieces: &'a [Piece], env: &Env<'a>) -> Known<'a> {
        let mut whole = Known::text("");
        for piece in pieces {
            let (part, expr) = match piece {
                Piece::Text(piece) => {
                    whole = Self::append(&whole, piece);
                    continue;
                }
                Piece::Value(value) => (self.eval(value, env), value),
            };
            whole = self.both(expr, env, (&whole, &part), |left, right| match (left, right) {
                (Value::Text(left), Value::Text(right)) => {
                    Some(Value::Text(format!("{left}{right}").into()))
                }
                (Value::Text(left), Value::Int(right)) => {
                    Some(Value::Text(format!("{left}{right}").into()))
                }
                _ => None,
            });
        }
        whole
    }

    /// A text, or each that it may be, with more behind it.
    fn append(text: &Known<'a>, more: &str) -> Known<'a> {
        let longer = |it: Known<'a>| match &it.value {
            Value::Text(text) => Known { value: Value::Text(format!("{text}{more}").into()), ..it },
            _ => it,
        };
        let why = || text.why.as_deref().unwrap_or("computed").to_owned();
        Known::one_of(text.alternatives().into_iter().map(longer).collect(), why)
    }

    /// Why `known` is unknown.
    fn reason(&self, known: &Known<'a>, expr: &Expr, env: &Env<'a>) -> Rc<str> {
        let why = known.why.clone();
        why.unwrap_or_else(|| format!("computed: {}", self.program.text(env.step, expr)).into())
    }
}
