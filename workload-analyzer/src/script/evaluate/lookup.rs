//! Finds what a name is bound to where it is used.
//!
//! In its own function a name is what was assigned last above, or in one of the branches above; a name
//! of the module or of a function around is what it is at the end of that.

use super::Evaluator;
use crate::script::{
    known,
    program::{Arm, Binding, Bound, Imports, Owner, ScopeId, StepId},
    value::{Certainty, Env, Known, Value},
};

/// Branches in which a name may be bound before it is used.
const BRANCHES_MAX: usize = 16;

const BUILTINS: [&str; 34] = [
    "abs",
    "bool",
    "dict",
    "enumerate",
    "float",
    "getattr",
    "hasattr",
    "int",
    "isinstance",
    "iter",
    "len",
    "list",
    "map",
    "max",
    "min",
    "next",
    "open",
    "print",
    "range",
    "round",
    "set",
    "sorted",
    "staticmethod",
    "str",
    "sum",
    "super",
    "tuple",
    "type",
    "zip",
    "filter",
    "property",
    "vars",
    "any",
    "all",
];

impl<'a> Evaluator<'a> {
    pub(super) fn lookup(&self, name: &'a str, env: &Env<'a>) -> Known<'a> {
        let own = self.program.step(env.step).scope;
        let mut scope = Some(own);
        while let Some(current) = scope {
            let found = &self.program.scopes[current.0];
            let is_seen = current == own || !matches!(found.owner, Owner::Class(_));
            if let Some(bindings) = found.bindings.get(name).filter(|_| is_seen) {
                let used = (current == own).then_some(env.step);
                return self.flow(name, bindings, used, env);
            }
            scope = found.parent;
        }
        self.bound_elsewhere(name, env)
    }

    /// A name that no statement binds: from `import *`, or Python's own.
    fn bound_elsewhere(&self, name: &'a str, env: &Env<'a>) -> Known<'a> {
        let module = self.program.module_of(env.step);
        let stars = self.program.modules[module].imports.iter().rev();
        for (_, import) in stars.filter(|(_, import)| import.is_everything) {
            if let Some(local) = self.linked(module, import.module) {
                if let Some(known) = self.in_module(local, name) {
                    return known;
                }
            } else {
                let path = known::canonical(&format!("{}.{name}", import.module));
                let is_only = !BUILTINS.contains(&name) && self.stars(module) == 1;
                if is_only || known::is_known(&path) {
                    let symbol = Known::certain(Value::Symbol(path.into()));
                    return symbol.likely(|| format!("from {} import *", import.module));
                }
            }
        }
        if BUILTINS.contains(&name) {
            return Known::certain(Value::Symbol(name.into()));
        }
        Known::unknown(format!("`{name}` is bound nowhere in these files"))
    }

    /// How many packages a file imports everything of.
    fn stars(&self, module: usize) -> usize {
        let imports = self.program.modules[module].imports.iter();
        let is_star = |import: &Imports<'_>| {
            import.is_everything && self.linked(module, import.module).is_none()
        };
        imports.filter(|(_, import)| is_star(import)).count()
    }

    /// What a name of a file is at its end.
    pub(super) fn in_module(&self, module: usize, name: &'a str) -> Option<Known<'a>> {
        let scope = self.program.modules[module].scope;
        let bindings = self.program.scopes[scope.0].bindings.get(name)?;
        let env = Env::at(bindings.first()?.step);
        Some(self.flow(name, bindings, None, &env))
    }

    fn linked(&self, module: usize, name: &str) -> Option<usize> {
        self.program.modules[module].parsed.links.get(name).copied()
    }

    /// `used` is the statement that uses the name, if it is in the scope that binds it.
    pub(super) fn flow(
        &self,
        name: &str,
        bindings: &[Binding<'a>],
        used: Option<StepId>,
        env: &Env<'a>,
    ) -> Known<'a> {
        if let Some(place) = used.and_then(|used| self.changed_in_loop(bindings, used)) {
            return Known::unknown(format!("`{name}` changes in the loop, {place}"));
        }
        let mut found = self.reaching(bindings, used, env);
        found.reverse();
        let known = found.iter().map(|binding| self.bound(name, *binding, env)).collect::<Vec<_>>();
        if known.is_empty() {
            return Known::unknown(format!("`{name}` is bound further down only, or too often"));
        }
        Known::one_of(known, || {
            let lines: Vec<_> = found.iter().map(|it| self.line_of(*it)).collect();
            format!("assigned in branches: {}", lines.join(", "))
        })
    }

    fn line_of(&self, binding: Binding<'a>) -> String {
        self.program.place(binding.step, self.program.step(binding.step).line)
    }

    /// A name that `+=` changes further down in a loop around its use.
    fn changed_in_loop(&self, bindings: &[Binding<'a>], used: StepId) -> Option<String> {
        let loops = &self.program.step(used).loops;
        if loops.is_empty() {
            return None;
        }
        let below = bindings.partition_point(|it| it.step < used);
        let is_changed = |binding: &&Binding<'a>| {
            let inner = &self.program.step(binding.step).loops;
            matches!(binding.what, Bound::Changed(_)) && loops.iter().any(|it| inner.contains(it))
        };
        let mut below = bindings[below..].iter().take_while(|_| self.spend());
        below.find(is_changed).map(|binding| self.line_of(*binding))
    }

    /// The bindings that a use may see, the last first.
    fn reaching(
        &self,
        bindings: &[Binding<'a>],
        used: Option<StepId>,
        env: &Env<'a>,
    ) -> Vec<Binding<'a>> {
        let at = used.map(|used| self.open_arms(&self.program.step(used).arms, env));
        let at = at.unwrap_or(Some(Vec::new())).unwrap_or_default();
        let mut found = Vec::new();
        let mut covered: Vec<Vec<Arm>> = Vec::new();
        let above = bindings.partition_point(|it| used.is_none_or(|used| it.step < used));
        for binding in bindings[..above].iter().rev() {
            if found.len() == BRANCHES_MAX || !self.spend() {
                return Vec::new();
            }
            if matches!(binding.what, Bound::Declared) {
                continue;
            }
            let is_parameter = matches!(binding.what, Bound::Parameter(..));
            let arms: &[Arm] =
                if is_parameter { &[] } else { &self.program.step(binding.step).arms };
            // An arm that is certainly not taken binds nothing.
            let Some(arms) = self.open_arms(arms, env) else { continue };
            let excludes = |arm: &Arm| at.iter().any(|it| it.branch == arm.branch && it != arm);
            if arms.iter().any(excludes) {
                continue;
            }
            found.push(*binding);
            covered.push(arms);
            if self.covers(&mut covered, &at) {
                break;
            }
        }
        found
    }

    /// The arms that may be taken or not; `None` if one is certainly not taken.
    fn open_arms(&self, arms: &[Arm], env: &Env<'a>) -> Option<Vec<Arm>> {
        let mut open = Vec::new();
        for arm in arms {
            match self.decided(arm.branch, env) {
                Some(taken) if taken == arm.arm => {}
                Some(_) => return None,
                None => open.push(*arm),
            }
        }
        Some(open)
    }

    /// Which arm of a branch is taken, if that is certain.
    pub(in crate::script) fn decided(&self, branch: usize, env: &Env<'a>) -> Option<usize> {
        let branch = &self.program.branches[branch];
        let test = branch.test?;
        let at = Env { step: branch.step, frame: env.frame.clone() };
        let known = self.eval(test, &at);
        let is_certain = known.certainty == Certainty::Certain;
        known.value.truth().filter(|_| is_certain).map(|truth| usize::from(!truth))
    }

    /// Whether one of these certainly ran before a use that is in the arms `at`.
    fn covers(&self, arms: &mut Vec<Vec<Arm>>, at: &[Arm]) -> bool {
        loop {
            if arms.iter().any(|it| it.iter().all(|arm| at.contains(arm))) {
                return true;
            }
            // Both arms of an `if` are as good as no `if`.
            let merged = arms.iter().find_map(|it| {
                let (last, outer) = it.split_last()?;
                let other = Arm { branch: last.branch, arm: 1 - last.arm.min(1) };
                let is_if = self.program.branches[last.branch].test.is_some();
                let sibling: Vec<Arm> = outer.iter().copied().chain([other]).collect();
                let is_new = !arms.iter().any(|known| known == outer);
                (is_if && is_new && arms.contains(&sibling)).then(|| outer.to_vec())
            });
            match merged {
                Some(merged) => arms.push(merged),
                None => return false,
            }
        }
    }

    fn bound(&self, name: &str, binding: Binding<'a>, env: &Env<'a>) -> Known<'a> {
        let at = Env { step: binding.step, frame: env.frame.clone() };
        let assigned = |known: Known<'a>| {
            let is_plain = known.value.is_plain();
            let place = || format!("assigned at {}", self.line_of(binding));
            if is_plain { known.likely(place) } else { known }
        };
        match binding.what {
            Bound::To(value) | Bound::Entered(value) => assigned(self.eval(value, &at)),
            Bound::Element(value, index) => assigned(self.element(value, index, &at)),
            Bound::Looped(over) => self.looped(name, over, &at),
            Bound::Changed(_) => {
                Known::unknown(format!("`{name}` is changed at {}", self.line_of(binding)))
            }
            Bound::Opaque | Bound::Declared => {
                Known::unknown(format!("`{name}` is set at {}", self.line_of(binding)))
            }
            Bound::Parameter(function, index) => self.parameter(function, index, env),
            Bound::Function(function) => Known::certain(Value::Function(function)),
            Bound::Class(class) => Known::certain(Value::Class(class)),
            Bound::Import { module, member } => self.imported(module, member, binding.step),
        }
    }

    fn imported(&self, module: &'a str, member: Option<&'a str>, step: StepId) -> Known<'a> {
        let file = self.program.module_of(step);
        let Some(member) = member else {
            let value = match self.linked(file, module) {
                Some(local) => Value::Module(local),
                None => Value::Symbol(known::canonical(module).into()),
            };
            return Known::certain(value);
        };
        let path = format!("{module}{}{member}", if module.ends_with('.') { "" } else { "." });
        // What a package binds itself hides a file of that name.
        let own = self.linked(file, module).and_then(|local| self.in_module(local, member));
        if let Some(own) = own {
            return own;
        }
        if let Some(local) = self.linked(file, &path) {
            return Known::certain(Value::Module(local));
        }
        if self.linked(file, module).is_some() {
            return Known::unknown(format!("`{member}` is not bound in {module}"));
        }
        Known::certain(Value::Symbol(known::canonical(&path).into()))
    }

    /// The scope that a class or a function opens.
    pub(super) fn bindings_in(&self, scope: ScopeId, name: &str) -> Option<&[Binding<'a>]> {
        self.program.scopes[scope.0].bindings.get(name).map(Vec::as_slice)
    }
}
