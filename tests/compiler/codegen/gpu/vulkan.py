"""WGSL kernels on a Vulkan device: Debian's mesa-vulkan-drivers has one that is the CPU, lavapipe."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import wgpu

from tests.compiler.codegen.gpu.launching import Bytes
from unsay.compiler.codegen.gpu.c_text import wgsl
from unsay.compiler.codegen.gpu.lanes import Kernel

os.environ.setdefault("GALLIVM_PERF", "nopt")
"""Lavapipe compiles in half the time; what it computes is the same."""

_STORAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC  # type: ignore[attr-defined]


@cache
def adapter() -> Any:
    """The Vulkan device, lavapipe where there are several."""
    found = [one for one in wgpu.gpu.enumerate_adapters_sync() if one.info["backend_type"] == "Vulkan"]
    assert found, "no Vulkan device: install mesa-vulkan-drivers (scripts/test-packages)"
    return sorted(found, key=lambda one: "llvmpipe" not in one.info["device"])[0]


class VulkanDevice:
    """Makes a pipeline of each kernel once; buffers live for one launch."""

    def __init__(self, native_fma: bool = False) -> None:
        self._device = adapter().request_device_sync()
        self._native_fma = native_fma
        self._pipelines: dict[str, Any] = {}

    def run(self, kernel: Kernel, grid: tuple[int, int], buffers: Sequence[Bytes]) -> None:
        """Copies in, one dispatch, copies of what it writes out."""
        device, pipeline = self._device, self._pipeline(kernel)
        copies = [device.create_buffer_with_data(data=buffer, usage=_STORAGE) for buffer in buffers]
        entries = [{"binding": place, "resource": {"buffer": copy}} for place, copy in enumerate(copies)]
        encoder = device.create_command_encoder()
        compute = encoder.begin_compute_pass()
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries))
        compute.dispatch_workgroups(*grid, 1)
        compute.end()
        device.queue.submit([encoder.finish()])
        for memory, buffer, copy in zip(kernel.buffers, buffers, copies, strict=True):
            if memory.writes:
                buffer[:] = np.frombuffer(device.queue.read_buffer(copy), np.uint8)

    def _pipeline(self, kernel: Kernel) -> Any:
        if kernel.name not in self._pipelines:
            module = self._device.create_shader_module(code=wgsl(kernel, self._native_fma))
            self._pipelines[kernel.name] = self._device.create_compute_pipeline(
                layout="auto", compute={"module": module, "entry_point": kernel.name}
            )
        return self._pipelines[kernel.name]
