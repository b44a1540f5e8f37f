//! How a table says what a call means.

use crate::script::finding::Kind;

/// A call that says something.
#[derive(Debug)]
pub(in crate::script) struct Spec {
    /// The full name; `*.name` for a method of whatever.
    pub(in crate::script) path: &'static str,
    pub(in crate::script) kind: Kind,
    /// What it does, in words; its name if empty.
    pub(in crate::script) says: &'static str,
    pub(in crate::script) parameters: &'static [Parameter],
}

/// An argument that is worth knowing.
#[derive(Debug)]
pub(in crate::script) struct Parameter {
    pub(in crate::script) name: &'static str,
    /// Where it may stand without its name, from 0.
    pub(in crate::script) place: Option<usize>,
    pub(in crate::script) default: Default,
}

/// What a library takes if an argument is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::script) enum Default {
    /// Not worth telling.
    Silent,
    None,
    Bool(bool),
    Int(i64),
    Text(&'static str),
}

impl Spec {
    pub(super) const fn new(
        kind: Kind,
        path: &'static str,
        says: &'static str,
        parameters: &'static [Parameter],
    ) -> Self {
        Self { path, kind, says, parameters }
    }

    /// Whether this is about a call of `path`.
    pub(in crate::script) fn is_about(&self, path: &str) -> bool {
        match self.path.strip_prefix('*') {
            Some(method) => path.ends_with(method),
            None => self.path == path,
        }
    }
}

pub(super) const fn at(place: usize, name: &'static str) -> Parameter {
    Parameter { name, place: Some(place), default: Default::Silent }
}

pub(super) const fn at_or(place: usize, name: &'static str, default: Default) -> Parameter {
    Parameter { name, place: Some(place), default }
}

pub(super) const fn named(name: &'static str) -> Parameter {
    Parameter { name, place: None, default: Default::Silent }
}

pub(super) const fn named_or(name: &'static str, default: Default) -> Parameter {
    Parameter { name, place: None, default }
}
