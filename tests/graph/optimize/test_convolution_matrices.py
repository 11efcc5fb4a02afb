"""Convolutions of half floats by matrix instructions of subgroups: what windows read is gathered into shared memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from tests.graph.optimize.test_attention_matrices import multiplied
from tests.graph.optimize.test_half_products import by_matrices, computed
from tinyweb import Tensor
from tinyweb.dtype import dtypes
from tinyweb.graph.gpu_targets import amd_target, nvidia_target
from tinyweb.graph.lower import program_for
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target
from tinyweb.native_runtimes.cuda.compile import compile_cuda
from tinyweb.native_runtimes.cuda.resources import matrix_instructions
from tinyweb.render_c import CUDA, render_gpu
from tinyweb.tracing import capture

CHIPS: dict[str, Target] = {
    **{chip: nvidia_target(chip) for chip in ("sm_75", "sm_80", "sm_90")},
    **{chip: amd_target(chip) for chip in ("gfx90a", "gfx942", "gfx1100", "gfx1201")},
}


@dataclass(frozen=True)
class Window:
    """A convolution: batch, channels, image and window; `last`: channels lie side by side in memory."""

    batch: int
    channels: tuple[int, int]
    image: tuple[int, int]
    window: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    last: bool = False

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Image and weights, small integers: sums of their products are exact."""
        random = np.random.default_rng(sum(self.channels) + sum(self.image))
        shapes = (self.batch, self.channels[0], *self.image), (self.channels[1], self.channels[0], *self.window)
        x, w = (random.integers(-3, 4, shape).astype(np.float16) for shape in shapes)
        return x, w

    def of(self, x: Tensor, w: Tensor) -> Tensor:
        if self.last:
            x, w = x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2)
        out = x.float().conv2d(w.float(), stride=self.stride, padding=self.padding, dilation=self.dilation)
        return out.permute(0, 2, 3, 1).contiguous() if self.last else out

    def given(self) -> tuple[np.ndarray, ...]:
        """What is in memory."""
        x, w = self.arrays()
        return tuple(np.ascontiguousarray(a.transpose(0, 2, 3, 1)) for a in (x, w)) if self.last else (x, w)

    def wanted(self) -> np.ndarray:
        x, w = (torch.from_numpy(a.astype(np.float32)) for a in self.arrays())
        out = torch.nn.functional.conv2d(x, w, stride=self.stride, padding=self.padding, dilation=self.dilation).numpy()
        return out.transpose(0, 2, 3, 1) if self.last else out


WINDOWS = {
    "3 × 3": Window(1, (32, 32), (16, 16), (3, 3)),
    "short lines": Window(2, (24, 20), (7, 9), (3, 3)),
    "step": Window(1, (20, 33), (17, 18), (3, 3), (2, 2)),
    "other steps": Window(1, (16, 18), (19, 21), (3, 2), (2, 3), (1, 0)),
    "dilated": Window(1, (16, 16), (20, 20), (3, 3), dilation=(2, 3), padding=(2, 3)),
    "none beside": Window(1, (40, 24), (12, 13), (3, 3), padding=(0, 0)),
    "few channels": Window(1, (3, 32), (33, 20), (7, 7), (2, 2), (3, 3)),
    "one line": Window(3, (18, 16), (1, 40), (1, 5), padding=(0, 2)),
    "wide": Window(1, (16, 64), (4, 130), (3, 3)),
    "channels side by side": Window(1, (32, 48), (9, 17), (3, 3), last=True),
    "few channels side by side": Window(2, (3, 16), (15, 18), (3, 3), (2, 1), last=True),
    "odd channels side by side": Window(1, (40, 70), (8, 9), (3, 3), last=True),
}  # fmt: skip


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", WINDOWS)
def test_values(name: str, chip: str) -> None:
    s = WINDOWS[name]
    want = s.wanted()
    program, got = computed(s.of, s.given(), want.size, CHIPS[chip])
    assert by_matrices(program)
    np.testing.assert_array_equal(got.reshape(want.shape), want)


def program_of(channels: int, size: int, target: Target, last: bool = False) -> Program:
    """Of a window of 3 × 3 over half floats, which models with weights of float16 have."""
    image, window = (channels, size, size), (channels, channels, 3, 3)
    if last:
        image, window = (size, size, channels), (channels, 3, 3, channels)
    x, w = (Tensor.empty(*shape, dtype=dtypes.float16) for shape in ((1, *image), window))
    (call,) = capture(lambda: Window(1, (0, 0), (0, 0), (3, 3), last=last).of(x, w).realize(), target).calls
    return program_for(call.kernel, target)


SIZES = [(64, 64), (128, 32), (64, 20), (256, 8)]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("channels", "size"), SIZES)
def test_no_more_is_multiplied_than_is_wanted(channels: int, size: int, chip: str) -> None:
    """Lines that no tile divides are one axis."""
    wanted = channels * channels * 9 * size * size / 16**3
    assert wanted <= multiplied(program_of(channels, size, CHIPS[chip])) <= 1.3 * wanted


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("chip", ["sm_75", "sm_80", "sm_90"])
def test_registers(chip: str, last: bool) -> None:
    program = program_of(128, 32, CHIPS[chip], last)
    compiled = compile_cuda(render_gpu([program], CUDA), chip, program.name)
    found = compiled.resources[program.name]
    assert matrix_instructions(compiled.code) > 0 and not compiled.remarks
    assert found.spill_bytes == found.stack_bytes == 0


def test_copies_are_whole_vectors() -> None:
    """Of weights, which lie along all steps; channels that lie side by side too."""
    beside, last = (render_gpu([program_of(64, 32, CHIPS["sm_80"], last)], CUDA) for last in (False, True))
    assert all("copy_ahead<16>(&" in text and " p2[" not in text for text in (beside, last))
    assert " p1[" in beside and "copy_ahead<16>(&s0" in last and " p1[" not in last
