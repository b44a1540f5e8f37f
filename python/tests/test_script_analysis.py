"""What the analysis says of training scripts: every finding of twelve of them, and each rule by itself.

Beside each script of `script_analysis/` lies what the analysis prints of it. To see what a change does
to one, run `python3 -I ../../python/tierfeed/script_analysis NAME.py` there; the texts were written so,
and then read line by line. So the texts show that nothing changed; `BY_HAND` shows what is right, for it
was written from the scripts alone.
"""

from __future__ import annotations

import importlib.util
import json
import random
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parent / "script_analysis"
TOOL = Path(__file__).parents[1] / "python/tierfeed/script_analysis"
NAMES = sorted(it.stem for it in SCRIPTS.glob("*.py"))
NOISE = ["(", ")", "[", "]", "{", "}", ":", ",", "=", "'", '"', "\\", "#", "*", "@", "\n", "\t", "\0"]
NOISE += ["def ", "class ", "lambda ", "if ", "else:", "\u00e9", "0x", "\r", "  "]

spec = importlib.util.spec_from_file_location(
    "script_analysis", TOOL / "__init__.py", submodule_search_locations=[str(TOOL)]
)
assert spec and spec.loader
sys.modules["script_analysis"] = importlib.util.module_from_spec(spec)
analysis = importlib.import_module("script_analysis.analysis")
load = importlib.import_module("script_analysis.load")
recover = importlib.import_module("script_analysis.recover")


def text_of(name: str) -> str:
    return (SCRIPTS / f"{name}.py").read_text(encoding="utf-8")


def found_in(script: str, job: dict[str, Any] | None = None) -> Any:
    return analysis.analyze_text("a.py", script, job)


def findings(script: str, kind: str) -> list[Any]:
    return [it for it in found_in(script).findings if it.kind == kind]


def run_tool(*arguments: str, cwd: Path = SCRIPTS) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(TOOL), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, encoding="utf-8", check=False)


# Whole scripts


@pytest.mark.parametrize("name", NAMES)
def test_each_finding_of_a_script_is_as_it_was_read(name: str) -> None:
    found = analysis.table(analysis.analyze_text(f"{name}.py", text_of(name)))
    assert found.splitlines() == (SCRIPTS / f"{name}.txt").read_text().splitlines()


def test_a_training_of_several_files_is_followed_from_the_first() -> None:
    found = analysis.analyze([f"{SCRIPTS}/package/train.py"])
    names = [it.rpartition("/")[2] for it in found.files]
    expected = ["train.py", "settings.py", "__init__.py", "data.py", "model.py", "saving.py"]
    assert names == expected
    shown = analysis.table(found).replace(f"{SCRIPTS}/", "")
    assert shown == (SCRIPTS / "package.txt").read_text()


# What a reader of the scripts finds: script, line, fact, value, certainty. A value in the call, or in
# the only call of what makes it, is certain, one that a run can change is likely, one that only a run
# knows is unknown (`docs/analyze-script.md`). One thing a reader finds and the analysis does not: the
# steps of `tokens`, which are counted by hand.
BY_HAND = [
    ("imagenet", 30, "seed", None, "unknown"),
    ("imagenet", 78, "batch_size", 256, "likely"),
    ("imagenet", 78, "num_workers", 4, "likely"),
    ("imagenet", 78, "pin_memory", True, "certain"),
    ("imagenet", 81, "shuffle", False, "certain"),
    ("imagenet", 86, "epochs", 90, "likely"),
    ("imagenet", 118, "path", "model_best.pth.tar", "certain"),
    ("lightning_module", 26, "shuffle", True, "certain"),
    ("lightning_module", 26, "num_workers", 8, "certain"),
    ("lightning_module", 26, "persistent_workers", True, "certain"),
    ("lightning_module", 26, "batch_size", 96, "certain"),
    ("lightning_module", 31, "batch_size", 192, "certain"),
    ("lightning_module", 58, "epochs", 30, "certain"),
    ("lightning_module", 56, "seed", 1234, "certain"),
    ("hf_trainer", 23, "seed", 17, "certain"),
    ("hf_trainer", 24, "split", "train", "certain"),
    ("hf_trainer", 25, "split", "validation", "certain"),
    ("hf_trainer", 35, "epochs", 3, "certain"),
    ("tf_resnet", 44, "seed", 11, "certain"),
    ("tf_resnet", 53, "epochs", 60, "likely"),
    ("unet3d", 41, "seed", 9, "certain"),
    ("unet3d", 41, "drop_last", True, "certain"),
    ("unet3d", 43, "batch_size", 7, "likely"),
    ("unet3d", 43, "num_workers", 4, "likely"),
    ("unet3d", 54, "seed", 0, "certain"),
    ("unet3d", 59, "epochs", 5, "likely"),
    ("cosmoflow", 44, "epochs", 4, "certain"),
    ("tokens", 15, "seed", 1337, "certain"),
    ("tokens", 47, "path", "out/ckpt.pt", "certain"),
    ("webdataset_clip", 28, "num_workers", None, "unknown"),
    ("webdataset_clip", 30, "num_workers", 2, "certain"),
    ("webdataset_clip", 33, "epochs", 32, "likely"),
    ("streaming_mosaic", 28, "seed", 1, "certain"),
    ("streaming_mosaic", 31, "batch_size", 256, "likely"),
    ("streaming_mosaic", 31, "drop_last", True, "certain"),
    ("streaming_mosaic", 33, "epochs", 36, "certain"),
    ("grain_jax", 18, "seed", 3, "likely"),
    ("grain_jax", 25, "worker_count", 16, "certain"),
    ("grain_jax", 25, "worker_buffer_size", 2, "certain"),
    ("broken", 19, "batch_size", 32, "likely"),
    ("broken", 22, "epochs", 3, "certain"),
]


@pytest.mark.parametrize(("name", "line", "fact", "value", "certainty"), BY_HAND)
def test_what_a_reader_finds_the_analysis_finds_too(
    name: str, line: int, fact: str, value: Any, certainty: str
) -> None:
    found = analysis.document(analysis.analyze_text(f"{name}.py", text_of(name)))["findings"]
    facts = [it for finding in found if finding["line"] == line for it in finding["facts"]]
    told = [(it["value"], it["certainty"]) for it in facts if it["name"] == fact]
    assert (value, certainty) in told


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_certain_has_a_reason(name: str) -> None:
    for finding in analysis.analyze_text(f"{name}.py", text_of(name)).findings:
        for fact in finding.facts:
            assert fact.certainty == 0 or fact.why, (finding.what, fact)


def test_the_same_facts_are_in_the_json() -> None:
    found = json.loads(run_tool("--json", "imagenet.py").stdout)
    loader = next(it for it in found["findings"] if it["kind"] == "loader")
    assert (loader["file"], loader["line"]) == ("imagenet.py", 78)
    facts = {it["name"]: it for it in loader["facts"]}
    assert facts["batch_size"] == {
        "name": "batch_size", "value": 256, "text": "256", "certainty": "likely",
        "why": "default of --batch-size, imagenet.py:20",
    }  # fmt: skip
    assert (facts["sampler"]["value"], facts["sampler"]["certainty"]) == (None, "unknown")
    assert facts["pin_memory"]["value"] is True
    assert facts["batch_bytes"]["value"] == 3 * 224 * 224 * 4 * 256
    keys = ["files", "findings", "syntax_errors", "left_out", "job_yaml", "contradictions"]
    assert list(found) == keys


# Values: the batch size of the only loader in a script

CERTAIN = [
    ("DataLoader(d, 8)", "8"),
    ("DataLoader(d, batch_size=2 * 8 + 1)", "17"),
    ("DataLoader(d, batch_size=1 << 5)", "32"),
    ("DataLoader(d, batch_size=-7 // 2)", "-4"),
    ("DataLoader(d, batch_size=int(2 ** 3 / 2))", "4"),
    ("DataLoader(d, batch_size=int('12'))", "12"),
    ("DataLoader(d, **{'batch_size': 5, 'shuffle': True})", "5"),
    ("DataLoader(d, batch_size=None)", "None"),
    ("DataLoader(d, batch_size=max(4, 9))", "9"),
    ("def f(b, s=2):\n  DataLoader(d, b * s)\nf(4)", "8"),
    ("def f(b, s=2):\n  DataLoader(d, b * s)\nf(s=3, b=4)", "12"),
    ("def f(b, s=2):\n  DataLoader(d, b * s)\ndef g(x):\n  f(x)\ng(5)", "10"),
    ("def b(n):\n  return 2 * n\nDataLoader(d, b(4))", "8"),
]
PARSER = "p = argparse.ArgumentParser()\n"
SIZE = f"{PARSER}p.add_argument('--batch-size', '-b', type=int, default=8)\nargs = p.parse_args()\n"
NO_SIZE = f"{PARSER}p.add_argument('--batch-size', type=int)\nargs = p.parse_args()\n"
TEXT = f"{PARSER}p.add_argument('--batch-size', type=int, default='8')\nargs = p.parse_args()\n"
OTHER = f"{PARSER}p.add_argument('-b', dest='n', default=8)\nargs = p.parse_args()\n"
OF_SIZE = "default of --batch-size, a.py:4"
CLASS = "class C:\n  def __init__(self, b):\n    self.b = b\n  def l(self):\n    DataLoader(d, self.b)\n"
LIKELY = [
    ("B = 8\nDataLoader(d, B)", "8", "assigned at a.py:3"),
    ("B: int = 8\ndef f():\n  return DataLoader(d, B)", "8", "assigned at a.py:3"),
    ("A = B = 8\nDataLoader(d, 2 * B)", "16", "assigned at a.py:3"),
    ("A, B = 8, 9\nDataLoader(d, B)", "9", "assigned at a.py:3"),
    ("class C:\n  B = 8\nDataLoader(d, C.B)", "8", "assigned at a.py:4"),
    ("B = 8\nB = 9\nDataLoader(d, B)\nB = 10", "9", "assigned at a.py:4"),
    ("if a:\n  B = 8\nB = 9\nDataLoader(d, B)", "9", "assigned at a.py:5"),
    ("if a:\n  B = 8\n  DataLoader(d, B)\nelse:\n  B = 9", "8", "assigned at a.py:4"),
    ("try:\n  B = 8\nfinally:\n  pass\nDataLoader(d, B)", "8", "assigned at a.py:4"),
    ("if a:\n  B = 8\nelse:\n  B = 8\nDataLoader(d, B)", "8", "assigned at a.py:4"),
    ("if True:\n  B = 8\nelse:\n  B = 9\nDataLoader(d, B)", "8", "assigned at a.py:4"),
    (f"{SIZE}DataLoader(d, args.batch_size)", "8", OF_SIZE),
    (f"{SIZE}DataLoader(d, getattr(args, 'batch_size', 4))", "8", OF_SIZE),
    (f"{SIZE}def f(args):\n  DataLoader(d, args.batch_size)\nf(args)", "8", OF_SIZE),
    (f"{SIZE}def f(opt):\n  DataLoader(d, opt.batch_size)", "8", OF_SIZE),
    (f"{TEXT}DataLoader(d, args.batch_size)", "8", OF_SIZE),
    (f"{OTHER}DataLoader(d, args.n)", "8", "default of -b, a.py:4"),
    (f"{SIZE}p.set_defaults(batch_size=6)\nDataLoader(d, args.batch_size)", "6",
     "default of --batch_size, a.py:6"),
    ("c = {'b': 8}\nDataLoader(d, c['b'])", "8", "assigned at a.py:3"),
    ("c = {'b': 8}\nDataLoader(d, c.get('b', 4))", "8", "assigned at a.py:3"),
    ("c = dict(b=8)\nDataLoader(d, **{'batch_size': c['b']})", "8", "assigned at a.py:3"),
    ("DataLoader(d, {'b': 8}['b'])", "8", "from a mapping, a.py:3"),
    ("DataLoader(d, int(os.environ.get('B', 8)))", "8", "unless the environment has B"),
    ("DataLoader(d, int(os.getenv('B', '8')))", "8", "unless the environment has B"),
    ("def f(b=4):\n  DataLoader(d, b)", "4", "default of parameter `b` of f"),
    (f"{CLASS}C(4)", "4", "assigned at a.py:5"),
]  # fmt: skip
DEVICES = "8 * torch.cuda.device_count()"
UNKNOWN = [
    ("B = 8\nB += 1\nDataLoader(d, B)", "B", "`B` is changed at a.py:4"),
    ("B = 8\nfor e in x:\n  DataLoader(d, B)\n  B *= 2", "B", "`B` changes in the loop, a.py:6"),
    ("if a:\n  B = 8\nelse:\n  B = 9\nDataLoader(d, B)", "8 or 9",
     "assigned in branches: a.py:4, a.py:6"),
    ("B = 8\nif a:\n  B = 9\nDataLoader(d, B)", "8 or 9", "assigned in branches: a.py:3, a.py:5"),
    ("DataLoader(d, 8 if a else 9)", "8 or 9", "depends on `a`"),
    (f"{NO_SIZE}DataLoader(d, args.batch_size)", "args.batch_size",
     "--batch-size has no default, a.py:4"),
    (f"{NO_SIZE}DataLoader(d, args.n)", "args.n", "no option `n` is declared in these files"),
    (f"{SIZE}args.batch_size = int(args.batch_size / 4)\nDataLoader(d, args.batch_size)",
     "args.batch_size", "`batch_size` is assigned at a.py:6"),
    ("c = load()\nDataLoader(d, **c)", "?", "computed: load()"),
    ("DataLoader(d, int(os.environ['B']))", "int(os.environ['B'])", "from the environment: B"),
    ("DataLoader(d, f(x))", "f(x)", "computed: f(x)"),
    ("DataLoader(d, len(d))", "len(d)", "`d` is bound nowhere in these files"),
    (f"DataLoader(d, {DEVICES})", DEVICES, f"computed: {DEVICES}"),
    ("DataLoader(d, torch.cuda.device_count())", "torch.cuda.device_count()", "computed"),
    ("DataLoader(d, 9223372036854775807 + 1)", "9223372036854775807 + 1",
     "computed: 9223372036854775807 + 1"),
    ("DataLoader(d, 2 ** 10 ** 10)", "2 ** 10 ** 10", "computed: 2 ** 10 ** 10"),
    ("DataLoader(d, 1 // 0)", "1 // 0", "computed: 1 // 0"),
    ("def f(b, s=2):\n  DataLoader(d, b * s)", "b * s",
     "parameter `b` of f, which nothing in these files calls"),
    (f"{CLASS}C(4)\nC(5)", "4 or 5", "differs from call to call: a.py:8, a.py:9"),
    ("def f(n):\n  return f(n)\nDataLoader(d, f(8))", "f(8)", "`f` calls itself"),
]  # fmt: skip


def batch_of(script: str) -> tuple[str, str, str]:
    """The batch size of the only loader in a script: what is shown, how certain that is, and why."""
    imports = "import argparse, os, torch\nfrom torch.utils.data import DataLoader\n"
    found = found_in(imports + script)
    assert found.syntax_errors == []
    fact = next(it for it in found.findings if it.kind == "loader").fact("batch_size")
    return fact.text, fact.certainty.name.lower(), fact.why or ""


@pytest.mark.parametrize(("script", "text"), CERTAIN)
def test_a_literal_is_certain(script: str, text: str) -> None:
    assert batch_of(script) == (text, "certain", "")


def test_a_default_of_the_library_is_certain() -> None:
    assert batch_of("DataLoader(d)") == ("1", "certain", "default of the library")


@pytest.mark.parametrize(("script", "text", "why"), LIKELY)
def test_what_a_run_can_change_is_likely(script: str, text: str, why: str) -> None:
    assert batch_of(script) == (text, "likely", why)


@pytest.mark.parametrize(("script", "text", "why"), UNKNOWN)
def test_what_only_a_run_knows_is_unknown_with_a_reason(script: str, text: str, why: str) -> None:
    assert batch_of(script) == (text, "unknown", why)


def test_a_loader_is_told_once_for_each_way_to_it() -> None:
    script = """
from torch.utils.data import DataLoader
def f(train):
  return DataLoader(d, 8 if train else 2, shuffle=train)
train = f(True)
f(False)
f(False)
"""
    facts = [{fact.name: fact.text for fact in it.facts} for it in findings(script, "loader")]
    names = ("called from", "batch_size", "shuffle", "phase")
    told = [[it.get(name, "") for name in names] for it in facts]
    assert told == [["a.py:5", "8", "True", "training"], ["a.py:6, a.py:7", "2", "False", ""]]


@pytest.mark.parametrize(
    "imports",
    [
        "from torch.utils.data import DataLoader as L",
        "from torch.utils.data.dataloader import DataLoader as L",
        "import torch.utils.data as data\nL = data.DataLoader",
        "import torch\nL = torch.utils.data.DataLoader",
        "from torch.utils import data\nL = data.DataLoader",
        "from torch.utils.data import *\nL = DataLoader",
    ],
)
def test_names_of_libraries_are_followed_through_each_way_to_import_them(imports: str) -> None:
    assert findings(f"{imports}\nL(d, 8)\n", "loader")


@pytest.mark.parametrize(
    "script",
    [
        "class DataLoader: pass\nDataLoader(d, 8)",
        "from mine import DataLoader\nDataLoader(d, 8)",
        "import torch\n'DataLoader(d, 8)' # torch.utils.data.DataLoader(d)",
    ],
)
def test_what_has_only_the_name_of_a_loader_is_none(script: str) -> None:
    assert findings(script, "loader") == []


@pytest.mark.parametrize(
    ("arguments", "around", "order", "certainty"),
    [
        ("", "", "sequential", "certain"),
        ("shuffle=True", "", "torch-random", "certain"),
        ("shuffle=a", "", "torch-random or sequential", "unknown"),
        ("sampler=DistributedSampler(d)", "", "torch-distributed", "certain"),
        ("sampler=DistributedSampler(d, shuffle=False)", "", "sequential", "certain"),
        ("sampler=RandomSampler(d)", "", "torch-random", "certain"),
        ("sampler=RandomSampler(d, replacement=True)", "", "published", "likely"),
        ("sampler=RandomSampler(d, num_samples=6)", "", "published", "likely"),
        ("sampler=RandomSampler(d, generator=g)", "", "published", "likely"),
        ("sampler=WeightedRandomSampler(w, 8)", "", "published", "likely"),
        ("batch_sampler=mine", "", "published", "likely"),
        ("shuffle=True", "L.Trainer(max_epochs=2)", "torch-distributed", "likely"),
    ],
)
def test_the_order_of_a_loader_is_that_of_its_sampler(
    arguments: str, around: str, order: str, certainty: str
) -> None:
    imports = "import torch\nfrom torch.utils.data import *\nimport lightning as L\n"
    loader = findings(f"{imports}{around}\nDataLoader(d, 8, {arguments})", "loader")[0]
    fact = loader.fact("order.shuffle")
    assert (fact.text, fact.certainty.name.lower()) == (order, certainty)


def start_of(tmp_path: Path, script: str) -> dict[str, Any]:
    """What `tierfeed init` is told of a script."""
    imports = "from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, random_split, "
    imports += "SubsetRandomSampler\nfrom torchvision.datasets import CIFAR10, Food101, ImageFolder\n"
    (tmp_path / "a.py").write_text(f"import torch\n{imports}{script}")
    ended = run_tool("--start", "a.py", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)[0]
    return found


@pytest.mark.parametrize(
    "samples",
    [
        "train, held_out = random_split(ImageFolder('d'), [8, 2])",
        "train = Subset(ImageFolder('d'), range(8))",
        "train = ConcatDataset([ImageFolder('d'), ImageFolder('e')])",
    ],
)
def test_a_training_on_other_samples_than_the_files_hold_is_told(tmp_path: Path, samples: str) -> None:
    part = start_of(tmp_path, f"{samples}\nloader = DataLoader(train, 4)\n")["part"]
    assert part.startswith("a.py:5: the script trains on ") and "a job reads all of one source" in part


def test_a_sampler_over_some_of_the_samples_is_told_as_a_part(tmp_path: Path) -> None:
    script = "loader = DataLoader(ImageFolder('d'), 4, sampler=SubsetRandomSampler(ids))\n"
    assert "by SubsetRandomSampler" in start_of(tmp_path, script)["part"]


@pytest.mark.parametrize(
    ("script", "warning"),
    [
        ("d = ImageFolder('d', tf, target_transform=relabel)", "target_transform=relabel"),
        ("d = ImageFolder('d', tf, lambda y: 1 - y)", "target_transform=lambda y: 1 - y"),
        ("d = ImageFolder('d', loader=gray)", "loader=gray"),
        ("d = ImageFolder('d', is_valid_file=lambda it: '3' in it)", "is_valid_file="),
        ("d = ImageFolder('d')\nd.samples = d.samples[::-1]", "a.py:5: d.samples is changed"),
        ("d = ImageFolder('d')\nd.samples.sort()", "a.py:5: d.samples is changed"),
        ("d = ImageFolder('d')\nd.targets[3] = 1", "a.py:5: d.targets is changed"),
        ("class Mine(ImageFolder):\n  pass\nd = Mine('d')", "a.py:4: which samples Mine has"),
    ],
)
def test_what_changes_samples_or_labels_and_is_not_carried_over_is_named(
    tmp_path: Path, script: str, warning: str
) -> None:
    warnings = start_of(tmp_path, f"{script}\nloader = DataLoader(d, 4)\n")["warnings"]
    assert any(warning in it for it in warnings)


def test_one_item_of_several_files_is_told(tmp_path: Path) -> None:
    script = """from PIL import Image
class Pairs(Dataset):
  def __getitem__(self, i):
    return Image.open(f'd/images/{i}.png'), Image.open(f'd/masks/{i}.png')
DataLoader(Pairs('d'), 4)
"""
    warnings = start_of(tmp_path, script)["warnings"]
    assert any("one item of Pairs opens several files" in it for it in warnings)


@pytest.mark.parametrize(
    "line",
    [
        "loaders = {x: DataLoader(d[x], 4) for x in ['train', 'val']}",
        "for x in ['train', 'val']: loaders[x] = DataLoader(d[x], 4)",
        "def made(x): return DataLoader(d[x], 4)\ntrain, val = made('train'), made('val')",
    ],
)
def test_a_line_that_makes_the_loaders_of_several_phases_is_named(tmp_path: Path, line: str) -> None:
    warnings = start_of(tmp_path, f"{line}\n")["warnings"]
    assert any("a.py:4 makes several loaders" in it for it in warnings)


@pytest.mark.parametrize(
    ("given", "note"),
    [
        ("drop_last=True", 'drop_last=True is short_batch="drop" of TierLoader'),
        ("collate_fn=mine", "collate_fn=mine is collate= of TierLoader"),
        ("num_workers=4", "for a decode that draws nothing at random"),
    ],
)
def test_arguments_of_a_loader_that_stand_elsewhere_are_named(
    tmp_path: Path, given: str, note: str
) -> None:
    notes = start_of(tmp_path, f"loader = DataLoader(ImageFolder('d'), 4, {given})\n")["notes"]
    assert any(note in it for it in notes)


def test_each_other_loader_is_named(tmp_path: Path) -> None:
    script = "train_loader = DataLoader(ImageFolder('d/train'), 4)\n"
    notes = start_of(tmp_path, f"{script}val_loader = DataLoader(ImageFolder('d/val'), 4)\n")["notes"]
    assert any("a.py:5: this loader (validation) stays as it is" in it for it in notes)


@pytest.mark.parametrize(
    ("script", "seed"),
    [
        ("torch.manual_seed(3)\nmodel = torch.nn.Linear(2, 2)\nDataLoader(d, 4, shuffle=True)", None),
        ("DataLoader(d, 4, shuffle=True)", None),
        ("g = torch.Generator().manual_seed(7)\nDataLoader(d, 4, shuffle=True, generator=g)", 7),
        ("g = torch.Generator()\ng.manual_seed(7)\nh = torch.Generator()\nh.manual_seed(8)\n"
         "DataLoader(d, 4, shuffle=True, generator=h)", None),
    ],
)  # fmt: skip
def test_a_seed_is_told_only_where_nothing_else_can_draw_from_its_generator(
    tmp_path: Path, script: str, seed: int | None
) -> None:
    found = start_of(tmp_path, f"{script}\n")
    assert found["shuffle"] == "torch-random"
    assert [it["value"] for it in found["keys"] if it["name"] == "order.seed"] == [seed]


def test_a_generator_that_several_draw_from_gives_no_order(tmp_path: Path) -> None:
    script = "g = torch.Generator().manual_seed(7)\nval_loader = DataLoader(d, 4, generator=g)\n"
    found = start_of(tmp_path, f"{script}DataLoader(d, 4, shuffle=True, generator=g)\n")
    (shuffle,) = [it for it in found["keys"] if it["name"] == "order.shuffle"]
    assert (shuffle["value"], shuffle["why"]) == (
        None, "each use of a generator moves it on: a.py:5, a.py:6",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("loop", "epochs"),
    [
        ("for e in range(2):\n  for x in loader: pass", 2),
        ("for _ in range(5):\n  train_one(loader)", 5),
        ("for epoch in range(1, 4):\n  for x in loader: pass", 3),
        ("for epoch in range(1, 4):\n  loader.sampler.set_epoch(epoch)\n  for x in loader: pass", 4),
    ],
)
def test_the_epochs_are_those_that_the_training_counts(tmp_path: Path, loop: str, epochs: int) -> None:
    script = "def train_one(it):\n  for x in it: pass\nloader = DataLoader(ImageFolder('d'), 4)\n"
    keys = start_of(tmp_path, f"{script}{loop}\n")["keys"]
    assert [it["value"] for it in keys if it["name"] == "order.epochs"] == [epochs]


def test_a_dataset_that_is_made_in_memory_is_told(tmp_path: Path) -> None:
    for name, is_foreign in (("CIFAR10", True), ("Food101", True), ("ImageFolder", False)):
        found = start_of(tmp_path, f"loader = DataLoader({name}('root'), 4)\n")
        assert (found["reads"], found["is_foreign"]) == (name, is_foreign)


IMPORTS = "import torch\nfrom torch.utils.data import *\n"
DEALT = f"{IMPORTS}s = DistributedSampler(d)\nDataLoader(d, 8, sampler=s)\n"
DRAWN = f"{IMPORTS}DataLoader(d, 8, shuffle=True)\n"
TF = "import tensorflow as tf\nx = tf.data.TFRecordDataset(f)"


@pytest.mark.parametrize(
    ("script", "advice"),
    [
        (DEALT, ["3: set_epoch is never called"]),
        (f"{DEALT}s.set_epoch(1)\n", []),
        (DRAWN, ["3: the shuffle has no seed"]),
        (f"{DRAWN}torch.manual_seed(1)\n", []),
        (f"{IMPORTS}torch.distributed.init_process_group()\nDataLoader(d, 8)\n",
         ["4: several ranks, but no sampler that deals samples to them"]),
        (f"{TF}.shuffle(8).cache()", ["2: cache behind shuffle"]),
        (f"{TF}.batch(8).shuffle(8)", ["2: shuffle behind batch"]),
        (f"{TF}.repeat().shuffle(8)", ["2: shuffle behind repeat"]),
        (f"{TF}.cache().shuffle(8).repeat().batch(8)", []),
    ],
)  # fmt: skip
def test_what_may_not_be_meant_is_said(script: str, advice: list[str]) -> None:
    assert [f"{it.line}: {it.what}" for it in findings(script, "advice")] == advice


# Limits and hostile input


def test_what_takes_too_long_to_follow_is_unknown_and_told() -> None:
    calls = "\n".join(f"def f{i}(n):\n  return f{i + 1}(n) + f{i + 1}(n)" for i in range(40))
    script = f"from torch.utils.data import DataLoader\n{calls}\nDataLoader(d, f0(1))\n"
    found = found_in(script)
    loader = next(it for it in found.findings if it.kind == "loader")
    assert loader.fact("batch_size").certainty.name == "UNKNOWN"


@pytest.mark.parametrize("start", ["'ab'", "[1]", "dict(a=1)"])
@pytest.mark.parametrize("change", ["x = x + x", "x = [x, x]", "x = {1: x, 2: x}", "x = f'{x}{x}'"])
def test_what_doubles_with_each_line_is_followed_to_a_limit(start: str, change: str) -> None:
    changes = f"{change}\n" * 60
    text, certainty, _ = batch_of(f"x = {start}\n{changes}DataLoader(d, x)")
    assert certainty != "certain" and len(text) <= 60


@pytest.mark.parametrize(
    "script",
    [
        *(f"x = {a * 20_000}1{b * 20_000}\n" for a, b in
          [("(", ")"), ("[", "]"), ("not ", ""), ("f(", ")"), ("{1: ", "}"), ("-", "")]),
        f"x = 1{' + 1' * 20_000}\n",
        f"x = a{'.b()' * 20_000}\n",
        "if a: pass\n" + "elif a: pass\n" * 20_000,
        "\n".join(" " * depth + "if a:" for depth in range(2_000)),
        "\n".join("x = x + x" for _ in range(20_000)),
        "def f(): return f()\n" * 5_000 + "f()\n",
        "\n".join(f"if a{i}:\n  b{i} = 1" for i in range(30_000)),
        "class A(A):\n  x = A.x\nA().x\n",
        "x, y = y, x = x\n\0\n\ufeff",
        "\\",
        '"""',
    ],
)  # fmt: skip
def test_hostile_texts_are_analysed_or_reported(script: str) -> None:
    found = found_in(f"import torch\n{script}\ny = 1\n")
    assert analysis.table(found)
    assert [it.what for it in found.findings] == ["torch"] or found.syntax_errors or found.left_out


def test_a_long_pipeline_is_followed_as_far_as_the_limit() -> None:
    found = found_in(f"import tensorflow as tf\nx = tf.data.Dataset.range(3){'.map(f)' * 500}\n")
    pipeline = next(it for it in found.findings if it.kind == "pipeline")
    assert len([it for it in pipeline.facts if it.name == "step"]) == 64


def test_python_of_each_age_is_read() -> None:
    script = """
async def f(*args: T, key=1, **rest) -> None:
    async with a as b, c: await d
    x = y = (z := 3)
    print(f'{x!r:>{width}}', *args, **rest, sep='')
try: pass
except ValueError: pass
"""
    assert recover.parse(script)[1] == []


@pytest.mark.parametrize(
    ("script", "errors"),
    [
        ("x = 1\nprint 'a'\n", [(2, "`print 'a'` is Python 2")]),
        ("def f():\n    if x:\n        exec 'a'\n", [(3, "`exec 'a'` is Python 2")]),
        ("a = 1\nb = = 2\nc = 3\n", [(2, "`b = = 2` is not understood")]),
        ("try:\n  a()\nexcept A, b:\n  c()\n", [(3, "`except A, b:` is Python 2")]),
        ("class A:\n  def f(self):\n    x=1\n   y=2\nz=1\n", [(4, "`y=2` is not understood")]),
    ],
)
def test_what_is_no_python_3_is_named_by_its_line(script: str, errors: list[tuple[int, str]]) -> None:
    assert recover.parse(script)[1] == errors


def test_statements_around_an_error_are_kept() -> None:
    statements, _ = recover.parse("a = 1\nb = = 2\nc = 3\n")
    assert [type(it).__name__ for it in statements] == ["Assign", "Pass", "Assign"]


def test_errors_are_limited() -> None:
    assert len(recover.parse("print 'a'\n" * 1000)[1]) == recover.SYNTAX_ERRORS_MAX


def test_a_long_source_is_shown_on_one_line() -> None:
    assert recover.shortened("a  =\n b") == "a = b"
    assert len(recover.shortened("ab " * 1000)) == 60
    assert recover.shortened("ab " * 1000).endswith("…")


def changed(draw: random.Random) -> str:
    """A script with some of its letters changed, cut or doubled, or lines of another among its own."""
    script = list(text_of(draw.choice(NAMES)))
    other = text_of(draw.choice(NAMES)).splitlines(keepends=True)
    for _ in range(draw.randrange(1, 6)):
        a, b = sorted(draw.randrange(len(script) + 1) for _ in range(2))
        noise = "".join(draw.choices(NOISE, k=draw.randrange(6)))
        kind = draw.randrange(4)
        if kind == 0:
            del script[b:]
        elif kind == 1:
            script[a : min(b, a + 40)] = noise
        else:
            script[a:a] = noise if kind == 2 else draw.choice(other)
    return "".join(script)


def check_sound(found: Any, lines: int) -> None:
    for finding in found.findings:
        assert 1 <= finding.line <= lines
        assert finding.what
        for fact in finding.facts:
            assert fact.certainty != 2 or fact.why
    for _, line, what in found.syntax_errors:
        assert 1 <= line <= lines, what
    for line in found.job_yaml.splitlines():
        assert re.fullmatch(r"(?: *# .*|(?:  )?\w+:(?: .+)?)", line), line
    assert analysis.table(found)
    assert json.loads(json.dumps(analysis.document(found)))


@pytest.mark.parametrize("seed", range(24))
def test_any_change_of_a_script_is_analysed(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(4):
        script = changed(draw)
        found = found_in(script)
        check_sound(found, len(re.split(r"\r\n|\r|\n", script)))
        assert analysis.document(found) == analysis.document(found_in(script))


# Files


def written(folder: Path, files: Iterable[tuple[str, bytes]]) -> None:
    for name, content in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"x = '\xe9'\n", "byte 5 is no UTF-8; Python files are UTF-8, convert it"),
        (b"#" * (1 << 21), "is larger than 1048576 bytes; that is no training script"),
        (None, "cannot be read: No such file or directory (os error 2)"),
    ],
    ids=["latin-1", "too-large", "missing"],
)
def test_a_file_that_is_no_script_is_refused(tmp_path: Path, content: bytes | None, error: str) -> None:
    if content is not None:
        (tmp_path / "a.py").write_bytes(content)
    ended = run_tool("a.py", cwd=tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", f"a.py: {error}\n")


@pytest.mark.parametrize("path", [".", "/dev/zero"])
def test_what_is_no_regular_file_is_refused(tmp_path: Path, path: str) -> None:
    right = "is no regular file; give the Python file that starts the training"
    ended = run_tool(path, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (2, f"{path}: {right}\n")


def test_too_many_scripts_are_refused() -> None:
    with pytest.raises(load.ScriptError, match="33 scripts are given; at most 32 are analysed together"):
        analysis.analyze(["a.py"] * 33)


def test_imports_are_followed_beside_the_script_and_nowhere_else(tmp_path: Path) -> None:
    first = b"from b import N\nfrom .c import *\nfrom ..d import X\nimport e.f, a, os\n"
    others = {"job/b.py": b"import a\nN = 1\n", "job/c.py": b"from b import *\n", "d.py": b"",
              "job/e/f.py": b"from . import g\n", "job/e/g.py": b""}  # fmt: skip
    written(tmp_path, [("job/a.py", first), *others.items()])
    found = analysis.analyze([f"{tmp_path}/job/a.py"])
    names = [it.removeprefix(f"{tmp_path}/job/") for it in found.files]
    assert names == ["a.py", "b.py", "c.py", "e/f.py", "e/g.py"]
    assert found.left_out == []


def test_imports_beyond_the_limits_are_left_out_and_named(tmp_path: Path) -> None:
    files = {f"m{depth}.py": f"import m{depth + 1}\n".encode() for depth in range(8)}
    files |= {"m2.py": b"import m3\nimport bad\n", "bad.py": b"\xff"}
    written(tmp_path, files.items())
    found = analysis.analyze([f"{tmp_path}/m0.py"])
    assert len(found.files) == 1 + load.IMPORT_DEPTH_MAX
    beyond, bad = found.left_out
    assert beyond.endswith("m5.py: not followed, the limit of files is reached")
    assert bad.startswith("not followed: ") and "byte 0 is no UTF-8" in bad


def test_a_script_is_never_executed_and_a_link_to_itself_is_one_file(tmp_path: Path) -> None:
    written(tmp_path, [("a.py", b"import b\nopen('made', 'w')\nraise SystemExit(7)\n")])
    (tmp_path / "b.py").symlink_to("a.py")
    ended = run_tool("a.py", "--json", cwd=tmp_path)
    assert ended.returncode == 0
    assert json.loads(ended.stdout)["files"] == ["a.py"]
    assert not (tmp_path / "made").exists()


# The job


def test_a_script_that_trains_nothing_says_so() -> None:
    found = found_in("print(1)\n")
    assert found.findings == []
    assert analysis.table(found).startswith("nothing of PyTorch, TensorFlow or JAX was found\n")
    assert found.job_yaml == "# no loader was found: nothing can be suggested\n"


JOB = {"batch_size": 32, "epochs": 7, "shuffle": "torch-distributed", "seed": 5, "drop_last": True,
       "format": "image-folder", "nodes": 1, "ranks_per_node": 1}  # fmt: skip


def test_a_suggestion_is_a_job_where_the_script_tells_everything() -> None:
    script = """
import torch
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import ImageFolder
train = ImageFolder('/data/my images: train')
sampler = DistributedSampler(train, seed=5, drop_last=True)
loader = DataLoader(train, batch_size=32, sampler=sampler)
for epoch in range(7):
    sampler.set_epoch(epoch)
    for batch in loader: pass
"""
    found = analysis.analyze_text("my-script.py", script, JOB)
    assert found.job_yaml == """# from my-script.py:7, torch.utils.data.DataLoader
name: my-script
dataset:
  source: "/data/my images: train"
  format: image-folder
order:
  shuffle: torch-distributed
  seed: 5
  drop_last: true
  epochs: 7
batch_size: 32
# world: the launcher decides how many nodes and ranks there are
"""
    assert found.contradictions == []


def test_contradictions_with_a_job_name_both_sides_and_the_place() -> None:
    job = JOB | {"batch_size": 8, "epochs": 6, "seed": 8, "drop_last": False, "format": "raw"}
    ended = run_tool("--job", json.dumps(job), "unet3d.py")
    section = ended.stdout.partition("contradictions with the job\n")[2].partition("\n\n")[0]
    assert section.splitlines() == [
        "  batch_size: 8 in the job, 7 at unet3d.py:43 [likely: assigned at unet3d.py:10]",
        "  order.epochs: 6 in the job, 5 at unet3d.py:59 [likely: assigned at unet3d.py:10]",
        "  order.seed: 8 in the job, 9 at unet3d.py:43 [certain]",
        "  dataset.format: raw in the job, npz at unet3d.py:43 [likely: the file speaks of .npz]",
        "  order.drop_last: false in the job, True at unet3d.py:43 [certain]",
    ]
    job = JOB | {"batch_size": 96, "epochs": 30, "shuffle": "torch-random", "ranks_per_node": 8}
    found = analysis.analyze_text("lightning_module.py", text_of("lightning_module"), job).contradictions
    assert [(it.key, it.job, it.script) for it in found] == [
        ("order.shuffle", "torch-random", "published"),
        ("world", "1 nodes of 8 ranks", "2 nodes of 4 ranks"),
    ]
