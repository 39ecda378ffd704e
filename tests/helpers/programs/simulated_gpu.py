"""A simulated GPU: tensors report its device and are computed on the CPU. Like real GPU tensors they refuse
operations with tensors of another device."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

torch.inference_mode = torch.no_grad  # type: ignore[misc,assignment]  # whose tensors cannot be stood in for

aten = torch.ops.aten
# moves and copies between devices are what these are for; indices may be elsewhere
MAY_MIX = {aten._to_copy.default, aten.copy_.default, aten.index.Tensor, aten.index_put_.default}


class OnGpu(torch.Tensor):
    """A stand-in for `values`, a tensor of the CPU's."""

    values: torch.Tensor

    @staticmethod
    def __new__(cls, values: torch.Tensor) -> OnGpu:
        there: OnGpu = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            values.size(),
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            device="gpu:0",
        )
        there.values = values
        return there

    def tolist(self) -> Any:
        return self.values.tolist()

    def __reduce_ex__(self, protocol: Any) -> Any:  # map_location chooses the device when a file is read
        return self.values.__reduce_ex__(protocol)

    @classmethod
    def __torch_dispatch__(cls, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(operator, args, kwargs or {})


class _Everywhere(TorchDispatchMode):
    """Sees operators that get no tensor of the GPU as well: those that make one."""

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(operator, args, kwargs or {})


def compute(operator: Any, args: Any, kwargs: Any) -> Any:
    if operator is aten._fused_sdp_choice.default:
        return 0  # attention in plain operators: the fused ones belong to real devices
    tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
    there = [x for x in tensors if isinstance(x, OnGpu)]
    here = [x for x in tensors if not isinstance(x, OnGpu) and x.ndim > 0]
    if there and here and operator not in MAY_MIX:
        raise RuntimeError(f"{operator}: expected all tensors to be on the same device")
    device = kwargs.get("device")
    to_gpu = bool(there) if device is None else torch.device(device).type == "gpu"
    if operator in (aten.copy_.default, aten.index_put_.default):
        to_gpu = isinstance(args[0], OnGpu)
    if "device" in kwargs:
        kwargs = {**kwargs, "device": None if device is None else torch.device("cpu")}
    plain = tree_map(lambda x: x.values if isinstance(x, OnGpu) else x, (args, kwargs))
    out = operator(*plain[0], **plain[1])
    if to_gpu:
        out = tree_map(lambda x: OnGpu(x) if isinstance(x, torch.Tensor) else x, out)
    if not there:
        return out
    return return_and_correct_aliasing(operator, args, kwargs, out)


def simulate() -> torch.device:
    """Give this process a GPU of a new device type."""
    _setup_privateuseone_for_python_backend("gpu")
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device=) makes it here and moves it
    _Everywhere().__enter__()
    # a parameter that is moved stays the same object, as on a real device
    torch.__future__.set_swap_module_params_on_conversion(True)
    return torch.device("gpu:0")
