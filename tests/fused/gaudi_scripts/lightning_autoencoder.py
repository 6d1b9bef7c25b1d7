"""A Lightning module as Gaudi users write it: HPUAccelerator and a fused optimizer."""

import logging
import warnings

import habana_frameworks.torch.core as htcore
import pytorch_lightning as pl
import torch
from habana_frameworks.torch.hpex.optimizers import FusedAdamW
from lightning_habana.pytorch.accelerator import HPUAccelerator
from lightning_habana.pytorch.plugins.precision import HPUPrecisionPlugin
from lightning_habana.pytorch.strategies import SingleHPUStrategy

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")


class AutoEncoder(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 4), torch.nn.ReLU(), torch.nn.Linear(4, 16))
        self.losses = []

    def training_step(self, batch, index):
        loss = torch.nn.functional.mse_loss(self.layers(batch), batch)
        self.losses.append(loss.item())
        return loss

    def on_before_optimizer_step(self, optimizer):
        htcore.mark_step()

    def configure_optimizers(self):
        return FusedAdamW(self.parameters(), lr=0.02)


pl.seed_everything(0, verbose=False)
model = AutoEncoder()
trainer = pl.Trainer(
    accelerator=HPUAccelerator(),
    devices=1,
    max_epochs=3,
    strategy=SingleHPUStrategy(),
    plugins=[HPUPrecisionPlugin(precision="bf16-mixed")],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(model, torch.utils.data.DataLoader(torch.randn(32, 16), batch_size=8))
assert sum(model.losses[-4:]) < sum(model.losses[:4]), model.losses
print("fitted", trainer.global_step)
