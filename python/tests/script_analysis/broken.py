# Half of this is Python 2, half is cut off in the middle.
import torch
from torch.utils.data import *
from torch.utils.data import DistributedSampler as Dealer

print "starting"
BATCH = 32

try:
    import h5py
except ImportError, error:
    h5py = None

class Volumes(Dataset):
    def __getitem__(self, index):
        with h5py.File("/data/volumes.h5", "r") as file:
            return torch.from_numpy(file["x"][index])

loader = DataLoader(Volumes(), BATCH, sampler=Dealer(Volumes(), 8, 0))
shuffled = DataLoader(Volumes(), BATCH, shuffle=unknown_flag, batch_sampler=None

for epoch in range(3):
    for x in loader:
        x.sum().backward(
