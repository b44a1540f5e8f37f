//! Options of the command line: what a script declares, and what it takes if nobody gives one.

use std::collections::BTreeMap;

use super::Evaluator;
use crate::script::{
    program::Program,
    tree::{Call, Expr, How, Kind},
    value::{Certainty, Env, Known, Value},
};

/// A declared option.
#[derive(Debug)]
pub(super) struct Choice<'a> {
    /// As it is typed: `--batch-size`.
    flag: String,
    default: Default<'a>,
    env: Env<'a>,
    line: u32,
    /// `type=int` turns a default that is a text into a number.
    is_number: bool,
}

#[derive(Debug)]
enum Default<'a> {
    Expr(&'a Expr),
    Bool(bool),
    None,
}

/// Every option that these files declare, by the name that the script reads it by.
pub(super) fn of<'a>(program: &Program<'a>) -> BTreeMap<String, Vec<Choice<'a>>> {
    let mut options: BTreeMap<String, Vec<Choice<'a>>> = BTreeMap::new();
    for site in &program.calls {
        let env = Env::at(site.step);
        let line = site.expr.line;
        match site.call.last_name() {
            "add_argument" | "add" | "option" => {
                if let Some((name, choice)) = argument(site.call, env, line) {
                    options.entry(name).or_default().push(choice);
                }
            }
            "set_defaults" => {
                for argument in &site.call.arguments {
                    let How::Name(name) = &argument.how else { continue };
                    let default = Default::Expr(&argument.value);
                    let flag = format!("--{name}");
                    let choice = Choice { flag, default, env: env.clone(), line, is_number: false };
                    options.insert(name.clone(), vec![choice]);
                }
            }
            name if name.starts_with("DEFINE_") => {
                if let Some((name, choice)) = flag(site.call, env, line) {
                    options.entry(name).or_default().push(choice);
                }
            }
            _ => {}
        }
    }
    options
}

/// `parser.add_argument("--batch-size", "-b", default=256)`, `@click.option("--batch-size", …)`
fn argument<'a>(call: &'a Call, env: Env<'a>, line: u32) -> Option<(String, Choice<'a>)> {
    let mut flags = Vec::new();
    for argument in call.arguments.iter().filter(|it| it.how == How::Place) {
        let Kind::Text(flag) = &argument.value.kind else { break };
        flags.push(flag.as_str());
    }
    let named = |name: &str| named(call, name);
    let flag = flags.iter().find(|flag| flag.starts_with("--")).or(flags.first())?;
    let name = match named("dest").map(|dest| &dest.kind) {
        Some(Kind::Text(dest)) => dest.clone(),
        // `--shuffle/--no-shuffle` is one option of click.
        _ => flag.split('/').next().unwrap_or(flag).trim_start_matches('-').replace('-', "_"),
    };
    let action = match named("action").map(|action| &action.kind) {
        Some(Kind::Text(action)) => action.as_str(),
        _ => "",
    };
    let default = match (named("default"), action) {
        (Some(default), _) => Default::Expr(default),
        (None, "store_true") => Default::Bool(false),
        (None, "store_false") => Default::Bool(true),
        (None, _) if named("is_flag").is_some() => Default::Bool(false),
        (None, _) => Default::None,
    };
    let of_type = named("type").map(|of_type| &of_type.kind);
    let is_number = matches!(of_type, Some(Kind::Name(name)) if name == "int" || name == "float");
    Some((name, Choice { flag: (*flag).to_owned(), default, env, line, is_number }))
}

/// `flags.DEFINE_integer("batch_size", 256, "help")`
fn flag<'a>(call: &'a Call, env: Env<'a>, line: u32) -> Option<(String, Choice<'a>)> {
    let mut places = call.arguments.iter().filter(|it| it.how == How::Place).map(|it| &it.value);
    let name = places.next().or(named(call, "name"));
    let Some(Kind::Text(name)) = name.map(|name| &name.kind) else { return None };
    let default = named(call, "default").or(places.next());
    let default = default.map_or(Default::None, Default::Expr);
    let flag = format!("--{name}");
    Some((name.clone(), Choice { flag, default, env, line, is_number: false }))
}

fn named<'a>(call: &'a Call, name: &str) -> Option<&'a Expr> {
    let mut arguments = call.arguments.iter();
    let found = arguments.find(|it| matches!(&it.how, How::Name(it) if it == name));
    found.map(|argument| &argument.value)
}

impl<'a> Evaluator<'a> {
    /// What an option is if nobody gives one; `None` if no such option is declared.
    pub(super) fn option(&self, name: &str) -> Option<Known<'a>> {
        let choices = self.options.get(name)?;
        let known = choices.iter().map(|choice| self.default_of(choice)).collect();
        let places = || {
            let places: Vec<_> = choices.iter().map(|it| self.place_of_choice(it)).collect();
            format!("declared more than once: {}", places.join(", "))
        };
        Some(Known::one_of(known, places))
    }

    fn place_of_choice(&self, choice: &Choice<'a>) -> String {
        self.program.place(choice.env.step, choice.line)
    }

    fn default_of(&self, choice: &Choice<'a>) -> Known<'a> {
        let place = self.place_of_choice(choice);
        let flag = &choice.flag;
        let default = || format!("default of {flag}, {place}");
        match choice.default {
            Default::Bool(bool) => Known::certain(Value::Bool(bool)).likely(default),
            Default::None => Known::unknown(format!("{flag} has no default, {place}")),
            Default::Expr(expr) => {
                let known = self.eval(expr, &choice.env);
                let number = known.str().filter(|_| choice.is_number);
                let number = number.and_then(|text| text.trim().parse().ok()).map(Value::Int);
                let Known { value, certainty, why } = known;
                match number.unwrap_or(value) {
                    Value::None => Known::unknown(format!("{flag} has no default, {place}")),
                    value if certainty == Certainty::Unknown => Known { value, certainty, why },
                    // That a run can give another one matters more than where the default comes from.
                    value => Known::certain(value).likely(default),
                }
            }
        }
    }
}
