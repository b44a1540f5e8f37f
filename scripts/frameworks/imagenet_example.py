"""Runs PyTorch's own `imagenet` example with tierfeed in place of its training loader, on the CPU.

usage: imagenet_example.py [EXAMPLES]     a clone of https://github.com/pytorch/examples

Without a clone it makes one. `imagenet-example.patch` holds the changed lines, for the commit below. The
example runs on a small generated image folder: by `python`, by `torchrun` with two ranks, by `tierfeed
run` with a job file, and by `python` again, killed in its second epoch and resumed from its checkpoint:
the losses must be those of the first run. It needs the environment `newest` (setup.sh), torchvision and
Pillow (which it installs beside it), and `tierfeed` (TIERFEED_EXE).
"""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
REPOSITORY = "https://github.com/pytorch/examples"
COMMIT = "77f55b912142e11fcfdf5b530231fb9c52f181e8"
PYTHON = str(TARGET / "frameworks" / "newest" / "bin" / "python")
PACKAGES = TARGET / "frameworks" / "imagenet-example"
TIERFEED = os.environ.get("TIERFEED_EXE", str(TARGET / "debug" / "tierfeed"))

ARGUMENTS = ["-a", "shufflenet_v2_x0_5", "--epochs", "3", "-j", "0", "-p", "1", "--seed", "3"]
TRAIN, VALIDATE, BATCH = 48, 16, 8

# The same loader under `tierfeed run`, whose job file says what is read.
OF_JOB = "TierLoader(decode=decode, decode_threads=args.workers)"

JOB = """\
name: imagenet
dataset: {{ source: "{source}", format: image-folder }}
order: {{ shuffle: torch-distributed, epochs: 3 }}
batch_size: {batch}
"""


def main() -> None:
    """Fetches, patches, runs and compares."""
    home = Path(tempfile.mkdtemp(prefix="tierfeed-imagenet-"))
    original = example(home)
    if not (PACKAGES / "torchvision").exists():
        pip = [PYTHON, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(PACKAGES)]
        subprocess.run([*pip, "torchvision", "pillow"], check=True)
    (home / "main.py").write_text(original)
    patch = HERE / "imagenet-example.patch"
    subprocess.run(["patch", "--quiet", str(home / "main.py"), str(patch)], check=True)
    patched = (home / "main.py").read_text()
    say_difference(original, patched)
    make_pictures(home / "data")

    plain = train(home, "plain", [PYTHON, "../main.py", *ARGUMENTS, "-b", str(BATCH), "../data"])
    torchrun = [PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    gloo = ["--dist-url", "env://", "--dist-backend", "gloo"]
    train(home, "torchrun", [*torchrun, "../main.py", *ARGUMENTS, *gloo, "-b", str(BATCH), "../data"])

    of_job = re.sub(r"TierLoader\(\n[^)]*\)", OF_JOB, patched)
    assert of_job.count(OF_JOB) == 1
    (home / "of_job.py").write_text(of_job)
    (home / "job.yaml").write_text(JOB.format(source=home / "data" / "train", batch=BATCH))
    run = [TIERFEED, "run", "../job.yaml", "--", PYTHON, "../of_job.py"]
    under_run = train(home, "tierfeed-run", [*run, *ARGUMENTS, "-b", str(BATCH), "../data"])
    assert under_run == plain, "tierfeed run gives other losses than python"

    killed = [PYTHON, "../main.py", *ARGUMENTS, "-b", str(BATCH), "../data"]
    train(home, "killed", killed, kill_at=(1, 3))
    resumed = train(home, "killed", [*killed, "--resume", "checkpoint.pth.tar"])
    rest = {place: loss for place, loss in plain.items() if place[0] >= 1}
    assert resumed == rest, f"a resumed training goes on otherwise: {resumed} instead of {rest}"
    print(f"killed in epoch 1 and resumed: the {len(rest)} losses of epochs 1 and 2 are the same")


def example(home: Path) -> str:
    """The example's script, of the commit that the patch is for."""
    clone = Path(sys.argv[1]) if len(sys.argv) > 1 else home / "examples"
    if not clone.exists():
        subprocess.run(["git", "clone", "--quiet", REPOSITORY, str(clone)], check=True)
    show = ["git", "-C", str(clone), "show", f"{COMMIT}:imagenet/main.py"]
    return subprocess.run(show, capture_output=True, text=True, check=True).stdout


def say_difference(original: str, patched: str) -> None:
    """Prints the changed lines and their number."""
    before, after = original.splitlines(), patched.splitlines()
    lines = list(difflib.unified_diff(before, after, "imagenet/main.py", "imagenet/main.py", n=0))[2:]
    print("\n".join(line for line in lines if not line.startswith("@@")))
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    print(f"{removed} of {len(before)} lines replaced by {added}")


def make_pictures(folder: Path) -> None:
    """Noise in four classes; no two pictures are alike."""
    code = (
        "import sys, random; sys.path.insert(0, sys.argv[1])\n"
        "from PIL import Image\n"
        "import pathlib\n"
        "random.seed(1)\n"
        f"for part, count in (('train', {TRAIN}), ('val', {VALIDATE})):\n"
        "    for number in range(count):\n"
        "        path = pathlib.Path(sys.argv[2], part, f'class{number % 4}', f'{number:03}.jpg')\n"
        "        path.parent.mkdir(parents=True, exist_ok=True)\n"
        "        Image.frombytes('RGB', (96, 80), random.randbytes(96 * 80 * 3)).save(path)\n"
    )
    subprocess.run([PYTHON, "-c", code, str(PACKAGES), str(folder)], check=True)


def train(
    home: Path, name: str, line: list[str], *, kill_at: tuple[int, int] | None = None
) -> dict[tuple[int, int], str]:
    """The losses of a run by epoch and step, as the example prints them."""
    folder = home / name
    folder.mkdir(exist_ok=True)
    paths = os.pathsep.join([str(ROOT / "python" / "python"), str(PACKAGES)])
    environment = {
        **os.environ, "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1", "TIERFEED_EXE": TIERFEED,
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    begin_s = time.monotonic()
    training = subprocess.Popen(
        line, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert training.stdout is not None and training.stderr is not None
    losses: dict[tuple[int, int], str] = {}
    printed = []
    for text in training.stdout:
        printed.append(text)
        found = re.search(r"Epoch: \[(\d+)\]\[\s*(\d+)/.*Loss (\S+)", text)
        if found is not None:
            losses[int(found[1]), int(found[2])] = found[3]
            if kill_at == (int(found[1]), int(found[2])):
                training.kill()
    stderr = training.stderr.read()
    expected = -9 if kill_at else 0
    assert training.wait() == expected, f"{name}: {''.join(printed)}{stderr}"
    took = f"{time.monotonic() - begin_s:.1f} s"
    print(f"{name}: {len(losses)} steps in {took}{', killed' if kill_at else ''}")
    return losses


if __name__ == "__main__":
    main()
