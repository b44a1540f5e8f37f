import click
import torch
import webdataset as wds
from torchvision import transforms

TRAIN = "s3://bucket/laion/{00000..01023}.tar"
VAL = "/data/laion/val-{000..007}.tar"

prepare = transforms.Compose([
    transforms.Resize(256),
    transforms.RandomCrop((224, 224)),
    transforms.ToTensor(),
])


def make(urls, batch, training):
    data = wds.WebDataset(urls, shardshuffle=100, nodesplitter=wds.split_by_node, cache_dir="/scratch/wds")
    if training:
        data = data.shuffle(5000)
    return data.decode("pil").to_tuple("jpg", "txt").map_tuple(prepare, str).batched(batch)


@click.command()
@click.option("--batch-size", default=512)
@click.option("--epochs", type=int, default=32)
@click.option("--workers", type=int, required=True)
def main(batch_size, epochs, workers):
    train_loader = wds.WebLoader(make(TRAIN, batch_size, True), batch_size=None, num_workers=workers)
    train_loader = train_loader.unbatched().shuffle(1000).batched(batch_size).with_epoch(1000)
    val_loader = wds.WebLoader(make(VAL, batch_size, False), batch_size=None, num_workers=2)
    model = torch.nn.Linear(8, 8).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for epoch in range(epochs):
        for images, texts in train_loader:
            optimizer.zero_grad()
            model(images).sum().backward()
            optimizer.step()
        evaluate(model, val_loader)
        torch.save(model.state_dict(), f"/ckpt/clip-{epoch}.pt")


def evaluate(model, loader):
    model.train(False)
    with torch.inference_mode():
        for images, texts in loader:
            model(images)


if __name__ == "__main__":
    main()
