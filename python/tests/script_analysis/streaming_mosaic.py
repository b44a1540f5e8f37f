from composer import Trainer
from composer.models import ComposerClassifier
from composer.utils.reproducibility import seed_all
from streaming import StreamingDataset, StreamingDataLoader
from torchvision.models import resnet18


class Images(StreamingDataset):
    def __init__(self, split, batch_size, shuffle):
        super().__init__(
            remote="s3://bucket/imagenet-mds",
            local="/scratch/imagenet-mds",
            split=split,
            shuffle=shuffle,
            shuffle_algo="py1br",
            shuffle_seed=42,
            num_canonical_nodes=8,
            cache_limit="200gb",
            batch_size=batch_size,
        )

    def __getitem__(self, index):
        sample = super().__getitem__(index)
        return sample["image"], sample["label"]


BATCH = 2 ** 8
seed_all(1)
train_set = Images("train", BATCH, shuffle=True)
val_set = Images("val", BATCH, shuffle=False)
train = StreamingDataLoader(train_set, batch_size=BATCH, num_workers=8, drop_last=True)
val = StreamingDataLoader(val_set, batch_size=BATCH, num_workers=8)
trainer = Trainer(
    model=ComposerClassifier(resnet18(), num_classes=1000),
    train_dataloader=train,
    eval_dataloader=val,
    max_duration="36ep",
    save_folder="s3://bucket/checkpoints",
    save_interval="1ep",
)
trainer.fit()
