"""Hugging Face's `Trainer`: the job's order, and after a resume the rest of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import needs

needs.module("torch")
transformers = needs.module("transformers")

import page  # noqa: E402
import torch  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from conftest import World, make_world  # noqa: E402
from tierfeed.huggingface import TierTrainerMixin, by_number  # noqa: E402
from tierfeed.torch import TierLoader  # noqa: E402
from tiny import Classifier, decode, order  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class TierTrainer(TierTrainerMixin, transformers.Trainer):
    pass


class PlainTrainer(transformers.Trainer):
    """As many have written it: a shuffled `DataLoader` of one's own."""

    def get_train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.train_dataset, batch_size=4, shuffle=True)


@pytest.fixture
def pictures(tmp_path: Path) -> World:
    return make_world(tmp_path, sizes=(192, 400), epochs=3)


def arguments(folder: Path, **keys: Any) -> transformers.TrainingArguments:
    return transformers.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=4, num_train_epochs=3, save_steps=5,
        logging_steps=1, learning_rate=0.05, report_to=[], use_cpu=True, disable_tqdm=True,
        remove_unused_columns=False, **keys,
    )  # fmt: skip


def losses(trainer: transformers.Trainer) -> list[tuple[int, float, float]]:
    log = trainer.state.log_history
    return [(it["step"], it["epoch"], it["loss"]) for it in log if "loss" in it]


def in_memory(world: World) -> list[dict[str, Any]]:
    """All samples, decoded: the dataset of a training without tierfeed."""
    samples = world.direct().read(range(50))
    return [decode(sample, sample.label) for sample in samples]


def test_a_trainer_reads_the_order_of_the_job_and_evaluates(pictures: World, tmp_path: Path) -> None:
    model = Classifier()
    loader = TierLoader(pictures.direct(), decode=decode)
    check = TierLoader(pictures.direct(), decode=decode)
    trainer = TierTrainer(model, arguments(tmp_path), train_dataset=loader, eval_dataset=check)
    trainer.train()
    assert model.seen == order(pictures, 3)
    loss = trainer.evaluate()["eval_loss"]
    other = TierLoader(pictures.direct(), decode=decode)
    assert trainer.evaluate(other)["eval_loss"] == pytest.approx(loss), "in another order"


@pytest.mark.parametrize(("checkpoint", "keys"), [(20, {}), (5, {"gradient_accumulation_steps": 2})])
def test_a_trainer_that_resumes_goes_on_as_if_nothing_had_been(
    pictures: World, tmp_path: Path, checkpoint: int, keys: dict[str, Any]
) -> None:
    def trained(resume: str | None) -> tuple[Classifier, transformers.Trainer]:
        model = Classifier()
        loader = TierLoader(pictures.direct(), decode=decode)
        trainer = TierTrainer(model, arguments(tmp_path / "out", **keys), train_dataset=loader)
        trainer.train(resume_from_checkpoint=resume)
        return model, trainer

    whole, uninterrupted = trained(None)
    rest, resumed = trained(str(tmp_path / "out" / f"checkpoint-{checkpoint}"))
    batches = checkpoint * keys.get("gradient_accumulation_steps", 1)
    assert whole.seen == order(pictures, 3)
    assert rest.seen == whole.seen[batches:]
    assert losses(resumed)[-1][0] == losses(uninterrupted)[-1][0]
    assert losses(resumed)[checkpoint:] == losses(uninterrupted)[checkpoint:]
    assert all(map(torch.equal, rest.parameters(), whole.parameters()))


def test_a_plain_loader_resumes_on_another_permutation(pictures: World, tmp_path: Path) -> None:
    """What the loader of tierfeed mends: a resumed training trains twice on some samples."""
    samples = in_memory(pictures)

    def trained(resume: str | None) -> list[list[int]]:
        model = Classifier()
        trainer = PlainTrainer(model, arguments(tmp_path / "out"), train_dataset=samples)
        trainer.train(resume_from_checkpoint=resume)
        return model.seen

    whole = trained(None)
    rest = trained(str(tmp_path / "out" / "checkpoint-20"))
    assert len(rest) == len(whole[20:])
    epoch = sorted(id for batch in whole[13:20] + rest[:6] for id in batch)
    assert epoch != list(range(50)), "the epoch that was interrupted is not a pass over the dataset"


def test_a_trainer_without_the_mixin_is_told(pictures: World, tmp_path: Path) -> None:
    loader = TierLoader(pictures.direct(), decode=decode)
    trainer = transformers.Trainer(Classifier(), arguments(tmp_path), train_dataset=loader)
    with pytest.raises(TypeError, match="TierLoader is a loader itself"):
        trainer.train()


def test_the_script_of_the_page_trains_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page.write_cifar(Path("cifar10"))
    for _ in ("from the start", "from step 4"):
        last = page.run("huggingface", "/data/cifar10", "cifar10").splitlines()[-1]
        assert last.startswith("6 steps, loss")
        shutil.rmtree("checkpoints/checkpoint-6")


@pytest.mark.parametrize("step", [2, 12])
def test_in_the_place_of_a_batch_of_which_nothing_is_left_comes_the_one_before(
    tmp_path: Path, step: int
) -> None:
    pictures = make_world(tmp_path, sizes=(192, 400), on_error="skip")
    feed = pictures.direct()
    order = pictures.torch_order(0, 0)
    for id in order[step]:
        pictures.files[id].unlink()
    given = [batch["number"].tolist() for batch in by_number(TierLoader(feed, decode=decode))]
    assert given == [*order[:step], order[step - 1], *order[step + 1 :]]


def test_batches_that_are_skipped_are_not_read(pictures: World) -> None:
    feed = pictures.direct()
    data_loader = by_number(TierLoader(feed, decode=decode))
    for path in pictures.files:
        path.rename(path.with_suffix(".moved"))
    skipped = transformers.trainer.skip_first_batches(data_loader, 13)
    assert list(skipped) == []
