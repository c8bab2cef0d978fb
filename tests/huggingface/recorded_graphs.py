"""CUDA graphs for tests without a GPU: operations on the CPU are recorded and run again.

As on a GPU, capturing a step computes nothing that lasts, a replay reads and writes the memory of
the capture, and operations that need a number from the device cannot be captured.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.huggingface.conftest import torch

aten = torch.ops.aten
NEED_THE_HOST = {aten.item, aten.is_nonzero, aten.resolve_neg}
"""Operations that wait for the device, besides those with one of `TAGS`. The last is called by
`tolist` and `numpy`."""
TAGS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
"""How torch marks operations whose result, or its shape, has to be known on the host."""
GARBAGE = 77
"""What a capture leaves in the memory of its results: nothing was computed yet."""


def tensors_in(values: Any) -> list[Any]:
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


def memory_of(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def needs_the_host(function: Any, args: Any) -> bool:
    """Returns whether a GPU could not capture a call of an operation."""
    if function.overloadpacket in (aten.index, aten.index_put, aten.index_put_):
        return any(x.dtype == torch.bool for x in tensors_in(args[1]))
    if function.overloadpacket is aten.lift_fresh:  # copies numbers; one number is passed by value
        return bool(args[0].dim())
    return function.overloadpacket in NEED_THE_HOST or bool(TAGS & set(function.tags))


class Recorder(TorchDispatchMode):
    """Runs operations and records them with what they returned."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Any, Any, Any, list[Any]]] = []
        self.made: dict[int, Any] = {}
        """The results in new memory, by its address."""
        self.before: dict[int, tuple[Any, Any]] = {}
        """Tensors of before the capture that operations change, with a copy of what they held."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if needs_the_host(func, args):
            raise RuntimeError(f"{func}: operation not permitted when stream is capturing")
        inputs = tensors_in((args, kwargs))
        if func._schema.is_mutable:
            for tensor in inputs:
                if memory_of(tensor) not in self.made and memory_of(tensor) not in self.before:
                    whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
                    self.before[memory_of(tensor)] = whole, whole.clone()
        found = func(*args, **kwargs)
        results = tensors_in(found)
        known = {memory_of(tensor) for tensor in inputs} | set(self.before)
        self.made.update({memory_of(x): x for x in results if memory_of(x) not in known})
        self.operations.append((func, args, kwargs, results))
        return found


class RecordedGraph:
    """Stands for `torch.cuda.CUDAGraph`."""

    captured: int = 0
    replayed: int = 0
    _recorder: Any

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        del pool, capture_error_mode
        self._recorder = Recorder()
        self._recorder.__enter__()

    def capture_end(self) -> None:
        self._recorder.__exit__(None, None, None)
        for tensor, held in self._recorder.before.values():
            tensor.copy_(held)
        for tensor in self._recorder.made.values():
            tensor.fill_(GARBAGE)
        RecordedGraph.captured += 1

    def replay(self) -> None:
        for function, args, kwargs, results in self._recorder.operations:
            for old, new in zip(results, tensors_in(function(*args, **kwargs)), strict=True):
                if old.data_ptr() != new.data_ptr():
                    old.copy_(new)
        RecordedGraph.replayed += 1


class Stream:
    """Stands for `torch.cuda.Stream`."""

    def __init__(self, device: Any = None) -> None:
        del device

    def wait_stream(self, other: Any) -> None:
        """Returns at once: there is one stream."""


@pytest.fixture
def recorded_graphs(monkeypatch: pytest.MonkeyPatch) -> type[RecordedGraph]:
    """Lets steps on the CPU be captured; returns the class that counts captures and replays."""
    for name, stand_in in {
        "CUDAGraph": RecordedGraph,
        "Stream": Stream,
        "current_stream": Stream,
        "stream": lambda stream: nullcontext(),
        "graph_pool_handle": lambda: (0, 0),
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(RecordedGraph, "captured", 0)
    monkeypatch.setattr(RecordedGraph, "replayed", 0)
    return RecordedGraph
