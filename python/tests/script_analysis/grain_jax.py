import flax.linen as nn
import grain.python as grain
import jax
import orbax.checkpoint as ocp
from ml_collections import ConfigDict

config = ConfigDict(dict(batch=128))
SEED = 3


class Normalise(grain.MapTransform):
    def map(self, features):
        return {"image": features["image"] / 255.0, "label": features["label"]}


def make_loader(paths, train):
    source = grain.ArrayRecordDataSource(paths)
    sampler = grain.IndexSampler(
        num_records=len(source),
        shard_options=grain.ShardByJaxProcess(drop_remainder=True),
        shuffle=train,
        num_epochs=10 if train else 1,
        seed=SEED,
    )
    return grain.DataLoader(
        data_source=source,
        sampler=sampler,
        operations=[Normalise(), grain.Batch(batch_size=config.batch, drop_remainder=True)],
        worker_count=16,
        worker_buffer_size=2,
    )


def chained(paths):
    data = grain.MapDataset.source(grain.ArrayRecordDataSource(paths))
    return data.shuffle(seed=SEED).map(lambda sample: sample["image"]).batch(64).repeat(2)


@jax.jit
def step(state, batch):
    loss, gradients = jax.value_and_grad(lambda p: (p * batch["image"]).sum())(state)
    return state - gradients, loss


def main():
    jax.distributed.initialize()
    train_loader = make_loader(["/data/a-0.array_record", "/data/a-1.array_record"], True)
    eval_loader = make_loader("/data/a-eval.array_record", False)
    options = ocp.CheckpointManagerOptions(save_interval_steps=1000, max_to_keep=2)
    manager = ocp.CheckpointManager("/ckpt/a", options=options)
    state = jax.numpy.zeros(8)
    for number, batch in enumerate(train_loader):
        state, loss = step(state, batch)
        manager.save(number, args=ocp.args.StandardSave(state))
    for batch in eval_loader:
        step(state, batch)
    extra = chained("/data/b.array_record")


main()
