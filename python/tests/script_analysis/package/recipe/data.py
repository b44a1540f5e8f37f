import functools

import pyarrow.parquet as pq
import torch
import torch.utils.data as data


class Clicks(data.Dataset):
    def __init__(self, path, columns=("user", "item")):
        self.table = pq.ParquetFile(path)
        self.columns = columns

    def __len__(self):
        return self.table.metadata.num_rows

    @functools.lru_cache(maxsize=4)
    def group(self, number):
        return self.table.read_row_group(number, columns=list(self.columns))

    def __getitem__(self, index):
        return self.group(index // 6144)


def get_loaders(cfg):
    generator = torch.Generator()
    generator.manual_seed(21)
    clicks = Clicks(cfg.path)
    train = data.DataLoader(
        clicks, cfg.batch_size, True, num_workers=cfg.workers, generator=generator)
    test = data.DataLoader(Clicks(path="/data/test.parquet"), 2 * cfg.batch_size)
    return train, test
