//! Turns expressions into a tree.

use tree_sitter::Node;

use super::{DEPTH_MAX, Reader, children_by_field, line, literal, named_children};
use crate::script::tree::{Argument, Call, Comparison, Expr, How, Kind, Logic, Operator, Piece};

impl Reader<'_> {
    pub(super) fn expr(&mut self, node: Node<'_>) -> Expr {
        let range = node.byte_range();
        self.depth += 1;
        let kind = if self.depth > DEPTH_MAX { Kind::Other(Vec::new()) } else { self.kind(node) };
        self.depth -= 1;
        Expr { line: line(node), span: (range.start, range.end), kind }
    }

    fn boxed(&mut self, node: Node<'_>, field: &str) -> Box<Expr> {
        // A field can be missing in a file with syntax errors.
        Box::new(self.expr(node.child_by_field_name(field).unwrap_or(node)))
    }

    pub(super) fn exprs(&mut self, nodes: Vec<Node<'_>>) -> Vec<Expr> {
        nodes.into_iter().map(|node| self.expr(node)).collect()
    }

    fn kind(&mut self, node: Node<'_>) -> Kind {
        match node.kind() {
            "identifier" => self.name(node),
            "attribute" => self.attribute(node),
            "call" => self.call(node),
            "string" => self.string(node),
            "concatenated_string" => self.strings(node),
            "integer" => {
                literal::int(self.text_of(node)).map_or(Kind::Other(Vec::new()), Kind::Int)
            }
            "float" => {
                literal::float(self.text_of(node)).map_or(Kind::Other(Vec::new()), Kind::Float)
            }
            "true" => Kind::Bool(true),
            "false" => Kind::Bool(false),
            "none" => Kind::None,
            "list" | "tuple" | "set" | "expression_list" | "pattern_list" | "tuple_pattern"
            | "list_pattern" => Kind::Sequence(self.exprs(named_children(node))),
            "dictionary" => self.dictionary(node),
            "parenthesized_expression" | "await" | "type" | "as_pattern_target" => self.inner(node),
            "binary_operator" if has(node, &["left", "right"]) => {
                let operator = self.operator(node);
                Kind::Binary(operator, self.boxed(node, "left"), self.boxed(node, "right"))
            }
            "boolean_operator" if has(node, &["left", "right"]) => {
                let logic = node.child_by_field_name("operator").map(|it| self.text_of(it));
                let logic = if logic == Some("and") { Logic::And } else { Logic::Or };
                Kind::Logic(logic, self.boxed(node, "left"), self.boxed(node, "right"))
            }
            "not_operator" if has(node, &["argument"]) => Kind::Not(self.boxed(node, "argument")),
            "unary_operator" if has(node, &["argument"]) => self.unary(node),
            "comparison_operator" => self.comparison(node),
            "conditional_expression" => self.choice(node),
            "subscript" => self.subscript(node),
            "named_expression" => self.named(node),
            "lambda" => self.lambda(node),
            "list_comprehension"
            | "set_comprehension"
            | "dictionary_comprehension"
            | "generator_expression" => self.comprehension(node),
            _ => Kind::Other(self.exprs(named_children(node))),
        }
    }

    fn name(&self, node: Node<'_>) -> Kind {
        let name = self.text_of(node);
        let is_bound = self.bound.iter().any(|bound| bound == name);
        if is_bound { Kind::Bound } else { Kind::Name(name.to_owned()) }
    }

    fn attribute(&mut self, node: Node<'_>) -> Kind {
        let Some(name) = node.child_by_field_name("attribute") else {
            return Kind::Other(self.exprs(named_children(node)));
        };
        let name = self.text_of(name).to_owned();
        match node.child_by_field_name("object") {
            Some(object) => Kind::Attribute(Box::new(self.expr(object)), name),
            None => Kind::Other(Vec::new()),
        }
    }

    fn inner(&mut self, node: Node<'_>) -> Kind {
        match named_children(node).as_slice() {
            [inner] => {
                let inner = *inner;
                self.expr(inner).kind
            }
            others => Kind::Other(self.exprs(others.to_vec())),
        }
    }

    fn call(&mut self, node: Node<'_>) -> Kind {
        let callee = node.child_by_field_name("function");
        let Some(callee) = callee else { return Kind::Other(self.exprs(named_children(node))) };
        let arguments = match node.child_by_field_name("arguments") {
            Some(list) if list.kind() == "argument_list" => self.arguments(list),
            Some(generator) => vec![Argument { how: How::Place, value: self.expr(generator) }],
            None => Vec::new(),
        };
        Kind::Call(Call { callee: Box::new(self.expr(callee)), arguments })
    }

    pub(super) fn arguments(&mut self, list: Node<'_>) -> Vec<Argument> {
        named_children(list).into_iter().map(|node| self.argument(node)).collect()
    }

    fn argument(&mut self, node: Node<'_>) -> Argument {
        let inner = |it: Node<'_>| it.named_child(0).map(|child| child.id());
        let (how, value) = match node.kind() {
            "keyword_argument" => {
                let name = node.child_by_field_name("name").map(|name| self.text_of(name));
                let how = How::Name(name.unwrap_or_default().to_owned());
                (how, node.child_by_field_name("value").unwrap_or(node))
            }
            "list_splat" if inner(node).is_some() => {
                (How::Splat, node.named_child(0).unwrap_or(node))
            }
            "dictionary_splat" if inner(node).is_some() => {
                (How::Names, node.named_child(0).unwrap_or(node))
            }
            _ => (How::Place, node),
        };
        Argument { how, value: self.expr(value) }
    }

    fn string(&mut self, node: Node<'_>) -> Kind {
        let parts = named_children(node);
        let start = parts.iter().find(|part| part.kind() == "string_start");
        let prefix = start.map(|start| self.text_of(*start)).unwrap_or_default();
        let is_raw = prefix.to_ascii_lowercase().contains('r');
        let mut pieces = Vec::new();
        for part in &parts {
            match part.kind() {
                "string_content" if is_raw => {
                    pieces.push(Piece::Text(self.text_of(*part).to_owned()));
                }
                "string_content" => {
                    pieces.push(Piece::Text(literal::unescaped(self.text_of(*part))));
                }
                "interpolation" => {
                    let value = part.child_by_field_name("expression").unwrap_or(*part);
                    pieces.push(Piece::Value(self.expr(value)));
                }
                _ => {}
            }
        }
        joined(pieces)
    }

    /// Strings that stand side by side are one.
    fn strings(&mut self, node: Node<'_>) -> Kind {
        let mut pieces = Vec::new();
        for part in named_children(node) {
            match self.expr(part).kind {
                Kind::Text(text) => pieces.push(Piece::Text(text)),
                Kind::Format(more) => pieces.extend(more),
                _ => return Kind::Other(Vec::new()),
            }
        }
        joined(pieces)
    }

    fn dictionary(&mut self, node: Node<'_>) -> Kind {
        let mut pairs = Vec::new();
        for child in named_children(node) {
            match child.kind() {
                "pair" if has(child, &["key", "value"]) => {
                    let key = *self.boxed(child, "key");
                    pairs.push((Some(key), *self.boxed(child, "value")));
                }
                "dictionary_splat" => {
                    let value = child.named_child(0).unwrap_or(child);
                    pairs.push((None, self.expr(value)));
                }
                _ => {}
            }
        }
        Kind::Dict(pairs)
    }

    fn operator(&self, node: Node<'_>) -> Operator {
        let operator = node.child_by_field_name("operator").map(|it| self.text_of(it));
        match operator.unwrap_or_default() {
            "+" => Operator::Add,
            "-" => Operator::Subtract,
            "*" => Operator::Multiply,
            "/" => Operator::Divide,
            "//" => Operator::FloorDivide,
            "%" => Operator::Modulo,
            "**" => Operator::Power,
            "<<" => Operator::ShiftLeft,
            _ => Operator::Other,
        }
    }

    fn unary(&mut self, node: Node<'_>) -> Kind {
        let operator = node.child_by_field_name("operator").map(|it| self.text_of(it));
        let inner = self.boxed(node, "argument");
        match operator {
            Some("-") => Kind::Negative(inner),
            Some("+") => inner.kind,
            _ => Kind::Other(vec![*inner]),
        }
    }

    fn comparison(&mut self, node: Node<'_>) -> Kind {
        let sides = named_children(node);
        let operators = children_by_field(node, "operators");
        let words: Vec<_> = operators.iter().map(|it| self.text_of(*it)).collect();
        let [left, right] = sides.as_slice() else { return Kind::Other(self.exprs(sides)) };
        let comparison = match words.join(" ").as_str() {
            "==" => Comparison::Equal,
            "!=" => Comparison::NotEqual,
            "is" => Comparison::Is,
            "is not" => Comparison::IsNot,
            "in" => Comparison::In,
            "not in" => Comparison::NotIn,
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            _ => return Kind::Other(self.exprs(sides)),
        };
        let (left, right) = (self.expr(*left), self.expr(*right));
        Kind::Compare(comparison, Box::new(left), Box::new(right))
    }

    fn choice(&mut self, node: Node<'_>) -> Kind {
        let parts = named_children(node);
        let [then, test, otherwise] = parts.as_slice() else {
            return Kind::Other(self.exprs(parts));
        };
        Kind::Choice {
            then: Box::new(self.expr(*then)),
            test: Box::new(self.expr(*test)),
            otherwise: Box::new(self.expr(*otherwise)),
        }
    }

    fn subscript(&mut self, node: Node<'_>) -> Kind {
        let subscripts = children_by_field(node, "subscript");
        match (node.child_by_field_name("value"), subscripts.as_slice()) {
            (Some(value), [subscript]) => {
                Kind::Item(Box::new(self.expr(value)), Box::new(self.expr(*subscript)))
            }
            _ => Kind::Other(self.exprs(named_children(node))),
        }
    }

    /// The name is not bound, only the value is kept: few configurations are written so.
    fn named(&mut self, node: Node<'_>) -> Kind {
        match node.child_by_field_name("value") {
            Some(value) => self.expr(value).kind,
            None => Kind::Other(Vec::new()),
        }
    }

    fn lambda(&mut self, node: Node<'_>) -> Kind {
        let held = self.bound.len();
        let parameters = node.child_by_field_name("parameters").map(named_children);
        for parameter in parameters.unwrap_or_default() {
            self.bind(parameter);
        }
        let body = node.child_by_field_name("body").map(|body| self.expr(body));
        self.bound.truncate(held);
        Kind::Other(body.into_iter().collect())
    }

    fn comprehension(&mut self, node: Node<'_>) -> Kind {
        let held = self.bound.len();
        let parts = named_children(node);
        for clause in parts.iter().filter(|part| part.kind() == "for_in_clause") {
            if let Some(left) = clause.child_by_field_name("left") {
                self.bind(left);
            }
        }
        let inner = self.exprs(parts);
        self.bound.truncate(held);
        Kind::Other(inner)
    }

    fn bind(&mut self, pattern: Node<'_>) {
        match pattern.kind() {
            "identifier" => self.bound.push(self.text_of(pattern).to_owned()),
            "default_parameter" | "typed_default_parameter" => {
                let name = pattern.child_by_field_name("name");
                self.bound.extend(name.map(|name| self.text_of(name).to_owned()));
            }
            // Deeper patterns are rare, and cost recursion that no limit holds.
            _ => {
                let names =
                    named_children(pattern).into_iter().filter(|it| it.kind() == "identifier");
                let names: Vec<_> = names.map(|name| self.text_of(name).to_owned()).collect();
                self.bound.extend(names);
            }
        }
    }
}

fn joined(pieces: Vec<Piece>) -> Kind {
    if pieces.iter().any(|piece| matches!(piece, Piece::Value(_))) {
        return Kind::Format(pieces);
    }
    let texts = pieces.into_iter().map(|piece| match piece {
        Piece::Text(text) => text,
        Piece::Value(_) => String::new(),
    });
    Kind::Text(texts.collect())
}

/// Whether a node has these parts: in a file with syntax errors it may not.
fn has(node: Node<'_>, fields: &[&str]) -> bool {
    fields.iter().all(|field| node.child_by_field_name(field).is_some())
}
