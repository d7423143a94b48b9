"""The trainer's tensors in host memory while the sampler has the GPU.

Owns the moving; which tensors there are is the policy's and the engine's to say. Tensors that share
memory go on sharing it, and every tensor object stays the same, so nothing that holds one notices.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence

import torch
from attrs import define
from torch import Tensor

__all__ = ["Parking"]


@define(eq=False)
class _Block:
    """One piece of device memory: the tensors in it, and its copy in the host's memory."""

    tensors: list[Tensor]
    host: Tensor | None = None


class Parking:
    """Takes tensors off a device and brings them back.

    Args:
        frozen: What never changes: copied to the host once.
        changing: Gives what training changes, as it is then: an optimiser's state comes with its
            first step. Copied each time.
        device: Where they belong.
    """

    def __init__(
        self,
        frozen: Sequence[Tensor],
        changing: Callable[[], Sequence[Tensor]],
        *,
        device: torch.device,
    ) -> None:
        self._device = device
        self._frozen = _blocks(frozen, device)
        self._find_changing = changing
        self._changing: list[_Block] = []

    def leave(self) -> None:
        """Move all to the host, pinned where there is a GPU, and give the device's memory up."""
        self._changing = _blocks(self._find_changing(), self._device)
        for block in (*self._frozen, *self._changing):
            _to_host(block)
        gc.collect()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            torch.cuda.empty_cache()

    def come_back(self) -> None:
        """Bring all back to the device."""
        for block in (*self._frozen, *self._changing):
            assert block.host is not None
            _attach(block.tensors, block.host.to(self._device, copy=True, non_blocking=True))
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _blocks(tensors: Sequence[Tensor], device: torch.device) -> list[_Block]:
    """Return the tensors of the device, those that share memory together, each once."""
    blocks: dict[int, _Block] = {}
    for tensor in {id(tensor): tensor for tensor in tensors}.values():
        if tensor.device.type == device.type and tensor.numel():
            place = tensor.untyped_storage().data_ptr()
            blocks.setdefault(place, _Block([])).tensors.append(tensor)
    return list(blocks.values())


def _to_host(block: _Block) -> None:
    storage = block.tensors[0].untyped_storage()
    if block.host is None:
        block.host = torch.empty(
            storage.nbytes(), dtype=torch.uint8, pin_memory=storage.device.type == "cuda"
        )
        block.host.copy_(_bytes(storage))
    _attach(block.tensors, block.host)


def _bytes(storage: torch.UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _attach(tensors: Sequence[Tensor], block: Tensor) -> None:
    """Let tensors look into other memory of the same layout."""
    storage = block.untyped_storage()
    for tensor in tensors:
        tensor.data = torch.empty(0, dtype=tensor.dtype, device=block.device).set_(
            storage, tensor.storage_offset(), tensor.shape, tensor.stride()
        )
