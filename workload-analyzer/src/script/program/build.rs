//! Numbers the statements of files, and writes down what they bind and call.

use std::{collections::BTreeMap, rc::Rc};

use super::{
    Arm, Binding, Bound, Branch, Class, ClassId, Function, FunctionId, Imports, Loop, Module,
    Owner, Parsed, Program, Scope, ScopeId, Site, Step, StepId,
};
use crate::script::tree::{
    Class as ClassTree, Expr, Function as FunctionTree, Import, Imported, Kind, Stmt, StmtKind,
};

impl<'a> Program<'a> {
    pub(in crate::script) fn of(files: &'a [Parsed]) -> Self {
        let mut program = Self {
            modules: Vec::new(),
            scopes: Vec::new(),
            steps: Vec::new(),
            branches: Vec::new(),
            loops: Vec::new(),
            functions: Vec::new(),
            classes: Vec::new(),
            assigned: BTreeMap::new(),
            calls: Vec::new(),
        };
        for (module, parsed) in files.iter().enumerate() {
            let scope = program.scope(Owner::Module, None, module);
            program.modules.push(Module { parsed, scope, imports: Vec::new() });
            let place = Place { scope, arms: Rc::from([]), loops: Rc::from([]) };
            program.block(&parsed.statements, &place);
        }
        program
    }

    fn scope(&mut self, owner: Owner, parent: Option<ScopeId>, module: usize) -> ScopeId {
        self.scopes.push(Scope { owner, parent, module, bindings: BTreeMap::new() });
        ScopeId(self.scopes.len() - 1)
    }

    fn block(&mut self, statements: &'a [Stmt], place: &Place) {
        for statement in statements {
            self.statement(statement, place);
        }
    }

    fn statement(&mut self, statement: &'a Stmt, place: &Place) {
        let Place { scope, arms, loops } = place.clone();
        self.steps.push(Step { scope, line: statement.line, arms, loops });
        let step = StepId(self.steps.len() - 1);
        match &statement.kind {
            StmtKind::Run(exprs) => exprs.iter().for_each(|expr| self.calls_in(expr, step)),
            StmtKind::Assign { targets, value } => {
                self.calls_in(value, step);
                for target in targets {
                    self.bind(target, Bound::To(value), step);
                    self.calls_in(target, step);
                }
            }
            StmtKind::Declare(name) => self.bind_name(name, Bound::Declared, step),
            StmtKind::Change { target, value } => {
                self.calls_in(value, step);
                self.bind(target, Bound::Changed(value), step);
            }
            StmtKind::Import(imports) => imports.iter().for_each(|it| self.import(it, step)),
            StmtKind::Function(tree) => self.function(tree, step, place),
            StmtKind::Class(tree) => self.class(tree, step, place),
            StmtKind::If { test, then, otherwise } => {
                self.calls_in(test, step);
                let branch = self.branch(step, Some(test));
                self.block(then, &place.in_arm(Arm { branch, arm: 0 }));
                self.block(otherwise, &place.in_arm(Arm { branch, arm: 1 }));
            }
            StmtKind::Loop { target, over, body } => {
                self.calls_in(over, step);
                if let Some(target) = target {
                    self.bind(target, Bound::Looped(over), step);
                }
                self.loops.push(Loop { step, target: target.as_ref(), over });
                self.block(body, &place.in_loop(self.loops.len() - 1));
            }
            StmtKind::With { items, body } => {
                for (value, alias) in items {
                    self.calls_in(value, step);
                    if let Some(alias) = alias {
                        self.bind(alias, Bound::Entered(value), step);
                    }
                }
                self.block(body, place);
            }
            StmtKind::Arms(arms) => {
                let branch = self.branch(step, None);
                for (arm, body) in arms.iter().enumerate() {
                    self.block(body, &place.in_arm(Arm { branch, arm }));
                }
            }
            StmtKind::Block(body) => self.block(body, place),
            StmtKind::Return(value) => self.returned(value.as_ref(), step),
        }
    }

    fn branch(&mut self, step: StepId, test: Option<&'a Expr>) -> usize {
        self.branches.push(Branch { step, test });
        self.branches.len() - 1
    }

    fn returned(&mut self, value: Option<&'a Expr>, step: StepId) {
        let Some(value) = value else { return };
        self.calls_in(value, step);
        if let Some(function) = self.function_of(step) {
            self.functions[function.0].returns.push((step, value));
        }
    }

    fn import(&mut self, import: &'a Import, step: StepId) {
        let module = import.module.as_str();
        let (member, is_everything) = match &import.what {
            Imported::Module => (None, false),
            Imported::Member(name) => (Some(name.as_str()), false),
            Imported::Everything => (None, true),
        };
        let index = self.module_of(step);
        self.modules[index].imports.push((step, Imports { module, member, is_everything }));
        if is_everything {
            return;
        }
        // `import a.b` binds `a`; the rest is found by its attributes.
        let first = module.split('.').next().unwrap_or(module);
        let (name, bound) = match (member, &import.alias) {
            (Some(member), alias) => (alias.as_deref().unwrap_or(member), module),
            (None, Some(alias)) => (alias.as_str(), module),
            (None, None) => (first, first),
        };
        self.bind_name(name, Bound::Import { module: bound, member }, step);
    }

    fn function(&mut self, tree: &'a FunctionTree, step: StepId, place: &Place) {
        let defaults = tree.parameters.iter().filter_map(|parameter| parameter.default.as_ref());
        for expr in tree.decorators.iter().chain(defaults) {
            self.calls_in(expr, step);
        }
        let module = self.module_of(step);
        let id = FunctionId(self.functions.len());
        let scope = self.scope(Owner::Function(id), Some(place.scope), module);
        let class = match self.scopes[place.scope.0].owner {
            Owner::Class(class) => Some(class),
            Owner::Module | Owner::Function(_) => None,
        };
        self.functions.push(Function { tree, step, class, returns: Vec::new() });
        self.bind_name(&tree.name, Bound::Function(id), step);
        for (index, parameter) in tree.parameters.iter().enumerate() {
            let what = Bound::Parameter(id, index);
            let bindings = self.scopes[scope.0].bindings.entry(&parameter.name).or_default();
            bindings.push(Binding { step, what });
        }
        let inside = Place { scope, arms: Rc::from([]), loops: Rc::from([]) };
        self.block(&tree.body, &inside);
    }

    fn class(&mut self, tree: &'a ClassTree, step: StepId, place: &Place) {
        for expr in tree.decorators.iter().chain(tree.bases.iter().map(|base| &base.value)) {
            self.calls_in(expr, step);
        }
        let module = self.module_of(step);
        let id = ClassId(self.classes.len());
        let scope = self.scope(Owner::Class(id), Some(place.scope), module);
        self.classes.push(Class { tree, step, scope, attributes: BTreeMap::new() });
        self.bind_name(&tree.name, Bound::Class(id), step);
        let inside = Place { scope, arms: Rc::from([]), loops: Rc::from([]) };
        self.block(&tree.body, &inside);
    }

    fn bind(&mut self, target: &'a Expr, what: Bound<'a>, step: StepId) {
        match &target.kind {
            Kind::Name(name) => self.bind_name(name, what, step),
            Kind::Attribute(base, name) => self.bind_attribute(base, name, what, step),
            Kind::Sequence(targets) => {
                for (index, inner) in targets.iter().enumerate() {
                    let element = match what {
                        Bound::To(value) => Bound::Element(value, index),
                        _ => Bound::Opaque,
                    };
                    self.bind(inner, element, step);
                }
            }
            _ => {}
        }
    }

    fn bind_name(&mut self, name: &'a str, what: Bound<'a>, step: StepId) {
        let scope = self.step(step).scope;
        self.scopes[scope.0].bindings.entry(name).or_default().push(Binding { step, what });
    }

    /// `self.name = …` in a method.
    fn bind_attribute(&mut self, base: &'a Expr, name: &'a str, what: Bound<'a>, step: StepId) {
        let (Kind::Name(base) | Kind::Attribute(_, base)) = &base.kind else { return };
        let function = self.function_of(step).map(|function| &self.functions[function.0]);
        let own = function.and_then(|it| Some((it.class?, &it.tree.parameters.first()?.name)));
        match own {
            Some((class, own)) if own == base => {
                let attributes = &mut self.classes[class.0].attributes;
                attributes.entry(name).or_default().push(Binding { step, what });
            }
            _ => self.assigned.entry(name).or_default().push((base, step)),
        }
    }

    fn calls_in(&mut self, expr: &'a Expr, step: StepId) {
        // What is called on, and the arguments, come before the call itself.
        for child in expr.children() {
            self.calls_in(child, step);
        }
        if let Kind::Call(call) = &expr.kind {
            self.calls.push(Site { step, expr, call });
        }
    }
}

/// Where a statement stands.
#[derive(Clone)]
struct Place {
    scope: ScopeId,
    arms: Rc<[Arm]>,
    loops: Rc<[usize]>,
}

impl Place {
    fn in_arm(&self, arm: Arm) -> Self {
        Self { arms: self.arms.iter().copied().chain([arm]).collect(), ..self.clone() }
    }

    fn in_loop(&self, inner: usize) -> Self {
        Self { loops: self.loops.iter().copied().chain([inner]).collect(), ..self.clone() }
    }
}
