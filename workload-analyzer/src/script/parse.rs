//! Turns the text of a Python file into a [`tree`](super::tree).
//!
//! 1. Whatever the text is, this ends without a panic, and nests no deeper than [`DEPTH_MAX`].
//! 2. What the grammar does not know is reported by its line; the statements around it are kept.

mod expression;
mod literal;
mod statement;

use std::ops::ControlFlow;

use serde::Serialize;
use tree_sitter::{Node, ParseOptions, ParseState, Parser};

use super::tree::Stmt;

/// Expressions and blocks inside one another; what is deeper is not looked at.
pub(super) const DEPTH_MAX: u32 = 150;

/// Syntax errors that are reported of one file.
pub(super) const SYNTAX_ERRORS_MAX: usize = 20;

/// How often the parser may report that it goes on: it does so every hundred steps or so, and takes a
/// few steps for a byte of Python, but very many for some texts that are none.
const ROUNDS_MAX: u32 = 2_000_000;

/// A place that is no Python 3.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SyntaxError {
    /// The name of the file.
    pub file: String,
    /// Counts from 1.
    pub line: u32,
    /// What stands there.
    pub what: String,
}

/// The statements of a file, and what is wrong with it.
pub(super) fn parse(file: &str, text: &str) -> (Vec<Stmt>, Vec<SyntaxError>) {
    let mut parser = Parser::new();
    parser
        .set_language(&tree_sitter_python::LANGUAGE.into())
        .expect("the grammar and the parser are of the same version, which a test checks");
    let mut rounds = 0_u32;
    let mut go_on = |_: &ParseState| {
        rounds += 1;
        if rounds > ROUNDS_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let options = ParseOptions::new().progress_callback(&mut go_on);
    let bytes = text.as_bytes();
    let mut read = |at: usize, _| bytes.get(at..).unwrap_or_default();
    let mut reader = Reader::new(file, text);
    let Some(tree) = parser.parse_with_options(&mut read, None, Some(options)) else {
        reader.errors.push(SyntaxError {
            file: file.to_owned(),
            line: 1,
            what: "cannot be parsed in reasonable time; is it Python?".to_owned(),
        });
        return (Vec::new(), reader.errors);
    };
    let statements = reader.block(tree.root_node());
    reader.collect_errors(tree.root_node());
    reader.errors.sort_by_key(|error| error.line);
    reader.errors.dedup();
    reader.errors.truncate(SYNTAX_ERRORS_MAX);
    (statements, reader.errors)
}

struct Reader<'a> {
    file: &'a str,
    text: &'a str,
    errors: Vec<SyntaxError>,
    /// Names that the lambdas and comprehensions around the current place bind.
    bound: Vec<String>,
    depth: u32,
}

impl<'a> Reader<'a> {
    fn new(file: &'a str, text: &'a str) -> Self {
        Self { file, text, errors: Vec::new(), bound: Vec::new(), depth: 0 }
    }

    fn text_of(&self, node: Node<'_>) -> &'a str {
        self.text.get(node.byte_range()).unwrap_or_default()
    }

    fn error(&mut self, node: Node<'_>, what: String) {
        self.errors.push(SyntaxError { file: self.file.to_owned(), line: line(node), what });
    }

    /// Walks without recursion: a text may nest deeper than a stack.
    fn collect_errors(&mut self, root: Node<'_>) {
        let mut cursor = root.walk();
        loop {
            let node = cursor.node();
            if node.is_error() {
                let found = shortened(self.text_of(node));
                self.error(node, format!("`{found}` is not understood"));
            } else if node.is_missing() {
                self.error(node, format!("`{}` is missing", node.kind()));
            } else if matches!(node.kind(), "print_statement" | "exec_statement") {
                let found = shortened(self.text_of(node));
                self.error(node, format!("`{found}` is Python 2"));
            }
            let goes_deeper = node.has_error() || has_blocks(node);
            if goes_deeper && !node.is_error() && cursor.goto_first_child() {
                continue;
            }
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    return;
                }
            }
        }
    }
}

/// Python 2 is no error to the grammar, so it is looked for wherever statements stand.
fn has_blocks(node: Node<'_>) -> bool {
    let kind = node.kind();
    ["module", "block"].contains(&kind)
        || kind.ends_with("_statement")
        || kind.ends_with("_clause")
        || kind.ends_with("_definition")
}

fn line(node: Node<'_>) -> u32 {
    u32::try_from(node.start_position().row).unwrap_or(u32::MAX).saturating_add(1)
}

fn named_children(node: Node<'_>) -> Vec<Node<'_>> {
    let mut cursor = node.walk();
    node.named_children(&mut cursor).filter(|child| child.kind() != "comment").collect()
}

fn children_by_field<'t>(node: Node<'t>, field: &str) -> Vec<Node<'t>> {
    let mut cursor = node.walk();
    node.children_by_field_name(field, &mut cursor).collect()
}

/// One line of at most 60 characters.
pub(super) fn shortened(text: &str) -> String {
    const LEN_MAX: usize = 60;
    // Bounded before it is split: a syntax error may span the whole file.
    let start: String = text.chars().take(8 * LEN_MAX).collect();
    let line = start.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= LEN_MAX {
        return line;
    }
    let kept: String = line.chars().take(LEN_MAX - 1).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests;
