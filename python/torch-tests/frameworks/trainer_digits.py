"""The Trainer of Hugging Face on handwritten digits, started by torchrun."""

import json
import tempfile

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from transformers import Trainer, TrainingArguments

import potluck.torch  # noqa: F401 - it registers the backend

# Accelerate keeps a process group that is there.
dist.init_process_group("potluck")


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, inputs, labels):
        logits = self.net(inputs)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


torch.manual_seed(1)
data = load_digits()
inputs = torch.tensor(data.images, dtype=torch.float32).reshape(-1, 64) / 16
labels = torch.tensor(data.target)
examples = [{"inputs": x, "labels": y} for x, y in zip(inputs, labels, strict=True)]
model = Digits()
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        folder,
        use_cpu=True,
        num_train_epochs=5,
        per_device_train_batch_size=32,
        learning_rate=0.01,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    Trainer(model, settings, train_dataset=examples).train()
right = (model.net(inputs).argmax(1) == labels).float().mean().item()
weights = sum(parameter.double().sum().item() for parameter in model.parameters())
told = {"rank": dist.get_rank(), "size": dist.get_world_size(), "right": right}
print(json.dumps(told | {"weights": weights}), flush=True)
dist.destroy_process_group()
