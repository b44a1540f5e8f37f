//! What an analysis says: findings with their places, and what is known of each.

use serde::{Serialize, Serializer};

use super::value::{Certainty, Known, Value};

/// What a finding is about, in the order of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Kind {
    /// A package that the training is written with.
    Framework,
    /// What makes several processes of it.
    Distribution,
    /// What a loader reads.
    Dataset,
    /// A function that reads files.
    Reader,
    /// What makes batches.
    Loader,
    /// A chain of steps from files to batches, in order.
    Pipeline,
    /// What becomes of a sample before it is trained on.
    Preprocessing,
    /// What the job keeps by itself.
    Cache,
    /// What writes the model.
    Checkpoint,
    /// What is training, validation or evaluation.
    Phase,
    /// How long training lasts.
    Epochs,
    /// Where randomness starts.
    Seed,
    /// What the author may not have meant, or tierfeed cannot follow.
    Advice,
}

impl Kind {
    /// The name in tables and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Framework => "framework",
            Self::Distribution => "distribution",
            Self::Dataset => "dataset",
            Self::Reader => "reader",
            Self::Loader => "loader",
            Self::Pipeline => "pipeline",
            Self::Preprocessing => "preprocessing",
            Self::Cache => "cache",
            Self::Checkpoint => "checkpoint",
            Self::Phase => "phase",
            Self::Epochs => "epochs",
            Self::Seed => "seed",
            Self::Advice => "advice",
        }
    }
}

/// Something that was found in a script.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// What it is about.
    pub kind: Kind,
    /// The full name of what is called, or a sentence.
    pub what: String,
    /// The file, as it was given.
    pub file: String,
    /// Counts from 1.
    pub line: u32,
    /// How sure it is that this is there; each fact has its own certainty.
    pub certainty: Certainty,
    /// What makes it less than certain.
    pub why: Option<String>,
    /// What is known of it.
    pub facts: Vec<Fact>,
}

/// Something known of a finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fact {
    /// The name of the argument, or what it is about.
    pub name: &'static str,
    /// The value, if it is one that a file can hold.
    pub value: Literal,
    /// For people: the value, or the source of what computes it.
    pub text: String,
    /// How sure the value is.
    pub certainty: Certainty,
    /// Where the value comes from, or why it is unknown.
    pub why: Option<String>,
}

/// A value that JSON can hold.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// Not known, or nothing that a file can hold.
    Nothing,
    /// `True` or `False`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// A text.
    Text(String),
    /// A list, tuple or set.
    List(Vec<Self>),
}

impl Serialize for Literal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Nothing => serializer.serialize_none(),
            Self::Bool(bool) => serializer.serialize_bool(*bool),
            Self::Int(int) => serializer.serialize_i64(*int),
            Self::Float(float) => serializer.serialize_f64(*float),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(items) => serializer.collect_seq(items),
        }
    }
}

impl Finding {
    /// The fact of this name.
    #[must_use]
    pub fn fact(&self, name: &str) -> Option<&Fact> {
        self.facts.iter().find(|fact| fact.name == name)
    }
}

impl Fact {
    pub(super) fn of(name: &'static str, known: &Known<'_>, text: String) -> Self {
        let why = known.why.as_deref().map(str::to_owned);
        let value = Literal::of(&known.value);
        Self { name, value, text, certainty: known.certainty, why }
    }

    /// A fact that is not read off an argument.
    pub(super) fn said(name: &'static str, text: impl Into<String>, certainty: Certainty) -> Self {
        let text = text.into();
        Self { name, value: Literal::Text(text.clone()), text, certainty, why: None }
    }

    pub(super) fn because(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }

    /// The value if it is a whole number and not unknown.
    pub(super) fn int(&self) -> Option<i64> {
        match self.value {
            Literal::Int(int) if self.certainty != Certainty::Unknown => Some(int),
            _ => None,
        }
    }

    pub(super) fn bool(&self) -> Option<bool> {
        match self.value {
            Literal::Bool(bool) if self.certainty != Certainty::Unknown => Some(bool),
            _ => None,
        }
    }

    pub(super) fn str(&self) -> Option<&str> {
        match &self.value {
            Literal::Text(text) if self.certainty != Certainty::Unknown => Some(text),
            _ => None,
        }
    }
}

impl Literal {
    pub(super) fn of(value: &Value<'_>) -> Self {
        match value {
            Value::Bool(bool) => Self::Bool(*bool),
            Value::Int(int) => Self::Int(*int),
            Value::Float(float) => Self::Float(*float),
            Value::Text(text) => Self::Text(text.to_string()),
            Value::Sequence(items) => {
                Self::List(items.iter().map(|item| Self::of(&item.value)).collect())
            }
            _ => Self::Nothing,
        }
    }
}
