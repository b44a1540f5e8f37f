import functools

import tensorflow as tf
from absl import app, flags

FLAGS = flags.FLAGS
flags.DEFINE_string("data_dir", "/data/imagenet-tfrecord", "shards")
flags.DEFINE_integer("batch_size", 400, "of each replica")
flags.DEFINE_integer("epochs", 60, "passes")
flags.DEFINE_boolean("cache", False, "keep decoded samples")

SIZE = 224
BUFFER = 16 * 1024


def parse(record, training):
    features = tf.io.parse_single_example(record, {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    })
    image = tf.io.decode_jpeg(features["image/encoded"], channels=3)
    image = tf.image.resize(image, [SIZE, SIZE])
    image = tf.cast(image, tf.float32) / 255.0
    if training:
        image = tf.image.random_flip_left_right(image)
    return image, features["image/class/label"]


def make_dataset(pattern, training, batch_size):
    files = tf.data.Dataset.list_files(pattern, shuffle=training, seed=3)
    dataset = files.interleave(
        tf.data.TFRecordDataset, cycle_length=16, num_parallel_calls=tf.data.AUTOTUNE)
    if FLAGS.cache:
        dataset = dataset.cache("/scratch/resnet.cache")
    if training:
        dataset = dataset.shuffle(BUFFER, seed=5)
        dataset = dataset.repeat()
    dataset = dataset.map(
        functools.partial(parse, training=training), num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.batch(batch_size, drop_remainder=training).prefetch(2)


def main(_):
    tf.random.set_seed(11)
    strategy = tf.distribute.MirroredStrategy()
    batch = FLAGS.batch_size * strategy.num_replicas_in_sync
    train = make_dataset(FLAGS.data_dir + "/train-*", True, batch)
    val = make_dataset(FLAGS.data_dir + "/validation-*", False, 200)
    with strategy.scope():
        model = tf.keras.applications.ResNet50(weights=None)
        model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    saving = tf.keras.callbacks.ModelCheckpoint("out/{epoch:03d}.keras", save_best_only=True)
    model.fit(train, epochs=FLAGS.epochs, steps_per_epoch=1281167 // batch,
              validation_data=val, callbacks=[saving])
    model.save("out/final.keras")


if __name__ == "__main__":
    app.run(main)
