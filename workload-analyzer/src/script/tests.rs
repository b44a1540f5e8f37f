use std::{fs, path::PathBuf};

use super::*;

/// The batch size of the only loader in a script: value, certainty and reason.
fn batch(script: &str) -> (String, Certainty, String) {
    let imports = "import argparse, os, torch\nfrom torch.utils.data import DataLoader\n";
    let found = analyze_text("a.py", &format!("{imports}{script}"));
    assert_eq!(found.syntax_errors, [], "{script}");
    let loader = found.findings.iter().find(|it| it.kind == Kind::Loader).expect("a loader");
    let fact = loader.fact("batch_size").expect("a batch size");
    (fact.text.clone(), fact.certainty, fact.why.clone().unwrap_or_default())
}

fn check(script: &str, text: &str, certainty: Certainty, why: &str) {
    let expected = (text.to_owned(), certainty, why.to_owned());
    assert_eq!(batch(script), expected, "{script}");
}

fn certain(script: &str, text: &str) {
    check(script, text, Certainty::Certain, "");
}

fn likely(script: &str, text: &str, why: &str) {
    check(script, text, Certainty::Likely, why);
}

fn unknown(script: &str, text: &str, why: &str) {
    check(script, text, Certainty::Unknown, why);
}

#[test]
fn a_literal_is_certain() {
    certain("DataLoader(d, 8)", "8");
    certain("DataLoader(d, batch_size=2 * 8 + 1)", "17");
    certain("DataLoader(d, batch_size=1 << 5)", "32");
    certain("DataLoader(d, batch_size=-7 // 2)", "-4");
    certain("DataLoader(d, batch_size=int(2 ** 3 / 2))", "4");
    certain("DataLoader(d, batch_size=int('12'))", "12");
    certain("DataLoader(d, **{'batch_size': 5, 'shuffle': True})", "5");
    certain("DataLoader(d, batch_size=None)", "None");
    certain("DataLoader(d, batch_size=max(4, 9))", "9");
    check("DataLoader(d)", "1", Certainty::Certain, "default of the library");
}

#[test]
fn a_name_that_is_assigned_once_is_likely() {
    likely("B = 8\nDataLoader(d, B)", "8", "assigned at a.py:3");
    likely("B: int = 8\ndef f():\n  return DataLoader(d, B)", "8", "assigned at a.py:3");
    likely("A = B = 8\nDataLoader(d, 2 * B)", "16", "assigned at a.py:3");
    likely("A, B = 8, 9\nDataLoader(d, B)", "9", "assigned at a.py:3");
    likely("class C:\n  B = 8\nDataLoader(d, C.B)", "8", "assigned at a.py:4");
}

#[test]
fn a_name_is_what_was_assigned_last_above() {
    likely("B = 8\nB = 9\nDataLoader(d, B)\nB = 10", "9", "assigned at a.py:4");
    likely("if a:\n  B = 8\nB = 9\nDataLoader(d, B)", "9", "assigned at a.py:5");
    likely("if a:\n  B = 8\n  DataLoader(d, B)\nelse:\n  B = 9", "8", "assigned at a.py:4");
    likely("try:\n  B = 8\nfinally:\n  pass\nDataLoader(d, B)", "8", "assigned at a.py:4");
    unknown("B = 8\nB += 1\nDataLoader(d, B)", "B", "`B` is changed at a.py:4");
    unknown(
        "B = 8\nfor e in x:\n  DataLoader(d, B)\n  B *= 2",
        "B",
        "`B` changes in the loop, a.py:6",
    );
}

#[test]
fn branches_that_cannot_be_decided_leave_both() {
    let both = "assigned in branches: a.py:4, a.py:6";
    unknown("if a:\n  B = 8\nelse:\n  B = 9\nDataLoader(d, B)", "8 or 9", both);
    let both = "assigned in branches: a.py:3, a.py:5";
    unknown("B = 8\nif a:\n  B = 9\nDataLoader(d, B)", "8 or 9", both);
    likely("if a:\n  B = 8\nelse:\n  B = 8\nDataLoader(d, B)", "8", "assigned at a.py:4");
    unknown("DataLoader(d, 8 if a else 9)", "8 or 9", "depends on `a`");
    likely("if True:\n  B = 8\nelse:\n  B = 9\nDataLoader(d, B)", "8", "assigned at a.py:4");
}

#[test]
fn an_option_is_likely_its_default() {
    let parser = "p = argparse.ArgumentParser()\n";
    let option =
        |option: &str| format!("{parser}p.add_argument({option})\nargs = p.parse_args()\n");
    let why = "default of --batch-size, a.py:4";
    let size = option("'--batch-size', '-b', type=int, default=8");
    likely(&format!("{size}DataLoader(d, args.batch_size)"), "8", why);
    likely(&format!("{size}DataLoader(d, getattr(args, 'batch_size', 4))"), "8", why);
    likely(&format!("{size}def f(args):\n  DataLoader(d, args.batch_size)\nf(args)"), "8", why);
    likely(&format!("{size}def f(opt):\n  DataLoader(d, opt.batch_size)"), "8", why);
    let text = option("'--batch-size', type=int, default='8'");
    likely(&format!("{text}DataLoader(d, args.batch_size)"), "8", why);
    let other = option("'-b', dest='n', default=8");
    likely(&format!("{other}DataLoader(d, args.n)"), "8", "default of -b, a.py:4");
    let none = option("'--batch-size', type=int");
    let why = "--batch-size has no default, a.py:4";
    unknown(&format!("{none}DataLoader(d, args.batch_size)"), "args.batch_size", why);
    let why = "no option `n` is declared in these files";
    unknown(&format!("{none}DataLoader(d, args.n)"), "args.n", why);
    let twice = format!("{size}p.set_defaults(batch_size=6)\nDataLoader(d, args.batch_size)");
    likely(&twice, "6", "default of --batch_size, a.py:6");
}

#[test]
fn mappings_and_the_environment_are_followed() {
    likely("c = {'b': 8}\nDataLoader(d, c['b'])", "8", "assigned at a.py:3");
    likely("c = {'b': 8}\nDataLoader(d, c.get('b', 4))", "8", "assigned at a.py:3");
    likely("c = dict(b=8)\nDataLoader(d, **{'batch_size': c['b']})", "8", "assigned at a.py:3");
    likely("DataLoader(d, {'b': 8}['b'])", "8", "from a mapping, a.py:3");
    unknown("c = load()\nDataLoader(d, **c)", "?", "computed: load()");
    let environment = "unless the environment has B";
    likely("DataLoader(d, int(os.environ.get('B', 8)))", "8", environment);
    likely("DataLoader(d, int(os.getenv('B', '8')))", "8", environment);
    let environment = "from the environment: B";
    unknown("DataLoader(d, int(os.environ['B']))", "int(os.environ['B'])", environment);
}

#[test]
fn what_is_computed_is_unknown_with_its_source() {
    unknown("DataLoader(d, f(x))", "f(x)", "computed: f(x)");
    unknown("DataLoader(d, len(d))", "len(d)", "`d` is bound nowhere in these files");
    unknown(
        "DataLoader(d, 8 * torch.cuda.device_count())",
        "8 * torch.cuda.device_count()",
        "computed: 8 * torch.cuda.device_count()",
    );
    unknown("DataLoader(d, torch.cuda.device_count())", "torch.cuda.device_count()", "computed");
    unknown(
        "DataLoader(d, 9223372036854775807 + 1)",
        "9223372036854775807 + 1",
        "computed: 9223372036854775807 + 1",
    );
    unknown("DataLoader(d, 1 // 0)", "1 // 0", "computed: 1 // 0");
}

#[test]
fn parameters_are_what_callers_give() {
    let f = "def f(b, s=2):\n  DataLoader(d, b * s)\n";
    certain(&format!("{f}f(4)"), "8");
    certain(&format!("{f}f(s=3, b=4)"), "12");
    certain(&format!("{f}def g(x):\n  f(x)\ng(5)"), "10");
    unknown(f, "b * s", "parameter `b` of f, which nothing in these files calls");
    likely("def f(b=4):\n  DataLoader(d, b)", "4", "default of parameter `b` of f");
    certain("def b(n):\n  return 2 * n\nDataLoader(d, b(4))", "8");
    let class = "class C:\n  def __init__(self, b):\n    self.b = b\n  def l(self):\n    DataLoader(d, self.b)\n";
    likely(&format!("{class}C(4)"), "4", "assigned at a.py:5");
    unknown(&format!("{class}C(4)\nC(5)"), "4 or 5", "differs from call to call: a.py:8, a.py:9");
}

#[test]
fn a_loader_is_told_once_for_each_way_to_it() {
    let script = "
from torch.utils.data import DataLoader
def f(train):
  return DataLoader(d, 8 if train else 2, shuffle=train)
train = f(True)
f(False)
f(False)
";
    let found = analyze_text("a.py", script).findings;
    let loaders = found.iter().filter(|it| it.kind == Kind::Loader);
    let shown = loaders.map(|it| {
        let fact = |name: &str| it.fact(name).map_or("", |fact| fact.text.as_str());
        [fact("called from"), fact("batch_size"), fact("shuffle"), fact("phase")]
    });
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [["a.py:5", "8", "True", "training"], ["a.py:6, a.py:7", "2", "False", ""]]
    );
}

#[test]
fn names_of_libraries_are_followed_through_every_way_to_import_them() {
    for import in [
        "from torch.utils.data import DataLoader as L",
        "from torch.utils.data.dataloader import DataLoader as L",
        "import torch.utils.data as data\nL = data.DataLoader",
        "import torch\nL = torch.utils.data.DataLoader",
        "from torch.utils import data\nL = data.DataLoader",
        "from torch.utils.data import *\nL = DataLoader",
    ] {
        let found = analyze_text("a.py", &format!("{import}\nL(d, 8)\n")).findings;
        assert!(found.iter().any(|it| it.kind == Kind::Loader), "{import}");
    }
    for script in [
        "class DataLoader: pass\nDataLoader(d, 8)",
        "from mine import DataLoader\nDataLoader(d, 8)",
        "import torch\n'DataLoader(d, 8)' # torch.utils.data.DataLoader(d)",
    ] {
        let found = analyze_text("a.py", script).findings;
        assert!(found.iter().all(|it| it.kind != Kind::Loader), "{script}");
    }
}

#[test]
fn the_order_of_a_loader_is_that_of_its_sampler() {
    let order = |arguments: &str, around: &str| {
        let script = format!(
            "import torch\nfrom torch.utils.data import *\nimport lightning as L\n{around}\nDataLoader(d, 8, {arguments})"
        );
        let found = analyze_text("a.py", &script).findings;
        let loader = found.iter().find(|it| it.kind == Kind::Loader).expect("a loader").clone();
        let fact = loader.fact("order.shuffle").expect("an order").clone();
        (fact.text, fact.certainty)
    };
    let known = |name: &str, certainty| (name.to_owned(), certainty);
    assert_eq!(order("", ""), known("sequential", Certainty::Certain));
    assert_eq!(order("shuffle=True", ""), known("torch-random", Certainty::Certain));
    assert_eq!(order("shuffle=a", ""), known("torch-random or sequential", Certainty::Unknown));
    let distributed = known("torch-distributed", Certainty::Certain);
    assert_eq!(order("sampler=DistributedSampler(d)", "").0, distributed.0);
    assert_eq!(order("sampler=DistributedSampler(d, shuffle=False)", "").0, "sequential");
    assert_eq!(order("sampler=RandomSampler(d)", "").0, "torch-random");
    assert_eq!(order("sampler=RandomSampler(d, replacement=True)", "").0, "published");
    assert_eq!(order("sampler=WeightedRandomSampler(w, 8)", "").0, "published");
    assert_eq!(order("batch_sampler=mine", "").0, "published");
    let lightning = order("shuffle=True", "L.Trainer(max_epochs=2)");
    assert_eq!(lightning, known("torch-distributed", Certainty::Likely));
}

fn advice(script: &str) -> Vec<String> {
    let found = analyze_text("a.py", script).findings;
    let advice = found.into_iter().filter(|it| it.kind == Kind::Advice);
    advice.map(|it| format!("{}: {}", it.line, it.what)).collect()
}

#[test]
fn what_may_not_be_meant_is_said() {
    let imports = "import torch\nfrom torch.utils.data import *\n";
    let sampler = format!("{imports}s = DistributedSampler(d)\nDataLoader(d, 8, sampler=s)\n");
    assert_eq!(advice(&sampler), ["3: set_epoch is never called"]);
    assert_eq!(advice(&format!("{sampler}s.set_epoch(1)\n")), [""; 0]);
    let random = format!("{imports}DataLoader(d, 8, shuffle=True)\n");
    assert_eq!(advice(&random), ["3: the shuffle has no seed"]);
    assert_eq!(advice(&format!("{random}torch.manual_seed(1)\n")), [""; 0]);
    let ranks = format!("{imports}torch.distributed.init_process_group()\nDataLoader(d, 8)\n");
    assert_eq!(advice(&ranks), ["4: several ranks, but no sampler that deals samples to them"]);
    let tf = "import tensorflow as tf\nx = tf.data.TFRecordDataset(f)";
    assert_eq!(advice(&format!("{tf}.shuffle(8).cache()")), ["2: cache behind shuffle"]);
    assert_eq!(advice(&format!("{tf}.batch(8).shuffle(8)")), ["2: shuffle behind batch"]);
    assert_eq!(advice(&format!("{tf}.repeat().shuffle(8)")), ["2: shuffle behind repeat"]);
    assert_eq!(advice(&format!("{tf}.cache().shuffle(8).repeat().batch(8)")), [""; 0]);
}

#[test]
fn what_takes_too_long_to_follow_is_unknown() {
    use std::fmt::Write as _;

    let mut doubling = String::from("x0 = 1\n");
    for level in 1..60 {
        writeln!(doubling, "x{level} = x{0} + x{0}", level - 1).expect("a string");
    }
    let (text, certainty, _) = batch(&format!("{doubling}DataLoader(d, x59)"));
    assert_eq!((text.as_str(), certainty), ("x59", Certainty::Unknown));
    let (_, certainty, why) = batch("def f(n):\n  return f(n)\nDataLoader(d, f(8))");
    assert_eq!((certainty, why.as_str()), (Certainty::Unknown, "`f` calls itself"));
    let chain =
        format!("import tensorflow as tf\nx = tf.data.Dataset.range(3){}\n", ".map(f)".repeat(500));
    assert!(!analyze_text("a.py", &chain).findings.is_empty());
}

fn written(files: &[(&str, &[u8])]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, text).expect("a file");
    }
    let first = folder.path().join(files[0].0);
    (folder, first)
}

#[test]
fn a_file_that_is_no_script_is_refused_with_what_would_be_right() {
    let error = |path: &PathBuf| {
        let message = analyze(std::slice::from_ref(path)).expect_err("an error").to_string();
        message.trim_start_matches(&path.display().to_string()).to_owned()
    };
    let (folder, path) = written(&[("a.py", b"x = '\xE9'\n")]);
    assert_eq!(error(&path), ": byte 5 is no UTF-8; Python files are UTF-8, convert it");
    let directory = folder.path().to_owned();
    let right = ": is no regular file; give the Python file that starts the training";
    assert_eq!(error(&directory), right);
    assert_eq!(error(&PathBuf::from("/dev/zero")), right);
    fs::write(&path, vec![b'#'; 1 << 21]).expect("a file");
    assert_eq!(error(&path), ": is larger than 1048576 bytes; that is no training script");
    let missing = folder.path().join("b.py");
    assert_eq!(error(&missing), ": cannot be read: No such file or directory (os error 2)");
    let many = vec![path; 33];
    let message = analyze(&many).expect_err("an error").to_string();
    assert_eq!(message, "33 scripts are given; at most 32 are analysed together");
}

#[test]
fn imports_are_followed_beside_the_script_and_nowhere_else() {
    let (folder, first) = written(&[
        ("job/a.py", b"from b import N\nfrom .c import *\nfrom ..d import X\nimport e.f, a, os\n"),
        ("job/b.py", b"import a\nN = 1\n"),
        ("job/c.py", b"from b import *\n"),
        ("d.py", b""),
        ("job/e/f.py", b"from . import g\n"),
        ("job/e/g.py", b""),
    ]);
    let found = analyze(&[first]).expect("an analysis");
    let prefix = format!("{}/job/", folder.path().display());
    let names: Vec<_> = found.files.iter().map(|it| it.trim_start_matches(&prefix)).collect();
    assert_eq!(names, ["a.py", "b.py", "c.py", "e/f.py", "e/g.py"]);
    assert_eq!(found.left_out, [""; 0]);
}

#[test]
fn imports_beyond_the_limits_are_left_out_and_named() {
    let mut files: Vec<(String, Vec<u8>)> = (0..8)
        .map(|depth| (format!("m{depth}.py"), format!("import m{}\n", depth + 1).into_bytes()))
        .collect();
    files[2].1 = b"import m3\nimport bad\n".to_vec();
    files.push(("bad.py".to_owned(), vec![0xFF]));
    let files: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), text.as_slice())).collect();
    let (_folder, first) = written(&files);
    let found = analyze(&[first]).expect("an analysis");
    assert_eq!(found.files.len(), 1 + usize::try_from(IMPORT_DEPTH_MAX).expect("small"));
    assert_eq!(found.left_out.len(), 2);
    assert!(found.left_out[0].ends_with("m5.py: not followed, the limit of files is reached"));
    assert!(found.left_out[1].starts_with("not followed: "));
    assert!(found.left_out[1].contains("byte 0 is no UTF-8"));
}

#[test]
fn a_script_that_trains_nothing_says_so() {
    let found = analyze_text("a.py", "print(1)\n");
    assert_eq!(found.findings, []);
    assert!(table(&found).starts_with("nothing of PyTorch, TensorFlow or JAX was found\n"));
    assert_eq!(found.job_yaml, "# no loader was found: nothing can be suggested\n");
}
