//! What operators make of values that are known, or of each that may be.

use super::Evaluator;
use crate::script::{
    tree::{Comparison, Expr, Kind, Logic, Operator},
    value::{Certainty, Env, Known, Value},
};

/// Combinations of what two sides may be that are looked at.
const COMBINATIONS_MAX: usize = 16;

impl<'a> Evaluator<'a> {
    /// Applies `to` to what a value may be.
    pub(super) fn each(
        &self,
        expr: &Expr,
        env: &Env<'a>,
        known: &Known<'a>,
        to: impl Fn(&Value<'a>) -> Option<Value<'a>>,
    ) -> Known<'a> {
        let result = |it: &Known<'a>| match to(&it.value) {
            Some(value) => Known { value, certainty: it.certainty, why: it.why.clone() },
            None => Known::unknown(self.reason(it, expr, env)),
        };
        let results = known.alternatives().iter().map(result).collect();
        Known::one_of(results, || self.reason(known, expr, env).to_string())
    }

    pub(super) fn both(
        &self,
        expr: &Expr,
        env: &Env<'a>,
        (left, right): (&Known<'a>, &Known<'a>),
        to: impl Fn(&Value<'a>, &Value<'a>) -> Option<Value<'a>>,
    ) -> Known<'a> {
        let (lefts, rights) = (left.alternatives(), right.alternatives());
        if lefts.len() * rights.len() > COMBINATIONS_MAX {
            return self.computed(expr, env);
        }
        let mut results = Vec::new();
        for left in &lefts {
            for right in &rights {
                results.push(match to(&left.value, &right.value) {
                    Some(value) => Known::from_all(value, &[left, right]),
                    None if left.is_unknown() => Known::unknown(self.reason(left, expr, env)),
                    None if right.is_unknown() => Known::unknown(self.reason(right, expr, env)),
                    None => self.computed(expr, env),
                });
            }
        }
        let several = if lefts.len() > 1 { left } else { right };
        Known::one_of(results, || self.reason(several, expr, env).to_string())
    }

    pub(super) fn binary(
        &self,
        expr: &Expr,
        env: &Env<'a>,
        operator: Operator,
        left: &Known<'a>,
        right: &Known<'a>,
    ) -> Known<'a> {
        self.both(expr, env, (left, right), |left, right| match (left, right) {
            (Value::Int(left), Value::Int(right)) => ints(operator, *left, *right),
            (Value::Text(left), Value::Text(right)) => texts(operator, left, right),
            (Value::Sequence(left), Value::Sequence(right)) if operator == Operator::Add => {
                Some(Value::Sequence(left.iter().chain(right.iter()).cloned().collect()))
            }
            _ => floats(operator, float(left)?, float(right)?),
        })
    }

    pub(super) fn negative(&self, expr: &Expr, inner: &'a Expr, env: &Env<'a>) -> Known<'a> {
        let inner = self.eval(inner, env);
        self.each(expr, env, &inner, |value| match value {
            Value::Int(int) => int.checked_neg().map(Value::Int),
            Value::Float(float) => Some(Value::Float(-float)),
            _ => None,
        })
    }

    pub(super) fn compare(
        &self,
        expr: &Expr,
        env: &Env<'a>,
        comparison: Comparison,
        left: &Known<'a>,
        right: &Known<'a>,
    ) -> Known<'a> {
        self.both(expr, env, (left, right), |left, right| {
            compared(comparison, left, right).map(Value::Bool)
        })
    }

    /// `left and right`, `left or right`.
    pub(super) fn logic(
        &self,
        logic: Logic,
        left: &'a Expr,
        right: &'a Expr,
        env: &Env<'a>,
    ) -> Known<'a> {
        let first = self.eval(left, env);
        let mut why = self.reason(&first, left, env);
        let ends = logic == Logic::Or;
        let mut results = Vec::new();
        for alternative in first.alternatives() {
            match alternative.value.truth() {
                Some(truth) if truth == ends => results.push(alternative),
                Some(_) => {
                    let mut second = self.eval(right, env);
                    why = self.reason(&second, right, env);
                    if alternative.certainty > second.certainty {
                        (second.certainty, second.why) = (alternative.certainty, alternative.why);
                    }
                    results.push(second);
                }
                None => {
                    results.push(alternative);
                    results.push(self.eval(right, env));
                }
            }
        }
        Known::one_of(results, || why.to_string())
    }

    /// `then if test else otherwise`
    pub(super) fn choice(
        &self,
        test: &'a Expr,
        then: &'a Expr,
        otherwise: &'a Expr,
        env: &Env<'a>,
    ) -> Known<'a> {
        let decided = self.eval(test, env);
        let Some(truth) = decided.value.truth().filter(|_| decided.certainty != Certainty::Unknown)
        else {
            let both = vec![self.eval(then, env), self.eval(otherwise, env)];
            let source = self.program.text(env.step, test);
            return Known::one_of(both, || format!("depends on `{source}`"));
        };
        let taken = self.eval(if truth { then } else { otherwise }, env);
        let Known { certainty, why, .. } = decided;
        let place = self.place(env.step, test);
        match certainty {
            Certainty::Certain => taken,
            _ => taken.likely(|| why.map_or(format!("decided at {place}"), |why| why.to_string())),
        }
    }

    pub(super) fn item(
        &self,
        expr: &Expr,
        env: &Env<'a>,
        base: &Known<'a>,
        index: &Known<'a>,
    ) -> Known<'a> {
        let mut results = Vec::new();
        for base in base.alternatives() {
            for index in index.alternatives() {
                results.push(self.item_of(expr, env, &base, &index));
            }
        }
        Known::one_of(results, || self.reason(base, expr, env).to_string())
    }

    fn item_of(
        &self,
        expr: &Expr,
        env: &Env<'a>,
        base: &Known<'a>,
        index: &Known<'a>,
    ) -> Known<'a> {
        let place = || from_mapping(base, || self.place(env.step, expr));
        match (&base.value, &index.value) {
            (Value::Sequence(items), Value::Int(index)) => {
                let len = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let index = if *index < 0 { index.saturating_add(len) } else { *index };
                let item = usize::try_from(index).ok().and_then(|index| items.get(index));
                item.cloned().unwrap_or_else(|| self.computed(expr, env))
            }
            (Value::Dict(pairs), key) => {
                match pairs.iter().rev().find(|(it, _)| it.value == *key) {
                    Some((_, value)) if value.value.is_plain() => value.clone().likely(place),
                    Some((_, value)) => value.clone(),
                    None => Known::unknown(format!(
                        "no such key: {}",
                        self.program.text(env.step, expr)
                    )),
                }
            }
            // A split of a dataset is that dataset as far as its files go.
            (Value::Made(made), _) if made.path.starts_with("datasets.") => base.clone(),
            (Value::Symbol(path), Value::Text(name)) if &**path == "os.environ" => {
                Known::unknown(format!("from the environment: {name}"))
            }
            (Value::Unknown, _) => base.clone(),
            _ => self.computed(expr, env),
        }
    }
}

/// Where a mapping that holds a value comes from.
pub(super) fn from_mapping(base: &Known<'_>, place: impl FnOnce() -> String) -> String {
    let why = base.why.as_deref().filter(|_| base.certainty == Certainty::Likely);
    why.map_or_else(|| format!("from a mapping, {}", place()), str::to_owned)
}

fn ints<'a>(operator: Operator, left: i64, right: i64) -> Option<Value<'a>> {
    let int = match operator {
        Operator::Add => left.checked_add(right),
        Operator::Subtract => left.checked_sub(right),
        Operator::Multiply => left.checked_mul(right),
        // Python rounds down, `div_euclid` does so for positive divisors.
        Operator::FloorDivide if right > 0 => left.checked_div_euclid(right),
        Operator::Modulo if right > 0 => left.checked_rem_euclid(right),
        Operator::Power => u32::try_from(right).ok().and_then(|right| left.checked_pow(right)),
        Operator::ShiftLeft => {
            let factor = u32::try_from(right).ok().and_then(|right| 1_i64.checked_shl(right));
            factor.filter(|factor| *factor > 0).and_then(|factor| left.checked_mul(factor))
        }
        Operator::Divide => {
            return floats(operator, float(&Value::Int(left))?, float(&Value::Int(right))?);
        }
        _ => None,
    };
    int.map(Value::Int)
}

pub(super) fn texts<'a>(operator: Operator, left: &str, right: &str) -> Option<Value<'a>> {
    match operator {
        Operator::Add => Some(Value::Text(format!("{left}{right}").into())),
        // Strings do not divide: one of them is a path.
        Operator::Divide => Some(Value::Text(joined(left, right).into())),
        _ => None,
    }
}

/// As `os.path.join` does.
pub(super) fn joined(left: &str, right: &str) -> String {
    if right.starts_with('/') || left.is_empty() {
        return right.to_owned();
    }
    format!("{}/{right}", left.trim_end_matches('/'))
}

fn float(value: &Value<'_>) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "Python's own conversion")]
    match value {
        Value::Int(int) => Some(*int as f64),
        Value::Float(float) => Some(*float),
        _ => None,
    }
}

fn floats<'a>(operator: Operator, left: f64, right: f64) -> Option<Value<'a>> {
    let result = match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide if right != 0.0 => left / right,
        Operator::Power => left.powf(right),
        _ => return None,
    };
    Some(Value::Float(result))
}

fn compared(comparison: Comparison, left: &Value<'_>, right: &Value<'_>) -> Option<bool> {
    match comparison {
        Comparison::Is | Comparison::IsNot => {
            let is = match (left, right) {
                (value, Value::None) => value.is_none()?,
                (Value::Bool(left), Value::Bool(right)) => left == right,
                _ => return None,
            };
            Some(is == (comparison == Comparison::Is))
        }
        Comparison::Equal | Comparison::NotEqual => {
            let is_plain = left.is_plain() && right.is_plain();
            is_plain.then(|| equal(left, right) == (comparison == Comparison::Equal))
        }
        Comparison::In | Comparison::NotIn => match right {
            Value::Sequence(items) if left.is_plain() => {
                let is_in = items.iter().any(|item| equal(&item.value, left));
                let is_known = is_in || items.iter().all(|item| item.value.is_plain());
                is_known.then_some(is_in == (comparison == Comparison::In))
            }
            _ => None,
        },
        ordered => {
            let order = float(left)?.partial_cmp(&float(right)?)?;
            Some(match ordered {
                Comparison::Less => order.is_lt(),
                Comparison::LessOrEqual => order.is_le(),
                Comparison::Greater => order.is_gt(),
                _ => order.is_ge(),
            })
        }
    }
}

fn equal(left: &Value<'_>, right: &Value<'_>) -> bool {
    match (float(left), float(right)) {
        (Some(left), Some(right)) => left.total_cmp(&right).is_eq(),
        _ => left == right,
    }
}

/// Whether an expression is a number that is compared with zero after a remainder: `n % 5 == 0`.
pub(in crate::script) fn every(test: &Expr) -> Option<(&Expr, &Expr)> {
    match &test.kind {
        Kind::Compare(Comparison::Equal, left, right) => match (&left.kind, &right.kind) {
            (Kind::Binary(Operator::Modulo, what, every), Kind::Int(_)) => Some((what, every)),
            _ => None,
        },
        // `if not n % 5`
        Kind::Not(inner) => match &inner.kind {
            Kind::Binary(Operator::Modulo, what, every) => Some((what, every)),
            _ => None,
        },
        Kind::Logic(_, left, right) => every(left).or_else(|| every(right)),
        _ => None,
    }
}
