from dataclasses import dataclass

EPOCHS = 12
SAVE_EVERY = 4


@dataclass
class Data:
    path: str = "/data/clicks.parquet"
    batch_size: int = 16384
    workers: int = 2
