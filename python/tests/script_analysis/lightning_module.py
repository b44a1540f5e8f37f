import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, random_split
from torchvision import transforms as T
from torchvision.datasets import CIFAR10, ImageFolder


class Pets(L.LightningDataModule):
    def __init__(self, root: str = "/data/pets", batch_size: int = 64, size: int = 192):
        super().__init__()
        self.save_hyperparameters()
        self.transform = T.Compose([
            T.Resize((size, size)),
            T.ToTensor(),
        ])

    def setup(self, stage=None):
        whole = ImageFolder(f"{self.hparams.root}/images", transform=self.transform)
        self.train_set, self.val_set = random_split(
            whole, [0.9, 0.1], generator=torch.Generator().manual_seed(7))
        self.test_set = CIFAR10("/data/cifar", train=False)

    def train_dataloader(self):
        return DataLoader(
            self.train_set, batch_size=self.hparams.batch_size, shuffle=True, num_workers=8,
            persistent_workers=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=self.hparams.batch_size * 2)

    def test_dataloader(self):
        return DataLoader(self.test_set, batch_size=self.hparams.batch_size)


class Classifier(L.LightningModule):
    def __init__(self, rate=1e-3):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.LazyLinear(37))
        self.rate = rate

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def validation_step(self, batch, index):
        x, y = batch
        self.log("loss", nn.functional.cross_entropy(self.net(x), y))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.rate)


if __name__ == "__main__":
    L.seed_everything(1234, workers=True)
    saving = ModelCheckpoint(dirpath="runs/pets", every_n_epochs=5, save_top_k=3, monitor="loss")
    trainer = L.Trainer(
        max_epochs=30, accelerator="gpu", devices=4, num_nodes=2, strategy="ddp", callbacks=[saving])
    pets = Pets(batch_size=96)
    trainer.fit(Classifier(), datamodule=pets)
    trainer.test(Classifier(), datamodule=pets)
