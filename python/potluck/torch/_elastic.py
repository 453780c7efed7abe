"""Training that goes on while members come and go."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

import potluck


class ElasticDDP(nn.Module):
    """A model whose gradients are averaged over the present members of a cluster.

    >>> ddp = ElasticDDP(model, optimizer, potluck.join("home"))
    >>> while ddp.steps < 1000:
    ...     with ddp.step():
    ...         loss(ddp(inputs)).backward()

    At the end of the block the optimizer makes its step with the mean of the gradients: on all
    members or on none, as all gradients of a step are one operation. If a member has gone, the
    others make the step with their gradients; one that comes gets model and optimizer from those
    that are there. This needs no process group of PyTorch.

    The parameters are float32 in main memory. Buffers, such as the statistics of `BatchNorm`, are
    each member's own. A block has one backward pass.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        cluster: potluck.Cluster,
        *,
        codec: potluck.Codec | None = None,
        bucket_bytes: int = 1 << 20,
        timeout: float | None = None,
    ) -> None:
        """cluster: joined without `stateless`. timeout: how long a step waits for enough members,
        in seconds; then it raises `NotEnoughPeers` or TimeoutError."""
        super().__init__()
        self.module = module
        self.steps = 0
        """The steps that the model has behind it."""
        self.size = 0
        """The members of the last step, or 0."""
        self.rank = 0
        """This one's place among them."""
        self._optimizer, self._timeout = optimizer, timeout
        self._trained = [p for p in module.parameters() if p.requires_grad]
        for parameter in self._trained:
            if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
                kind = f"{parameter.dtype} on {parameter.device}"
                raise TypeError(f"ElasticDDP trains float32 parameters on the CPU, not {kind}")
        lengths = [parameter.numel() for parameter in self._trained]
        self._gradients = potluck.GradientSync(
            cluster, lengths, codec=codec, bucket_bytes=bucket_bytes
        )
        self._view: str | None = None
        self._has_state = False
        self._loaded = 0
        """How often the state of another member was loaded."""
        self._step: potluck.GradientStep | None = None
        self._pushed: set[int] = set()
        self._problem: potluck.Error | None = None
        for index, parameter in enumerate(self._trained):
            parameter.register_post_accumulate_grad_hook(partial(self._on_gradient, index))

    def forward(self, *arguments: Any, **options: Any) -> Any:
        return self.module(*arguments, **options)

    @contextmanager
    def step(self, weight: float | None = None) -> Iterator[None]:
        """The block computes gradients, and its end makes a step of the optimizer.

        weight: of this member's gradients in the mean, for example its number of samples. Raises an
        Error of potluck that does not allow to go on; the step is then not made.
        """
        self._optimizer.zero_grad(set_to_none=True)
        self._begin(weight)
        is_made = False
        try:
            yield
            while not self._finish():
                loaded = self._loaded
                self._begin(weight)
                if self._loaded != loaded:
                    # The gradients are those of weights that are no more.
                    return
                self._push_all()
            self._optimizer.step()
            self.steps += 1
            is_made = True
        finally:
            if not is_made:
                # The others' step ends with this one, and they compare their states before the
                # next.
                self._view = None
            self._step = None

    def _begin(self, weight: float | None) -> None:
        """Begins a step among members that have the same state."""
        while True:
            self._step, self._problem, self._pushed = None, None, set()
            try:
                self._catch_up()
                step = self._gradients.step(weight=weight, timeout=self._timeout)
            except potluck.Error as error:
                if not error.can_renew:
                    raise
                self._view = None
            else:
                self._step, self.rank, self.size = step, step.rank, step.size
                return

    def _catch_up(self) -> None:
        """The state of the member that is furthest along, if the members have changed."""
        context = self._gradients.context(self._timeout)
        if context.view == self._view:
            return
        saved = self._saved()
        newest = context.sync(self.steps, saved)
        if newest != saved:
            self._load(newest)
        # A sync moves nothing if the members have the same history: also if all are new, and each
        # has weights of its own.
        places = torch.zeros((context.size, 2), dtype=torch.int64, device="cpu")
        place = torch.tensor([int(self._has_state), self.steps], device="cpu")
        context.all_gather(place, out=places)
        told = [tuple(place) for place in places.tolist()]
        if len(set(told)) > 1 or not any(has_state for has_state, _ in told):
            self._load(self._broadcast(context, told.index(max(told))))
        self._has_state, self._view = True, context.view

    def _broadcast(self, context: potluck.Context, source: int) -> bytes:
        """The state of this rank."""
        saved = self._saved()
        length = torch.tensor([len(saved)], device="cpu")
        context.broadcast(length, source)
        state = bytearray(saved if context.rank == source else int(length))
        context.broadcast(state, source)
        return bytes(state)

    def _saved(self) -> bytes:
        file = io.BytesIO()
        optimizer = self._optimizer.state_dict()
        state = {"model": self.module.state_dict(), "optimizer": optimizer, "steps": self.steps}
        torch.save(state, file)
        return file.getvalue()

    def _load(self, saved: bytes) -> None:
        state = torch.load(io.BytesIO(saved), weights_only=True)
        self.module.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.steps, self._has_state = state["steps"], True
        self._loaded += 1

    def _on_gradient(self, index: int, parameter: torch.Tensor) -> None:
        """A gradient is complete, in the backward pass."""
        if self._step is None:
            return
        if index in self._pushed:
            raise RuntimeError("a step of ElasticDDP has one backward pass")
        self._push(index)

    def _push(self, index: int) -> None:
        self._pushed.add(index)
        if self._step is None or self._problem is not None:
            return
        parameter = self._trained[index]
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        if not parameter.grad.is_contiguous():
            parameter.grad = parameter.grad.contiguous()
        try:
            self._step.push(index, parameter.grad.reshape(-1))
        except potluck.Error as error:
            self._problem = error

    def _push_all(self) -> None:
        for index in reversed(range(len(self._trained))):
            if index not in self._pushed:
                self._push(index)

    def _finish(self) -> bool:
        """Whether the gradients are means now. If not, they are as they were."""
        self._push_all()
        try:
            if self._problem is not None:
                raise self._problem
            assert self._step is not None, "it has begun"
            self._step.finish()
        except potluck.Error as error:
            if not error.can_renew:
                raise
            self._view = None
            return False
        return True
