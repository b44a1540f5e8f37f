//! Reads scripts, and those files beside them that they import.
//!
//! Only modules are followed that lie in the directory of the script or of the importing file, or below
//! it; nothing is searched for in `sys.path`.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use super::{
    ScriptError, SyntaxError,
    parse::parse,
    program::Parsed,
    tree::{Import, Imported, Stmt, StmtKind},
};

/// Files that are analysed together.
pub const FILES_MAX: usize = 32;

/// A larger file is no script.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// All files together; imports beyond are not followed.
pub const BYTES_MAX: u64 = 4 << 20;

/// How many imports may lead from a script to a file.
pub const IMPORT_DEPTH_MAX: u32 = 4;

/// A file that was read.
pub(super) struct Read {
    pub(super) parsed: Parsed,
    pub(super) errors: Vec<SyntaxError>,
}

pub(super) fn parsed(name: String, text: String) -> Read {
    let (statements, errors) = parse(&name, &text);
    Read { parsed: Parsed { name, text, statements, links: BTreeMap::new() }, errors }
}

/// The files, and what was left out.
pub(super) fn load(paths: &[PathBuf]) -> Result<(Vec<Read>, Vec<String>), ScriptError> {
    if paths.len() > FILES_MAX {
        return Err(ScriptError::TooMany { given: paths.len() });
    }
    let mut files = Files { read: Vec::new(), places: Vec::new(), bytes: 0, left_out: Vec::new() };
    for path in paths {
        if files.position(path).is_none() {
            let text = read(path)?;
            files.add(path.clone(), text, path.parent().unwrap_or(Path::new("")).to_owned(), 0);
        }
    }
    let mut next = 0;
    while next < files.read.len() {
        files.follow(next);
        next += 1;
    }
    files.left_out.sort();
    files.left_out.dedup();
    Ok((files.read, files.left_out))
}

struct Files {
    read: Vec<Read>,
    places: Vec<Place>,
    bytes: u64,
    left_out: Vec<String>,
}

struct Place {
    path: PathBuf,
    /// The same file under whatever name.
    real: PathBuf,
    /// The directory of the script that led here.
    root: PathBuf,
    depth: u32,
}

impl Files {
    fn position(&self, path: &Path) -> Option<usize> {
        let real = path.canonicalize().ok()?;
        self.places.iter().position(|place| place.real == real)
    }

    fn add(&mut self, path: PathBuf, text: String, root: PathBuf, depth: u32) {
        self.bytes += text.len() as u64;
        self.read.push(parsed(path.display().to_string(), text));
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        self.places.push(Place { path, real, root, depth });
    }

    fn follow(&mut self, number: usize) {
        let mut imports = Vec::new();
        collect(&self.read[number].parsed.statements, &mut imports);
        let names: Vec<String> = imports.iter().flat_map(|import| names(import)).collect();
        for name in names {
            if self.read[number].parsed.links.contains_key(&name) {
                continue;
            }
            if let Some(target) = self.target(number, &name) {
                self.read[number].parsed.links.insert(name, target);
            }
        }
    }

    /// The file that an import of `name` means, read if it was not yet.
    fn target(&mut self, number: usize, name: &str) -> Option<usize> {
        let Place { path, root, depth, .. } = &self.places[number];
        let (root, depth) = (root.clone(), *depth + 1);
        let own = path.parent().unwrap_or(Path::new("")).to_owned();
        let is_relative = name.starts_with('.');
        let inner = relative(name.strip_prefix('.').unwrap_or(name))?;
        let directories = if is_relative { vec![own] } else { vec![own, root.clone()] };
        let found = directories.iter().find_map(|directory| {
            let base = directory.join(&inner);
            let candidates = [base.with_extension("py"), base.join("__init__.py")];
            candidates.into_iter().find(|candidate| candidate.is_file())
        })?;
        if let Some(known) = self.position(&found) {
            return Some(known);
        }
        let shown = found.display().to_string();
        if depth > IMPORT_DEPTH_MAX || self.read.len() >= FILES_MAX || self.bytes > BYTES_MAX {
            self.left_out.push(format!("{shown}: not followed, the limit of files is reached"));
            return None;
        }
        match read(&found) {
            Ok(text) => self.add(found, text, root, depth),
            Err(error) => {
                self.left_out.push(format!("not followed: {error}"));
                return None;
            }
        }
        Some(self.read.len() - 1)
    }
}

/// `a.b` as `a/b`; nothing that leads out of a directory.
fn relative(name: &str) -> Option<PathBuf> {
    let is_name = |part: &str| {
        !part.is_empty() && part.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
    };
    let parts: Vec<_> = name.split('.').collect();
    parts.iter().all(|part| is_name(part)).then(|| parts.iter().collect())
}

/// What an import may name: a module, or with its member a module below it.
fn names(import: &Import) -> Vec<String> {
    let module = import.module.clone();
    match &import.what {
        Imported::Member(member) => {
            let dot = if module.ends_with('.') { "" } else { "." };
            vec![format!("{module}{dot}{member}"), module]
        }
        Imported::Module | Imported::Everything => vec![module],
    }
}

fn collect<'a>(statements: &'a [Stmt], into: &mut Vec<&'a Import>) {
    for statement in statements {
        match &statement.kind {
            StmtKind::Import(imports) => into.extend(imports),
            StmtKind::Function(function) => collect(&function.body, into),
            StmtKind::Class(class) => collect(&class.body, into),
            StmtKind::If { then, otherwise, .. } => {
                collect(then, into);
                collect(otherwise, into);
            }
            StmtKind::Loop { body, .. } | StmtKind::With { body, .. } | StmtKind::Block(body) => {
                collect(body, into);
            }
            StmtKind::Arms(arms) => arms.iter().for_each(|arm| collect(arm, into)),
            StmtKind::Run(_)
            | StmtKind::Assign { .. }
            | StmtKind::Declare(_)
            | StmtKind::Change { .. }
            | StmtKind::Return(_) => {}
        }
    }
}

fn read(path: &Path) -> Result<String, ScriptError> {
    let file = path.to_owned();
    let unreadable = |source| ScriptError::Unreadable { file: path.to_owned(), source };
    // A pipe would wait for whoever writes to it.
    if !path.metadata().map_err(unreadable)?.is_file() {
        return Err(ScriptError::NoFile { file });
    }
    let mut bytes = Vec::new();
    let mut limited = File::open(path).map_err(unreadable)?.take(FILE_BYTES_MAX + 1);
    limited.read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(ScriptError::TooLarge { file });
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        ScriptError::NotUtf8 { file, at }
    })?;
    Ok(text.strip_prefix('\u{FEFF}').map(str::to_owned).unwrap_or(text))
}
