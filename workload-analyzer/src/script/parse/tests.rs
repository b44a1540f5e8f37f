use super::*;
use crate::script::tree::{Kind, StmtKind};

fn errors(text: &str) -> Vec<(u32, String)> {
    let (_, errors) = parse("a.py", text);
    errors.into_iter().map(|error| (error.line, error.what)).collect()
}

#[test]
fn python_of_all_ages_is_read() {
    let text = "
match x:
    case [a, *rest] if a: pass
type Alias[T] = list[T]
async def f[T](*args: T, key=1, **rest) -> None:
    async with a as b, c: await d
    x = y = (z := 3)
    print(f'{x!r:>{width}}', *args, **rest, sep='')
try: pass
except* ValueError: pass
";
    assert_eq!(errors(text), []);
}

#[test]
fn python_2_is_named_by_its_line() {
    assert_eq!(errors("x = 1\nprint 'a'\n"), [(2, "`print 'a'` is Python 2".to_owned())]);
    assert_eq!(
        errors("def f():\n    if x:\n        exec 'a'\n"),
        [(3, "`exec 'a'` is Python 2".to_owned())]
    );
}

#[test]
fn statements_around_an_error_are_kept() {
    let (statements, errors) = parse("a.py", "a = 1\nb = = 2\nc = 3\n");
    assert_eq!(errors.len(), 1);
    assert_eq!((errors[0].line, errors[0].file.as_str()), (2, "a.py"));
    let is_assigned = |name: &str| {
        statements.iter().any(|statement| match &statement.kind {
            StmtKind::Assign { targets, .. } => {
                matches!(&targets[0].kind, Kind::Name(target) if target == name)
            }
            _ => false,
        })
    };
    assert!(is_assigned("a") && is_assigned("c"));
}

#[test]
fn errors_are_limited() {
    let text = "print 'a'\n".repeat(1000);
    assert_eq!(errors(&text).len(), SYNTAX_ERRORS_MAX);
}

#[test]
fn nesting_ends_at_its_limit() {
    for (open, close) in [("(", ")"), ("[", "]"), ("not ", ""), ("f(", ")"), ("{1: ", "}")] {
        let text = format!("x = {}1{}\n", open.repeat(20_000), close.repeat(20_000));
        parse("a.py", &text);
    }
    let sum = format!("x = 1{}\n", " + 1".repeat(20_000));
    parse("a.py", &sum);
    let chain = format!("x = a{}\n", ".b()".repeat(20_000));
    parse("a.py", &chain);
    let mut ifs = String::from("if a: pass\n");
    ifs.push_str(&"elif a: pass\n".repeat(20_000));
    parse("a.py", &ifs);
    let blocks: Vec<String> = (0..2_000).map(|depth| " ".repeat(depth) + "if a:").collect();
    parse("a.py", &blocks.join("\n"));
}

#[test]
fn strings_are_what_python_makes_of_them() {
    for (text, expected) in [
        ("'a' \"b\"", "ab"),
        (r"'a\n\t\\\'\x41\u00e9\q'", "a\n\t\\'A\u{e9}\\q"),
        (r"r'a\n'", "a\\n"),
        ("'''a\nb'''", "a\nb"),
        ("''", ""),
        ("'a\\\nb'", "ab"),
    ] {
        let (statements, errors) = parse("a.py", &format!("x = {text}\n"));
        assert_eq!(errors, []);
        let StmtKind::Assign { value, .. } = &statements[0].kind else { panic!("{text}") };
        assert!(matches!(&value.kind, Kind::Text(found) if found == expected), "{:?}", value.kind);
    }
}

#[test]
fn a_long_source_is_shown_on_one_line() {
    assert_eq!(shortened("a  =\n b"), "a = b");
    let long = shortened(&"ab ".repeat(1000));
    assert_eq!(long.chars().count(), 60);
    assert!(long.ends_with('…'));
}
