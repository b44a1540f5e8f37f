//! Which names a set of files binds where, and every call in them.
//!
//! 1. A statement has a number, higher than those of the statements above it in its file.
//! 2. The arms of a statement are the branches that must have been taken for it to run. Loops and the
//!    bodies of `with` and `try` are taken to run.

mod build;

use std::{collections::BTreeMap, rc::Rc};

use super::tree::{Class as ClassTree, Expr, Function as FunctionTree, Stmt};

/// A file as it was read.
#[derive(Debug)]
pub(super) struct Parsed {
    /// As it is named in findings.
    pub(super) name: String,
    pub(super) text: String,
    pub(super) statements: Vec<Stmt>,
    /// Which of the other files an import of this one means.
    pub(super) links: BTreeMap<String, usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StepId(pub(super) usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ScopeId(pub(super) usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FunctionId(pub(super) usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClassId(pub(super) usize);

#[derive(Debug)]
pub(super) struct Program<'a> {
    pub(super) modules: Vec<Module<'a>>,
    pub(super) scopes: Vec<Scope<'a>>,
    pub(super) steps: Vec<Step>,
    pub(super) branches: Vec<Branch<'a>>,
    pub(super) loops: Vec<Loop<'a>>,
    pub(super) functions: Vec<Function<'a>>,
    pub(super) classes: Vec<Class<'a>>,
    /// Where `base.name` is assigned to, by `name`: the last name of the base, and the statement.
    pub(super) assigned: BTreeMap<&'a str, Vec<(&'a str, StepId)>>,
    /// In the order of the files, and of the statements in each.
    pub(super) calls: Vec<Site<'a>>,
}

#[derive(Debug)]
pub(super) struct Module<'a> {
    pub(super) parsed: &'a Parsed,
    pub(super) scope: ScopeId,
    /// Every import, in order.
    pub(super) imports: Vec<(StepId, Imports<'a>)>,
}

/// What an import statement brings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Imports<'a> {
    pub(super) module: &'a str,
    pub(super) member: Option<&'a str>,
    pub(super) is_everything: bool,
}

#[derive(Debug)]
pub(super) struct Scope<'a> {
    pub(super) owner: Owner,
    pub(super) parent: Option<ScopeId>,
    pub(super) module: usize,
    /// In the order of the statements.
    pub(super) bindings: BTreeMap<&'a str, Vec<Binding<'a>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Module,
    Function(FunctionId),
    Class(ClassId),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Binding<'a> {
    pub(super) step: StepId,
    pub(super) what: Bound<'a>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Bound<'a> {
    To(&'a Expr),
    /// To an element of what a value is unpacked to.
    Element(&'a Expr, usize),
    /// By `with value as name`.
    Entered(&'a Expr),
    /// By a `for` over this.
    Looped(&'a Expr),
    /// By `+=` and the like.
    Changed(&'a Expr),
    /// To something that is not followed.
    Opaque,
    Declared,
    Parameter(FunctionId, usize),
    Function(FunctionId),
    Class(ClassId),
    Import {
        module: &'a str,
        member: Option<&'a str>,
    },
}

/// A statement.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) scope: ScopeId,
    pub(super) line: u32,
    pub(super) arms: Rc<[Arm]>,
    /// From the outermost.
    pub(super) loops: Rc<[usize]>,
}

/// One of the ways that a branch can go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arm {
    pub(super) branch: usize,
    pub(super) arm: usize,
}

#[derive(Debug)]
pub(super) struct Branch<'a> {
    pub(super) step: StepId,
    /// Arm 0 is taken if this holds, else arm 1. `None` if nothing says which.
    pub(super) test: Option<&'a Expr>,
}

#[derive(Debug)]
pub(super) struct Loop<'a> {
    pub(super) step: StepId,
    /// `None` for `while`.
    pub(super) target: Option<&'a Expr>,
    pub(super) over: &'a Expr,
}

#[derive(Debug)]
pub(super) struct Function<'a> {
    pub(super) tree: &'a FunctionTree,
    /// Of the definition.
    pub(super) step: StepId,
    pub(super) class: Option<ClassId>,
    pub(super) returns: Vec<(StepId, &'a Expr)>,
}

#[derive(Debug)]
pub(super) struct Class<'a> {
    pub(super) tree: &'a ClassTree,
    pub(super) step: StepId,
    pub(super) scope: ScopeId,
    /// What its methods assign to `self`.
    pub(super) attributes: BTreeMap<&'a str, Vec<Binding<'a>>>,
}

/// A call where it stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Site<'a> {
    pub(super) step: StepId,
    pub(super) expr: &'a Expr,
    pub(super) call: &'a super::tree::Call,
}

impl Program<'_> {
    pub(super) fn step(&self, step: StepId) -> &Step {
        &self.steps[step.0]
    }

    pub(super) fn module_of(&self, step: StepId) -> usize {
        self.scopes[self.step(step).scope.0].module
    }

    /// `file:line`
    pub(super) fn place(&self, step: StepId, line: u32) -> String {
        format!("{}:{line}", self.modules[self.module_of(step)].parsed.name)
    }

    /// The source of an expression, on one line.
    pub(super) fn text(&self, step: StepId, expr: &Expr) -> String {
        let text = &self.modules[self.module_of(step)].parsed.text;
        super::parse::shortened(text.get(expr.span.0..expr.span.1).unwrap_or_default())
    }

    /// The innermost function around a statement.
    pub(super) fn function_of(&self, step: StepId) -> Option<FunctionId> {
        match self.scopes[self.step(step).scope.0].owner {
            Owner::Function(function) => Some(function),
            Owner::Module | Owner::Class(_) => None,
        }
    }

    /// The class whose body or method a statement is in.
    pub(super) fn class_of(&self, step: StepId) -> Option<ClassId> {
        let mut scope = Some(self.step(step).scope);
        while let Some(current) = scope {
            let found = &self.scopes[current.0];
            match found.owner {
                Owner::Class(class) => return Some(class),
                Owner::Function(_) => scope = found.parent,
                Owner::Module => return None,
            }
        }
        None
    }

    /// `Class.method`, `function`, or nothing at the level of the module.
    pub(super) fn around(&self, step: StepId) -> Option<String> {
        let class = self.class_of(step).map(|class| self.classes[class.0].tree.name.as_str());
        let function = self.function_of(step).map(|it| self.functions[it.0].tree.name.as_str());
        match (class, function) {
            (Some(class), Some(function)) => Some(format!("{class}.{function}")),
            (Some(name), None) | (None, Some(name)) => Some(name.to_owned()),
            (None, None) => None,
        }
    }
}
