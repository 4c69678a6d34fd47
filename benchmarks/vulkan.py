"""GPU kernels on the Vulkan device of this machine: are their bits the definition's, and what does exactness cost.

Run: python -m benchmarks.vulkan [--rows 4096] [--columns 4096] [--repeats 20] [--model smollm2:135m]

With fused sums in integers, and with the device's own fma: in how many values the memory of a layer differs from what
the definition (runtime/reference.py) leaves; the first product of a shape, its compilation included; and a later one,
Q4_1 weights by one vector, copies of the operands included. On lavapipe, which is the CPU, these are no times of a GPU.
With a model: the same for its logits and pages after a prompt of five tokens, sums in integers only.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import Report, median_ms, parser
from tests.compiler.codegen.gpu.launching import run_gpu, run_model
from tests.compiler.codegen.gpu.steps import layer_step, two_sequences
from tests.compiler.codegen.gpu.vulkan import VulkanDevice, adapter
from tests.compiler.codegen.steps import random_pages, run_reference
from tests.images import make_batch, plain_image
from unsay import hub
from unsay.compiler.codegen.gpu.functions import LANES
from unsay.compiler.codegen.gpu.plan import plan_step
from unsay.compiler.codegen.gpu.products import Gemv, gemv
from unsay.isa.formats import DType, activation_bytes, weight_bytes
from unsay.runtime.reference import ReferenceExecutor


def main() -> None:
    """Print the device, and a line for each way to add."""
    made = parser(__doc__)
    made.add_argument("--rows", type=int, default=4096)
    made.add_argument("--columns", type=int, default=4096)
    made.add_argument("--repeats", type=int, default=20)
    made.add_argument("--model", help="a model to run whole, too")
    args = made.parse_args()
    report = Report(args)
    report.add("device", name=adapter().info["device"], driver=adapter().info["description"])
    for native in (False, True):
        device = VulkanDevice(native)
        layer = {"values_that_differ": _difference(device)}
        report.add("fma of the device" if native else "fma in integers", **layer, **_times(device, args))
    if args.model:
        _model(report, args.model)


def _model(report: Report, name: str) -> None:
    image: Any = plain_image(hub.resolve(name))
    pages = [np.zeros((1, image.manifest.spec.kv_layout.page_bytes), np.uint8) for _ in range(2)]
    batch = make_batch([(0, [1, 2, 3, 4, 5])], [[0]], [4])
    expected = np.array(ReferenceExecutor(image, pages[0].data).run(batch), np.float32)
    started = perf_counter()
    got = run_model(image, plan_step(image.program, image.manifest.spec), batch, pages[1], VulkanDevice())
    seconds = perf_counter() - started
    pairs = ((got, expected), (pages[0], pages[1]))
    report.add(name, values_that_differ=sum(_words_that_differ(a, b) for a, b in pairs), step_s=seconds)


def _words_that_differ(a: NDArray[np.generic], b: NDArray[np.generic]) -> int:
    words = [np.ascontiguousarray(array).view(np.int32) for array in (a, b)]
    return int((words[0] != words[1]).sum())


def _difference(device: VulkanDevice) -> int:
    """Words of a layer's memory, pages included, that are not the definition's."""
    step, batch = layer_step(DType.Q4_1, DType.Q8_0), two_sequences()
    pages = random_pages(step.rng, step.spec, batch)
    expected = run_reference(step, batch, pages)
    got = run_gpu(step, batch, pages, plan_step(step.program, step.spec), device)
    pairs = ((got.arena, expected.arena), (got.pages, expected.pages))
    return sum(_words_that_differ(a, b) for a, b in pairs)


def _times(device: VulkanDevice, args: object) -> dict[str, float]:
    rows, columns, repeats = (int(getattr(args, name)) for name in ("rows", "columns", "repeats"))
    kernel = gemv(Gemv(DType.Q4_1, rows, columns, DType.Q8A, capacity=1))
    sizes = (weight_bytes(DType.Q4_1, rows, columns), activation_bytes(DType.Q8A, 1, columns), 4 * rows)
    buffers = [np.zeros(size, np.uint8) for size in sizes]
    started = perf_counter()
    device.run(kernel, (-(-rows // LANES), 1), buffers)
    first = 1e3 * (perf_counter() - started)
    return {"first_ms": first, "ms": median_ms(lambda: device.run(kernel, (-(-rows // LANES), 1), buffers), repeats)}


if __name__ == "__main__":
    main()
