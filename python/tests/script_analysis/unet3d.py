"""Segments volumes; each case is one npz file with an image and a mask."""
import glob
import os

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torch.utils.data import RandomSampler

CONFIG = {
    "data_dir": "/data/kits19",
    "batch_size": 7,
    "epochs": 5,
    "workers": 4,
    "patch": (128, 128, 128),
}


class Cases(Dataset):
    def __init__(self, directory, patch):
        self.files = sorted(glob.glob(os.path.join(directory, "*.npz")))
        self.patch = patch

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        case = np.load(self.files[index])
        return crop(case["x"], self.patch), crop(case["y"], self.patch)


def crop(volume, patch):
    starts = [np.random.randint(0, have - want + 1) for have, want in zip(volume.shape, patch)]
    return volume[tuple(slice(s, s + w) for s, w in zip(starts, patch))]


def loader(name, train):
    cases = Cases(os.path.join(CONFIG["data_dir"], name), CONFIG["patch"])
    sampler = None
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        sampler = DistributedSampler(cases, seed=9, drop_last=True)
    options = dict(num_workers=CONFIG["workers"], pin_memory=True, prefetch_factor=2)
    return DataLoader(
        cases,
        batch_size=CONFIG["batch_size"] if train else 1,
        shuffle=train and sampler is None,
        sampler=sampler,
        drop_last=train,
        **options,
    )


def main():
    torch.manual_seed(0)
    model = torch.nn.Conv3d(1, 3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.8)
    training = loader("train", True)
    validation = loader("eval", False)
    for epoch in range(CONFIG["epochs"]):
        model.train()
        for image, mask in training:
            loss = torch.nn.functional.cross_entropy(model(image), mask)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if (epoch + 1) % 2 == 0:
            torch.save(model.state_dict(), f"unet3d-{epoch}.pt")
        if epoch % 5 == 0:
            score(model, validation)


@torch.no_grad()
def score(model, cases):
    model.eval()
    for image, mask in cases:
        model(image)


if __name__ == "__main__":
    main()
