"""Lightning on handwritten digits, started by torchrun."""

import json

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import potluck.torch  # noqa: F401 - it registers the backend


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def training_step(self, batch, _):
        inputs, labels = batch
        return nn.functional.cross_entropy(self.net(inputs), labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


lightning.seed_everything(1)
data = load_digits()
inputs = torch.tensor(data.images, dtype=torch.float32).reshape(-1, 64) / 16
labels = torch.tensor(data.target)
model = Digits()
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=2,
    strategy=DDPStrategy(process_group_backend="potluck"),
    max_epochs=5,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(model, DataLoader(TensorDataset(inputs, labels), batch_size=32, shuffle=True))
right = (model.net(inputs).argmax(1) == labels).float().mean().item()
weights = sum(parameter.double().sum().item() for parameter in model.parameters())
told = {"rank": trainer.global_rank, "size": trainer.world_size, "right": right}
print(json.dumps(told | {"weights": weights}), flush=True)
