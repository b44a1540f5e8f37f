//! Turns statements into a tree.

use tree_sitter::Node;

use super::{DEPTH_MAX, Reader, children_by_field, line, named_children};
use crate::script::tree::{
    Class, Expr, Function, Import, Imported, Parameter, ParameterKind, Stmt, StmtKind,
};

/// Each `elif` nests in the one before it; a longer chain is kept without its tests.
const ELSE_IFS_MAX: usize = 40;

impl Reader<'_> {
    pub(super) fn block(&mut self, node: Node<'_>) -> Vec<Stmt> {
        self.depth += 1;
        let mut statements = Vec::new();
        if self.depth <= DEPTH_MAX {
            for child in named_children(node) {
                self.statement(child, &mut statements);
            }
        }
        self.depth -= 1;
        statements
    }

    fn field_block(&mut self, node: Node<'_>, field: &str) -> Vec<Stmt> {
        node.child_by_field_name(field).map(|body| self.block(body)).unwrap_or_default()
    }

    fn statement(&mut self, node: Node<'_>, into: &mut Vec<Stmt>) {
        let kind = match node.kind() {
            "expression_statement" => return self.expression_statement(node, into),
            "import_statement" => StmtKind::Import(self.import(node)),
            "import_from_statement" => StmtKind::Import(self.import_from(node)),
            "if_statement" => self.condition(node),
            "for_statement" | "while_statement" => return self.looped(node, into),
            "with_statement" => self.with(node),
            "try_statement" => return self.attempt(node, into),
            "match_statement" => self.cases(node),
            "function_definition" | "class_definition" => self.definition(node, Vec::new()),
            "decorated_definition" => self.decorated(node),
            "return_statement" => {
                let value = named_children(node).first().copied();
                StmtKind::Return(value.map(|value| self.expr(value)))
            }
            // A piece that is no Python may have statements inside it.
            "ERROR" | "block" => StmtKind::Block(self.block(node)),
            _ => StmtKind::Run(self.exprs(named_children(node))),
        };
        into.push(Stmt { line: line(node), kind });
    }

    fn expression_statement(&mut self, node: Node<'_>, into: &mut Vec<Stmt>) {
        for child in named_children(node) {
            let kind = match child.kind() {
                "assignment" => self.assignment(child),
                "augmented_assignment" => self.change(child),
                _ => StmtKind::Run(vec![self.expr(child)]),
            };
            into.push(Stmt { line: line(child), kind });
        }
    }

    /// `a = b = value` is one node inside another.
    fn assignment(&mut self, node: Node<'_>) -> StmtKind {
        let mut targets = Vec::new();
        let mut current = node;
        loop {
            let Some(left) = current.child_by_field_name("left") else {
                return StmtKind::Run(self.exprs(named_children(node)));
            };
            targets.push(self.expr(left));
            match current.child_by_field_name("right") {
                Some(right) if right.kind() == "assignment" => current = right,
                Some(right) => return StmtKind::Assign { targets, value: self.expr(right) },
                None => return StmtKind::Declare(self.text_of(left).to_owned()),
            }
        }
    }

    fn change(&mut self, node: Node<'_>) -> StmtKind {
        let left = node.child_by_field_name("left");
        match (left, node.child_by_field_name("right")) {
            (Some(left), Some(right)) => {
                StmtKind::Change { target: self.expr(left), value: self.expr(right) }
            }
            _ => StmtKind::Run(self.exprs(named_children(node))),
        }
    }

    fn import(&mut self, node: Node<'_>) -> Vec<Import> {
        let names = children_by_field(node, "name").into_iter();
        let import = |(name, alias): (String, Option<String>)| Import {
            module: name,
            what: Imported::Module,
            alias,
        };
        names.map(|name| import(self.aliased(name))).collect()
    }

    fn import_from(&mut self, node: Node<'_>) -> Vec<Import> {
        let module = node.child_by_field_name("module_name").map(|it| self.text_of(it));
        let module: String = module.unwrap_or_default().split_whitespace().collect();
        let is_everything = named_children(node).iter().any(|it| it.kind() == "wildcard_import");
        if is_everything {
            return vec![Import { module, what: Imported::Everything, alias: None }];
        }
        let names = children_by_field(node, "name").into_iter();
        let import =
            |(name, alias)| Import { module: module.clone(), what: Imported::Member(name), alias };
        names.map(|name| import(self.aliased(name))).collect()
    }

    fn aliased(&self, node: Node<'_>) -> (String, Option<String>) {
        let dotted = |it: Node<'_>| self.text_of(it).split_whitespace().collect::<String>();
        if node.kind() != "aliased_import" {
            return (dotted(node), None);
        }
        let name = node.child_by_field_name("name").map(dotted).unwrap_or_default();
        (name, node.child_by_field_name("alias").map(dotted))
    }

    fn condition(&mut self, node: Node<'_>) -> StmtKind {
        let alternatives = children_by_field(node, "alternative");
        if alternatives.len() > ELSE_IFS_MAX {
            let clauses = alternatives.into_iter().flat_map(named_children);
            let blocks = named_children(node).into_iter().chain(clauses);
            let blocks = blocks.filter(|it| it.kind() == "block").collect::<Vec<_>>();
            return StmtKind::Arms(blocks.into_iter().map(|block| self.block(block)).collect());
        }
        let mut otherwise = Vec::new();
        for clause in alternatives.into_iter().rev() {
            if clause.kind() == "else_clause" {
                otherwise = self.field_block(clause, "body");
                continue;
            }
            let then = self.field_block(clause, "consequence");
            let test = self.test(clause);
            otherwise =
                vec![Stmt { line: line(clause), kind: StmtKind::If { test, then, otherwise } }];
        }
        let then = self.field_block(node, "consequence");
        StmtKind::If { test: self.test(node), then, otherwise }
    }

    fn test(&mut self, node: Node<'_>) -> Expr {
        self.expr(node.child_by_field_name("condition").unwrap_or(node))
    }

    fn looped(&mut self, node: Node<'_>, into: &mut Vec<Stmt>) {
        let target = node.child_by_field_name("left").map(|left| self.expr(left));
        let over = node.child_by_field_name("right").or(node.child_by_field_name("condition"));
        let over = self.expr(over.unwrap_or(node));
        let body = self.field_block(node, "body");
        into.push(Stmt { line: line(node), kind: StmtKind::Loop { target, over, body } });
        if let Some(clause) = node.child_by_field_name("alternative") {
            let after = self.field_block(clause, "body");
            into.push(Stmt { line: line(clause), kind: StmtKind::Block(after) });
        }
    }

    fn with(&mut self, node: Node<'_>) -> StmtKind {
        let clause = named_children(node).into_iter().find(|it| it.kind() == "with_clause");
        let mut items = Vec::new();
        for item in clause.map(named_children).unwrap_or_default() {
            let Some(value) = item.child_by_field_name("value") else { continue };
            let alias = value.child_by_field_name("alias");
            let entered =
                if value.kind() == "as_pattern" { value.named_child(0) } else { Some(value) };
            let alias = alias.map(|alias| self.expr(alias));
            items.push((self.expr(entered.unwrap_or(value)), alias));
        }
        StmtKind::With { items, body: self.field_block(node, "body") }
    }

    /// The body, what follows it and `finally` are taken to run; handlers may.
    fn attempt(&mut self, node: Node<'_>, into: &mut Vec<Stmt>) {
        let body = self.field_block(node, "body");
        into.push(Stmt { line: line(node), kind: StmtKind::Block(body) });
        let mut handlers = Vec::new();
        let mut rest = Vec::new();
        for clause in named_children(node) {
            let block = named_children(clause).into_iter().find(|it| it.kind() == "block");
            match (clause.kind(), block) {
                ("except_clause" | "except_group_clause", Some(body)) => {
                    handlers.push(self.block(body));
                }
                ("finally_clause" | "else_clause", Some(body)) => {
                    rest.push((clause, self.block(body)));
                }
                _ => {}
            }
        }
        into.push(Stmt { line: line(node), kind: StmtKind::Arms(handlers) });
        for (clause, body) in rest {
            into.push(Stmt { line: line(clause), kind: StmtKind::Block(body) });
        }
    }

    fn cases(&mut self, node: Node<'_>) -> StmtKind {
        let body = node.child_by_field_name("body").map(named_children).unwrap_or_default();
        let cases = body.into_iter().filter(|it| it.kind() == "case_clause");
        StmtKind::Arms(cases.map(|case| self.field_block(case, "consequence")).collect())
    }

    fn decorated(&mut self, node: Node<'_>) -> StmtKind {
        let parts = named_children(node).into_iter();
        let inner = parts.filter(|it| it.kind() == "decorator").filter_map(|it| it.named_child(0));
        let decorators = self.exprs(inner.collect());
        match node.child_by_field_name("definition") {
            Some(definition) => self.definition(definition, decorators),
            None => StmtKind::Run(decorators),
        }
    }

    fn definition(&mut self, node: Node<'_>, decorators: Vec<Expr>) -> StmtKind {
        let name = node.child_by_field_name("name").map(|name| self.text_of(name));
        let name = name.unwrap_or_default().to_owned();
        let body = self.field_block(node, "body");
        if node.kind() == "class_definition" {
            let bases = node.child_by_field_name("superclasses");
            let bases = bases.map(|list| self.arguments(list)).unwrap_or_default();
            return StmtKind::Class(Class { name, bases, decorators, body });
        }
        let parameters = node.child_by_field_name("parameters").map(named_children);
        let parameters = self.parameters(parameters.unwrap_or_default());
        StmtKind::Function(Function { name, parameters, decorators, body })
    }

    fn parameters(&mut self, nodes: Vec<Node<'_>>) -> Vec<Parameter> {
        let mut parameters = Vec::new();
        let mut kind = ParameterKind::Plain;
        for node in nodes {
            let inner =
                if node.kind() == "typed_parameter" { node.named_child(0) } else { Some(node) };
            let pattern = inner.map(|inner| inner.kind()).unwrap_or_default();
            let is_rest = matches!(pattern, "list_splat_pattern" | "dictionary_splat_pattern");
            if pattern == "keyword_separator" {
                kind = ParameterKind::ByName;
                continue;
            }
            let name = match node.child_by_field_name("name") {
                Some(name) => Some(name),
                None if is_rest => inner.and_then(|inner| inner.named_child(0)),
                None => inner.filter(|inner| inner.kind() == "identifier"),
            };
            let default = node.child_by_field_name("value").map(|value| self.expr(value));
            let Some(name) = name else { continue };
            let name = self.text_of(name).to_owned();
            let own = if is_rest { ParameterKind::Rest } else { kind };
            parameters.push(Parameter { name, default, kind: own });
            if is_rest {
                kind = ParameterKind::ByName;
            }
        }
        parameters
    }
}
