"""Large tensors without memory, while an engine's own code allocates, reads, casts and fills them.

A tensor of more than `limit` elements, which is none of indices, is one element that is expanded to its shape: it has shape, dtype and device of the tensor that it stands
for, and its elements read alike, as zero at first. Writing to a large tensor does nothing. Smaller ones, scales among them, are what they are.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

#: Elements of the largest tensor that is one. K and V have fewer scales, also by channel.
LIMIT = 1 << 16
#: The same of tensors that hold indices, such as the map of experts, and no weights.
INDICES = {torch.int64: 1 << 24, torch.bool: 1 << 24}
MADV_RANDOM = 1  # of Linux


def hollow(shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    element = torch.empty(1, dtype=dtype)
    element.untyped_storage().fill_(0)
    return element[0].expand(shape)


def on_meta(value: Any) -> Any:
    """The shape of a tensor; of a hollow one as if it lay in memory, for views that ask where elements lie."""
    if not isinstance(value, torch.Tensor):
        return value
    if 0 in value.stride():
        return torch.empty(value.shape, dtype=value.dtype, device="meta")
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


class HollowTensors(TorchDispatchMode):
    def __init__(self, limit: int = LIMIT) -> None:
        super().__init__()
        self.limit = limit

    def is_large(self, value: Any) -> bool:
        """Or a part of one, such as the rows of a fused bias that one tensor of the file is copied to."""
        return isinstance(value, torch.Tensor) and value.device.type != "meta" and (
            self.is_beyond(value) or value.numel() * value.element_size() > value.untyped_storage().nbytes())

    def is_beyond(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.numel() > INDICES.get(value.dtype, self.limit)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func._schema.is_mutable:
            return self.written(func, args, kwargs)
        is_view = any(result.alias_info is not None for result in func._schema.returns)
        if is_view:  # of a hollow tensor it is one, however small
            try:
                return func(*args, **kwargs)
            except RuntimeError:  # such as a view of another size of elements
                if not any(self.is_large(value) for value in tree_flatten((args, kwargs))[0]):
                    raise
        return self.made(func, args, kwargs, is_hollow=is_view)

    def written(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operation that writes to arguments."""
        schema = func._schema
        into = [value for i, argument in enumerate(schema.arguments) if argument.alias_info is not None and argument.alias_info.is_write
                for value in [args[i] if i < len(args) else kwargs.get(argument.name)]]  # fmt: skip
        if not any(self.is_large(value) for value in tree_flatten(into)[0]):
            return func(*args, **kwargs)
        results = into[: len(schema.returns)]
        return results[0] if len(schema.returns) == 1 else tuple(results) if schema.returns else None

    def made(self, func: Any, args: Any, kwargs: Any, is_hollow: bool) -> Any:
        """An operation that makes tensors: with large results, of their shapes alone."""
        inputs = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, torch.Tensor)]
        placed = {"device": torch.device("meta")} if any(argument.name == "device" for argument in func._schema.arguments) else {}
        places = {torch.device(kwargs["device"]).type} if kwargs.get("device") is not None else {value.device.type for value in inputs}
        makes_tensors = any("Tensor" in str(result.type) for result in func._schema.returns)
        if not (inputs or placed) or "meta" in places or not makes_tensors:
            return func(*args, **kwargs)
        try:
            shapes = func(*tree_map(on_meta, args), **tree_map(on_meta, kwargs) | placed)
        except Exception:  # noqa: BLE001  what depends on values, or has no shapes to tell, is computed
            return func(*args, **kwargs)
        if not is_hollow and not any(self.is_beyond(value) for value in tree_flatten(shapes)[0]):
            return func(*args, **kwargs)
        return tree_map(lambda value: hollow(value.shape, value.dtype) if isinstance(value, torch.Tensor) else value, shapes)


@contextlib.contextmanager
def hollow_tensors(limit: int = LIMIT) -> Iterator[None]:
    """In this thread and in those that start meanwhile, such as the loaders'. Mapped files are not read ahead: the first byte of a tensor is touched
    where its file is opened."""
    run, from_file = threading.Thread.run, torch.UntypedStorage.from_file

    def run_hollow(thread: threading.Thread) -> None:
        with HollowTensors(limit):
            run(thread)

    def map_file(*args: Any, **kwargs: Any) -> torch.UntypedStorage:
        storage = from_file(*args, **kwargs)
        ctypes.CDLL(None).madvise(ctypes.c_void_p(storage.data_ptr()), ctypes.c_size_t(storage.nbytes()), MADV_RANDOM)
        return storage

    threading.Thread.run = run_hollow  # type: ignore[method-assign]
    torch.UntypedStorage.from_file = map_file  # type: ignore[method-assign]
    try:
        with HollowTensors(limit):
            yield
    finally:
        threading.Thread.run = run  # type: ignore[method-assign]
        torch.UntypedStorage.from_file = from_file  # type: ignore[method-assign]
