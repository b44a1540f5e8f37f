import os

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

data_dir = "/data/openwebtext"
batch_size = 12
block_size = 1024
max_iters = 600_000
eval_interval = 2_000
eval_iters = 200

ddp = int(os.environ.get("RANK", -1)) != -1
torch.manual_seed(1337)


def get_batch(split):
    name = "train.bin" if split == "train" else "val.bin"
    data = np.memmap(os.path.join(data_dir, name), dtype=np.uint16, mode="r")
    starts = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy(data[i:i + block_size].astype(np.int64)) for i in starts])
    y = torch.stack(
        [torch.from_numpy(data[i + 1:i + 1 + block_size].astype(np.int64)) for i in starts])
    return x.pin_memory().cuda(non_blocking=True), y.cuda()


@torch.no_grad()
def estimate_loss(model):
    model.eval()
    losses = {}
    for split in ["train", "val"]:
        losses[split] = sum(model(*get_batch(split)).item() for _ in range(eval_iters))
    model.train()
    return losses


model = torch.nn.Transformer().cuda()
if ddp:
    torch.distributed.init_process_group("nccl")
    model = DDP(model)
optimizer = torch.optim.AdamW(model.parameters())
iteration = 0
while iteration < max_iters:
    if iteration % eval_interval == 0:
        losses = estimate_loss(model)
        torch.save({"model": model.state_dict(), "iteration": iteration}, "out/ckpt.pt")
    x, y = get_batch("train")
    loss = model(x, y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    iteration += 1
