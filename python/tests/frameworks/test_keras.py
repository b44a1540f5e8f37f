"""Keras under each backend trains on the batches of the job, in its order."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy
import page
import pytest
import records

import needs
import node
import tierfeed

PACKAGE = str(Path(tierfeed.__file__).parents[1])

pytestmark = pytest.mark.node

TRAINING = """
import json, os, sys, warnings
import keras, numpy
from tierfeed.keras import TierEpochs, TierPyDataset
source, keys = sys.argv[1], json.loads(sys.argv[2])
warnings.simplefilter("error", RuntimeWarning)

def dataset(**others):
    inputs_and_targets = lambda array, labels: (array[:, 1:], array[:, :1] / 50)
    given = {"record": "float32", "transform": inputs_and_targets, **keys, **others}
    return TierPyDataset(source, **given)

def model():
    it = keras.Sequential([keras.Input((31,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    # To trace and compile takes seconds, and says nothing of the batches.
    it.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse", run_eagerly=True)
    return it

whole, data = model(), dataset()
validation = dataset(epochs=1, shuffle=False)
history = whole.fit(data, epochs=3, shuffle=False, verbose=0, validation_data=validation)
before = model()
before.fit(dataset(), epochs=1, shuffle=False, verbose=0)
after = model()
after.set_weights(before.get_weights())
after.fit(dataset(initial_epoch=1), epochs=2, initial_epoch=1, shuffle=False, verbose=0)
later = dataset()
after.fit(later, epochs=3, initial_epoch=2, shuffle=False, verbose=0, callbacks=[TierEpochs(later)])
order = [data.loader.feed.order.batch(epoch, step, 0) for epoch in range(3) for step in range(len(data))]
print(json.dumps({
    "backend": keras.config.backend(),
    "whole": [it.tolist() for it in whole.get_weights()],
    "resumed": [it.tolist() for it in after.get_weights()],
    "validation": history.history["val_loss"][-1],
    "order": order,
}))
for it in (data, validation, later):
    it.close()
if keras.config.backend() == "jax":
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data = dataset(epochs=1)
        shuffled = model().fit(data, shuffle=True, verbose=0)
    assert any("pass shuffle=False to fit" in str(it.message) for it in caught), caught
    assert data.loader.stats()["batches"] < 7, "some came out of turn"
    data.close()
    for script in (sys.argv[3], sys.argv[3].replace("epochs=2", "epochs=3")):
        exec(compile(script, "keras.md", "exec"), {"__name__": "__main__"})
"""


STARTING_LATER = """
import json, sys
import keras
from tierfeed.keras import TierEpochs, TierPyDataset
source, keys = sys.argv[1], json.loads(sys.argv[2])
transform = lambda array, labels: (array[:, 1:], array[:, :1] / 50)
data = TierPyDataset(source, record="float32", transform=transform, **keys)
validation = TierPyDataset(dataset="validation", record="float32", transform=transform)
order = data.loader.feed.order
model = keras.Sequential([keras.Input((31,)), keras.layers.Dense(1, kernel_initializer="zeros")])
model.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse", run_eagerly=True)
first = [data.epoch, len(data)]
losses = []
for epoch in range(2):
    history = model.fit(data, shuffle=False, verbose=0, validation_data=validation)
    losses += history.history["val_loss"]
weights, refused = [it.tolist() for it in model.get_weights()], None
try:
    model.fit(data, epochs=1, shuffle=False, verbose=0, callbacks=[TierEpochs(data)])
except Exception as error:
    refused = str(error)
validation.set_epoch(1)
print(json.dumps({
    "first": first,
    "weights": weights,
    "validation": losses,
    "order": [order.batch(*place, 0) for place in [*zip([1] * 5, range(5)), *zip([2] * 7, range(7))]],
    "refused": refused,
    "told": validation.epoch,
}))
for it in (validation, data):
    it.close()
"""


def loss_of(dataset: records.Records, kernel: numpy.ndarray, bias: numpy.ndarray) -> float:
    """Over all rows, however they are batched."""
    return float(numpy.square(dataset.rows[:, 1:] @ kernel + bias - dataset.rows[:, :1] / 50).mean())


def by_hand(dataset: records.Records, order: list[list[int]]) -> list[numpy.ndarray]:
    """The same training in NumPy: steps of gradient descent over the batches of the order."""
    kernel, bias = numpy.zeros((31, 1)), numpy.zeros(1)
    for ids in order:
        inputs, targets = dataset.rows[ids][:, 1:], dataset.rows[ids][:, :1] / 50
        error = 2 * (inputs @ kernel + bias - targets) / len(ids)
        kernel, bias = kernel - 0.05 * inputs.T @ error, bias - 0.05 * error.sum(axis=0)
    return [kernel, bias]


def test_every_backend_trains_on_the_batches_of_the_order_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs.module("keras")
    monkeypatch.chdir(tmp_path)
    dataset = records.write(tmp_path)
    backends = [it for it in ("tensorflow", "jax", "torch") if importlib.util.find_spec(it)]
    page.write_cifar(tmp_path / "cifar10")
    script = page.script("keras", "/data/cifar10", str(tmp_path / "cifar10"))
    given = [sys.executable, "-c", TRAINING, str(dataset.path), json.dumps(dataset.keys()), script]
    place = {**os.environ, "PYTHONPATH": PACKAGE, "TF_CPP_MIN_LOG_LEVEL": "3", "XLA_FLAGS": ""}
    for backend in backends:
        (tmp_path / backend).mkdir()
    trainings = [
        subprocess.Popen(
            given,
            cwd=tmp_path / backend,
            env={**place, "KERAS_BACKEND": backend},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for backend in backends
    ]
    for backend, training in zip(backends, trainings, strict=True):
        said, error = training.communicate(timeout=node.TIMEOUT_S)
        assert training.returncode == 0, f"{backend}: {error}"
        said, _, of_the_page = said.partition("\n")
        found = json.loads(said)
        if backend == "jax":
            epochs = [line for line in of_the_page.splitlines() if line.startswith("Epoch ")]
            assert epochs == ["Epoch 1/2", "Epoch 2/2", "Epoch 3/3"], "it goes on when started again"
        assert found["backend"] == backend
        kernel, bias = by_hand(dataset, found["order"])
        for weights in (found["whole"], found["resumed"]):
            assert numpy.allclose(weights[0], kernel, atol=1e-5), backend
            assert numpy.allclose(weights[1], bias, atol=1e-5), backend
        assert found["validation"] == pytest.approx(loss_of(dataset, kernel, bias), rel=1e-4)


def test_a_job_that_starts_within_its_order_trains_on_the_rest_beside_its_validation(
    tmp_path: Path,
) -> None:
    needs.module("keras"), needs.module("jax")
    dataset, other = records.write(tmp_path), records.write(tmp_path / "validation", count=20)
    keys = dataset.keys(start={"epoch": 1, "samples": 16}, **other.as_validation())
    done = subprocess.run(
        [sys.executable, "-c", STARTING_LATER, str(dataset.path), json.dumps(keys)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": PACKAGE, "KERAS_BACKEND": "jax", "XLA_FLAGS": ""},
        capture_output=True,
        text=True,
        timeout=node.TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["first"] == [1, 5] and len(found["order"]) == 5 + 7
    assert sum(map(len, found["order"])) == 34 + 50
    kernel, bias = by_hand(dataset, found["order"])
    assert numpy.allclose(found["weights"][0], kernel, atol=1e-5)
    before = by_hand(dataset, found["order"][:5])
    losses = [loss_of(other, *weights) for weights in (before, (kernel, bias))]
    assert found["validation"] == pytest.approx(losses, rel=1e-4), "each epoch has one"
    assert found["told"] == 1, "a validation reads the epoch that it is told"
    assert "order.start" in found["refused"] and "initial_epoch=1" in found["refused"]
