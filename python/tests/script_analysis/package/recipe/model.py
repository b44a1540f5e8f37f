import torch


class Model(torch.nn.Module):
    def fit_one(self, loader):
        self.train()
        for batch in loader:
            self(batch).sum().backward()

    def score(self, loader):
        self.eval()
        for batch in loader:
            self(batch)
