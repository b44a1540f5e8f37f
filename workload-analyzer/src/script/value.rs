//! What an expression of a script may be when it runs, and how sure that is.

use std::{fmt, rc::Rc};

use serde::Serialize;

use super::{
    program::{ClassId, FunctionId, StepId},
    tree::{Call, Expr},
};

/// How sure a statement about a script is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Certainty {
    /// It stands there literally, or is the library's own default.
    Certain,
    /// It follows from something that a run can change: a default of an option, a name assigned once.
    Likely,
    /// It is computed, or depends on what is known at run time only.
    Unknown,
}

impl Certainty {
    /// The name in tables and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Certain => "certain",
            Self::Likely => "likely",
            Self::Unknown => "unknown",
        }
    }
}

/// A value, and how it is known.
#[derive(Debug, Clone)]
pub(super) struct Known<'a> {
    pub(super) value: Value<'a>,
    pub(super) certainty: Certainty,
    /// Where a likely value comes from, or why a value is unknown.
    pub(super) why: Option<Rc<str>>,
}

#[derive(Debug, Clone)]
pub(super) enum Value<'a> {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Rc<str>),
    Sequence(Rc<[Known<'a>]>),
    Dict(Rc<[(Known<'a>, Known<'a>)]>),
    /// Something of a library, by its full name.
    Symbol(Rc<str>),
    /// One of the files.
    Module(usize),
    Function(FunctionId),
    Class(ClassId),
    /// A method with what it is called on.
    Method(FunctionId, Rc<Value<'a>>),
    /// An object of a class of these files; `None` where it was made is not known.
    Instance(ClassId, Option<Rc<Made<'a>>>),
    /// What a class keeps of the parameters that it was made with.
    Settings(ClassId, Option<Rc<Made<'a>>>),
    /// What a call of a library gives.
    Made(Rc<Made<'a>>),
    Member(Rc<Made<'a>>, Rc<str>),
    /// One of these.
    Any(Rc<[Known<'a>]>),
    Unknown,
}

/// A call and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Made<'a> {
    /// The full name of what is called; empty for a class of these files.
    pub(super) path: Rc<str>,
    pub(super) expr: &'a Expr,
    pub(super) call: &'a Call,
    pub(super) env: Env<'a>,
    /// What a method is called on.
    pub(super) on: Option<Known<'a>>,
}

/// From where an expression is looked at.
#[derive(Debug, Clone)]
pub(super) struct Env<'a> {
    pub(super) step: StepId,
    pub(super) frame: Option<Rc<Frame<'a>>>,
}

/// A call of a function of these files.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub(super) function: FunctionId,
    pub(super) call: &'a Call,
    pub(super) env: Env<'a>,
    /// What `self` is.
    pub(super) this: Option<Rc<Value<'a>>>,
}

impl<'a> Env<'a> {
    pub(super) fn at(step: StepId) -> Self {
        Self { step, frame: None }
    }

    /// The innermost call of `function` that leads here.
    pub(super) fn frame_of(&self, function: FunctionId) -> Option<&Rc<Frame<'a>>> {
        let mut frame = self.frame.as_ref();
        while let Some(current) = frame {
            if current.function == function {
                return Some(current);
            }
            frame = current.env.frame.as_ref();
        }
        None
    }
}

impl<'a> Known<'a> {
    pub(super) fn certain(value: Value<'a>) -> Self {
        Self { value, certainty: Certainty::Certain, why: None }
    }

    pub(super) fn unknown(why: impl Into<Rc<str>>) -> Self {
        Self { value: Value::Unknown, certainty: Certainty::Unknown, why: Some(why.into()) }
    }

    pub(super) fn text(text: impl Into<Rc<str>>) -> Self {
        Self::certain(Value::Text(text.into()))
    }

    /// At most likely, for this reason unless there is one already.
    pub(super) fn likely(mut self, why: impl FnOnce() -> String) -> Self {
        if self.certainty == Certainty::Certain {
            self.certainty = Certainty::Likely;
            self.why.get_or_insert_with(|| why().into());
        }
        self
    }

    /// The same way of knowing for something computed from these.
    pub(super) fn from_all(value: Value<'a>, parts: &[&Self]) -> Self {
        let worst = parts.iter().max_by_key(|part| part.certainty);
        let certainty = worst.map_or(Certainty::Certain, |part| part.certainty);
        Self { value, certainty, why: worst.and_then(|part| part.why.clone()) }
    }

    /// What this may be: itself, unless it is one of several.
    pub(super) fn alternatives(&self) -> Vec<Self> {
        match &self.value {
            Value::Any(alternatives) => alternatives.to_vec(),
            _ => vec![self.clone()],
        }
    }

    /// One of several, or that one if they are all the same.
    pub(super) fn one_of(mut alternatives: Vec<Self>, why: impl FnOnce() -> String) -> Self {
        if alternatives.len() == 1 {
            return alternatives.remove(0);
        }
        let mut different: Vec<Self> = Vec::new();
        for alternative in alternatives.into_iter().flat_map(|it| it.alternatives()) {
            match different.iter_mut().find(|it| it.value == alternative.value) {
                Some(same) if alternative.certainty > same.certainty => *same = alternative,
                Some(_) => {}
                None => different.push(alternative),
            }
        }
        if different.len() == 1 {
            return different.remove(0);
        }
        if different.is_empty() || different.iter().all(|it| matches!(it.value, Value::Unknown)) {
            return different.into_iter().next().unwrap_or_else(|| Self::unknown(why()));
        }
        let certainty = Certainty::Unknown;
        Self { value: Value::Any(different.into()), certainty, why: Some(why().into()) }
    }

    pub(super) fn is_unknown(&self) -> bool {
        matches!(self.value, Value::Unknown)
    }

    pub(super) fn int(&self) -> Option<i64> {
        match self.value {
            Value::Int(int) => Some(int),
            _ => None,
        }
    }

    pub(super) fn bool(&self) -> Option<bool> {
        match self.value {
            Value::Bool(bool) => Some(bool),
            _ => None,
        }
    }

    pub(super) fn str(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn made(&self) -> Option<&Rc<Made<'a>>> {
        match &self.value {
            Value::Made(made) => Some(made),
            _ => None,
        }
    }
}

impl Value<'_> {
    /// Whether Python takes it for true; `None` if that is not known.
    pub(super) fn truth(&self) -> Option<bool> {
        match self {
            Self::None => Some(false),
            Self::Bool(bool) => Some(*bool),
            Self::Int(int) => Some(*int != 0),
            Self::Float(float) => Some(*float != 0.0),
            Self::Text(text) => Some(!text.is_empty()),
            Self::Sequence(items) => Some(!items.is_empty()),
            Self::Dict(pairs) => Some(!pairs.is_empty()),
            Self::Module(_) | Self::Function(_) | Self::Class(_) | Self::Method(..) => Some(true),
            // Objects may have a length: a dataset can be empty, and is false then.
            Self::Symbol(_)
            | Self::Instance(..)
            | Self::Settings(..)
            | Self::Made(_)
            | Self::Member(..)
            | Self::Any(_)
            | Self::Unknown => None,
        }
    }

    /// Whether it is `None`; nothing if that is not known.
    pub(super) fn is_none(&self) -> Option<bool> {
        match self {
            Self::None => Some(true),
            Self::Any(_) | Self::Unknown | Self::Member(..) | Self::Symbol(_) => None,
            _ => Some(false),
        }
    }

    /// A number, text and the like, rather than an object.
    pub(super) fn is_plain(&self) -> bool {
        matches!(
            self,
            Self::None
                | Self::Bool(_)
                | Self::Int(_)
                | Self::Float(_)
                | Self::Text(_)
                | Self::Sequence(_)
                | Self::Dict(_)
        )
    }
}

impl PartialEq for Value<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, Self::None) | (Self::Unknown, Self::Unknown) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Float(a), Self::Float(b)) => a.to_bits() == b.to_bits(),
            (Self::Text(a), Self::Text(b)) | (Self::Symbol(a), Self::Symbol(b)) => a == b,
            (Self::Sequence(a), Self::Sequence(b)) => {
                a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| a.value == b.value)
            }
            (Self::Module(a), Self::Module(b)) => a == b,
            (Self::Function(a), Self::Function(b)) => a == b,
            (Self::Class(a), Self::Class(b)) => a == b,
            (Self::Made(a), Self::Made(b)) => std::ptr::eq(a.expr, b.expr),
            (Self::Member(a, name), Self::Member(b, other)) => {
                std::ptr::eq(a.expr, b.expr) && name == other
            }
            (Self::Instance(a, made), Self::Instance(b, other))
            | (Self::Settings(a, made), Self::Settings(b, other)) => {
                let expr = |made: &Option<Rc<Made<'_>>>| {
                    made.as_ref().map(|made| std::ptr::from_ref(made.expr).cast::<()>())
                };
                a == b && expr(made) == expr(other)
            }
            // Not equal to itself, like a NaN, and kept once all the same: see `one_of`.
            _ => false,
        }
    }
}

impl fmt::Display for Certainty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
