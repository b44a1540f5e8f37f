//! What a Python file says, as far as the analysis looks: statements and expressions with their lines.
//!
//! Smaller than Python's own tree on purpose. What has no kind of its own is [`Kind::Other`] with the
//! expressions inside it, so that no call is overlooked.

/// An expression.
#[derive(Debug)]
pub(super) struct Expr {
    /// Counts from 1.
    pub(super) line: u32,
    /// Its first byte in the file, and the first behind it.
    pub(super) span: (usize, usize),
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Name(String),
    Attribute(Box<Expr>, String),
    Call(Call),
    Text(String),
    /// A string with expressions in it.
    Format(Vec<Piece>),
    Int(i64),
    Float(f64),
    Bool(bool),
    None,
    /// A list, tuple or set.
    Sequence(Vec<Expr>),
    /// Keys with values; `**other` has no key.
    Dict(Vec<(Option<Expr>, Expr)>),
    Binary(Operator, Box<Expr>, Box<Expr>),
    Negative(Box<Expr>),
    Not(Box<Expr>),
    Logic(Logic, Box<Expr>, Box<Expr>),
    Compare(Comparison, Box<Expr>, Box<Expr>),
    Choice {
        test: Box<Expr>,
        then: Box<Expr>,
        otherwise: Box<Expr>,
    },
    Item(Box<Expr>, Box<Expr>),
    /// A name that a lambda or a comprehension binds.
    Bound,
    Other(Vec<Expr>),
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) callee: Box<Expr>,
    pub(super) arguments: Vec<Argument>,
}

#[derive(Debug)]
pub(super) struct Argument {
    pub(super) how: How,
    pub(super) value: Expr,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum How {
    Place,
    Name(String),
    /// `*values`
    Splat,
    /// `**values`
    Names,
}

#[derive(Debug)]
pub(super) enum Piece {
    Text(String),
    Value(Expr),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Modulo,
    Power,
    ShiftLeft,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Logic {
    And,
    Or,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Is,
    IsNot,
    In,
    NotIn,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A statement.
#[derive(Debug)]
pub(super) struct Stmt {
    /// Counts from 1.
    pub(super) line: u32,
    pub(super) kind: StmtKind,
}

#[derive(Debug)]
pub(super) enum StmtKind {
    /// Expressions that are evaluated for what they do.
    Run(Vec<Expr>),
    Assign {
        targets: Vec<Expr>,
        value: Expr,
    },
    /// `name: type` without a value.
    Declare(String),
    /// `target += value` and the like.
    Change {
        target: Expr,
        value: Expr,
    },
    Import(Vec<Import>),
    Function(Function),
    Class(Class),
    If {
        test: Expr,
        then: Vec<Stmt>,
        otherwise: Vec<Stmt>,
    },
    Loop {
        /// `None` for `while`.
        target: Option<Expr>,
        /// What is looped over, or the test of a `while`.
        over: Expr,
        body: Vec<Stmt>,
    },
    With {
        items: Vec<(Expr, Option<Expr>)>,
        body: Vec<Stmt>,
    },
    /// Each of them may run or not: the handlers of a `try`, the cases of a `match`.
    Arms(Vec<Vec<Stmt>>),
    /// Runs as a whole: the body of a `try`.
    Block(Vec<Stmt>),
    Return(Option<Expr>),
}

#[derive(Debug)]
pub(super) struct Import {
    /// With the dots of a relative import.
    pub(super) module: String,
    pub(super) what: Imported,
    pub(super) alias: Option<String>,
}

#[derive(Debug)]
pub(super) enum Imported {
    Module,
    Member(String),
    Everything,
}

#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) parameters: Vec<Parameter>,
    pub(super) decorators: Vec<Expr>,
    pub(super) body: Vec<Stmt>,
}

#[derive(Debug)]
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) default: Option<Expr>,
    pub(super) kind: ParameterKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParameterKind {
    Plain,
    /// Behind `*` or `*args`: by name only.
    ByName,
    /// `*args` or `**kwargs`.
    Rest,
}

#[derive(Debug)]
pub(super) struct Class {
    pub(super) name: String,
    pub(super) bases: Vec<Argument>,
    pub(super) decorators: Vec<Expr>,
    pub(super) body: Vec<Stmt>,
}

impl Expr {
    /// The expressions directly inside this one.
    pub(super) fn children(&self) -> Vec<&Self> {
        match &self.kind {
            Kind::Name(_)
            | Kind::Text(_)
            | Kind::Int(_)
            | Kind::Float(_)
            | Kind::Bool(_)
            | Kind::None
            | Kind::Bound => Vec::new(),
            Kind::Attribute(inner, _) | Kind::Negative(inner) | Kind::Not(inner) => vec![inner],
            Kind::Call(call) => call.children(),
            Kind::Format(pieces) => pieces.iter().filter_map(Piece::value).collect(),
            Kind::Sequence(items) | Kind::Other(items) => items.iter().collect(),
            Kind::Dict(pairs) => {
                pairs.iter().flat_map(|(key, value)| key.iter().chain([value])).collect()
            }
            Kind::Binary(_, left, right)
            | Kind::Logic(_, left, right)
            | Kind::Compare(_, left, right)
            | Kind::Item(left, right) => vec![left, right],
            Kind::Choice { test, then, otherwise } => vec![test, then, otherwise],
        }
    }
}

impl Call {
    fn children(&self) -> Vec<&Expr> {
        let arguments = self.arguments.iter().map(|argument| &argument.value);
        std::iter::once(&*self.callee).chain(arguments).collect()
    }

    /// The last name of what is called: `shuffle` in `dataset.shuffle(8)`.
    pub(super) fn last_name(&self) -> &str {
        match &self.callee.kind {
            Kind::Name(name) | Kind::Attribute(_, name) => name,
            _ => "",
        }
    }

    /// What a method is called on.
    pub(super) fn receiver(&self) -> Option<&Expr> {
        match &self.callee.kind {
            Kind::Attribute(base, _) => Some(base),
            _ => None,
        }
    }
}

impl Piece {
    fn value(&self) -> Option<&Expr> {
        match self {
            Self::Text(_) => None,
            Self::Value(value) => Some(value),
        }
    }
}
