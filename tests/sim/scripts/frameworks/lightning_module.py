"""Lightning with Habana's accelerator."""

import logging
import sys
import warnings

import pytorch_lightning as pl
import torch
from lightning_habana.pytorch.accelerator import HPUAccelerator
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
torch.manual_seed(0)


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)
        )

    def training_step(self, batch, i):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.net(x), y)
        print("value", loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


loader = DataLoader(TensorDataset(torch.randn(12, 4, 4), torch.randint(0, 4, (12,))), batch_size=4)
acc = HPUAccelerator() if sys.argv[1] == "hpu" else "cpu"
trainer = pl.Trainer(
    accelerator=acc,
    devices=1,
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Net(), loader)
