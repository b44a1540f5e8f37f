"""Trains a convolutional network on a folder of images, on one GPU or on several."""
import argparse
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torchvision.datasets as datasets
import torchvision.models as models
import torchvision.transforms as transforms
from torch.utils.data import DataLoader, Subset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser(description="image classification")
parser.add_argument("data", nargs="?", default="/data/imagenet", help="where train and val lie")
parser.add_argument("-j", "--workers", default=4, type=int)
parser.add_argument("--epochs", default=90, type=int)
parser.add_argument("--start-epoch", default=0, type=int)
parser.add_argument("-b", "--batch-size", default=256, type=int)
parser.add_argument("--seed", default=None, type=int)
parser.add_argument("--dummy", action="store_true", help="train on made-up images")
parser.add_argument("--multiprocessing-distributed", action="store_true")
parser.add_argument("--world-size", default=-1, type=int)


def main():
    args = parser.parse_args()
    if args.seed is not None:
        torch.manual_seed(args.seed)
    gpus = torch.cuda.device_count()
    if args.multiprocessing_distributed:
        mp.spawn(worker, nprocs=gpus, args=(gpus, args))
    else:
        worker(0, gpus, args)


def worker(gpu, gpus, args):
    args.distributed = args.world_size > 1 or args.multiprocessing_distributed
    if args.distributed:
        dist.init_process_group(backend="nccl", init_method="env://")
    model = models.resnet50()
    model = nn.parallel.DistributedDataParallel(model.cuda(gpu), device_ids=[gpu])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    criterion = nn.CrossEntropyLoss()

    if args.dummy:
        train_dataset = datasets.FakeData(1281167, (3, 224, 224), 1000, transforms.ToTensor())
        val_dataset = datasets.FakeData(50000, (3, 224, 224), 1000, transforms.ToTensor())
    else:
        normalize = transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
        train_dataset = datasets.ImageFolder(
            os.path.join(args.data, "train"),
            transforms.Compose([
                transforms.RandomResizedCrop(224),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                normalize,
            ]),
        )
        val_dataset = datasets.ImageFolder(
            os.path.join(args.data, "val"),
            transforms.Compose([
                transforms.Resize(256),
                transforms.CenterCrop(224),
                transforms.ToTensor(),
                normalize,
            ]),
        )

    if args.distributed:
        train_sampler = DistributedSampler(train_dataset)
        val_sampler = DistributedSampler(val_dataset, shuffle=False, drop_last=True)
    else:
        train_sampler = None
        val_sampler = None

    train_loader = DataLoader(
        train_dataset, batch_size=args.batch_size, shuffle=(train_sampler is None),
        num_workers=args.workers, pin_memory=True, sampler=train_sampler)
    val_loader = DataLoader(
        val_dataset, batch_size=args.batch_size, shuffle=False,
        num_workers=args.workers, pin_memory=True, sampler=val_sampler)

    best = 0.0
    for epoch in range(args.start_epoch, args.epochs):
        if args.distributed:
            train_sampler.set_epoch(epoch)
        train(train_loader, model, criterion, optimizer)
        accuracy = validate(val_loader, model)
        is_best = accuracy > best
        best = max(accuracy, best)
        if not args.distributed or gpu == 0:
            save({"epoch": epoch + 1, "model": model.state_dict()}, is_best)


def train(loader, model, criterion, optimizer):
    model.train()
    for images, target in loader:
        loss = criterion(model(images.cuda()), target.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def validate(loader, model):
    model.eval()
    right = 0
    with torch.no_grad():
        for images, target in loader:
            right += (model(images.cuda()).argmax(1) == target.cuda()).sum().item()
    return right / len(loader.dataset)


def save(state, is_best, filename="checkpoint.pth.tar"):
    torch.save(state, filename)
    if is_best:
        torch.save(state, "model_best.pth.tar")


if __name__ == "__main__":
    main()
