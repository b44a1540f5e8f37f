import torch


def save(model, epoch):
    torch.save(model.state_dict(), f"clicks-{epoch}.pt")
