import os
from pathlib import Path

import horovod.tensorflow.keras as hvd
import tensorflow as tf
import yaml

ROOT = Path("/data") / "cosmoflow"
SHAPE = [128, 128, 128, 4]


def decode(example):
    parsed = tf.io.parse_single_example(example, features=dict(
        x=tf.io.FixedLenFeature([], tf.string),
        y=tf.io.FixedLenFeature([4], tf.float32)))
    x = tf.io.decode_raw(parsed["x"], tf.int16)
    x = tf.cast(tf.reshape(x, SHAPE), tf.float32)
    return x, parsed["y"]


def construct(files, batch_size, shuffle=True, prefetch=4):
    data = tf.data.TFRecordDataset(files, compression_type="GZIP")
    data = data.shard(hvd.size(), hvd.rank())
    if shuffle:
        data = data.shuffle(len(files), seed=1, reshuffle_each_iteration=True)
    data = data.repeat(1)
    data = data.map(decode, num_parallel_calls=4)
    data = data.batch(batch_size, drop_remainder=True)
    return data.prefetch(prefetch).cache()


def main():
    hvd.init()
    with open("config.yaml") as file:
        config = yaml.safe_load(file)
    train_files = [str(ROOT / "train" / name) for name in os.listdir(ROOT / "train")]
    train = construct(train_files, config["batch_size"])
    test = construct([str(ROOT / "test" / "a.tfrecord"), str(ROOT / "test" / "b.tfrecord")], 1,
                     shuffle=False)
    model = tf.keras.Sequential([tf.keras.layers.Conv3D(8, 3), tf.keras.layers.Dense(4)])
    checkpoint = tf.train.Checkpoint(model=model)
    manager = tf.train.CheckpointManager(checkpoint, directory="/scratch/cosmo", max_to_keep=3)
    optimizer = tf.keras.optimizers.SGD()
    for epoch in range(4):
        for x, y in train:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x) - y) ** 2)
            optimizer.apply_gradients(
                zip(tape.gradient(loss, model.variables), model.variables))
        if hvd.rank() == 0:
            manager.save()
        print(epoch, model.evaluate(test))


main()
