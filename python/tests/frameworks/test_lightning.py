"""Lightning: a loader is passed as it is, and a checkpoint has its position."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import needs

needs.module("torch")
lightning = needs.module("lightning")

import page  # noqa: E402
import torch  # noqa: E402

from conftest import World, make_world  # noqa: E402
from tierfeed.torch import TierLoader  # noqa: E402
from tiny import Classifier, decode, order  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.classifier = Classifier()
        self.losses: list[float] = []

    def training_step(self, batch: dict[str, Any], _: int) -> torch.Tensor:
        loss = self.classifier(**batch)["loss"]
        self.losses.append(float(loss))
        return loss

    def validation_step(self, batch: dict[str, Any], _: int) -> None:
        self.log("loss", self.classifier(**batch)["loss"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def fit(world: World, folder: Path, resume: Path | None = None) -> Module:
    module = Module()
    saves = lightning.pytorch.callbacks.ModelCheckpoint(
        folder, "{step}", every_n_train_steps=5, save_top_k=-1
    )
    trainer = lightning.Trainer(
        max_epochs=3, accelerator="cpu", callbacks=[saves], logger=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    validation = TierLoader(world.direct(), decode=decode)
    trainer.fit(module, TierLoader(world.direct(), decode=decode), validation, ckpt_path=resume)
    return module


def test_a_checkpoint_resumes_in_the_order_of_the_job(tmp_path: Path) -> None:
    world = make_world(tmp_path, sizes=(192, 400), epochs=5)
    whole = fit(world, tmp_path / "whole")
    assert whole.classifier.seen == order(world, 3)
    rest = fit(world, tmp_path / "rest", tmp_path / "whole" / "step=20.ckpt")
    assert rest.classifier.seen == whole.classifier.seen[20:]


def test_the_script_of_the_page_trains_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page.write_cifar(Path("cifar10"))
    script = page.script("lightning", "/data/cifar10", "cifar10")
    for text, expected in (
        (script.replace("max_epochs=2", "max_epochs=2, max_steps=4"), ["epoch 0: 3", "epoch 1: 4"]),
        (script, ["epoch 1: 6"]),
    ):
        exec(compile(text, "lightning.md", "exec"), {"__name__": "__main__"})
        said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch")]
        assert said == [f"{line} steps" for line in expected]
