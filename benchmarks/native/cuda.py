"""NVIDIA's GPUs: products, attention and decode beside PyTorch (cuBLAS, SDPA, CUDA graphs) and tinygrad, and reading
memory beside copies.

All sides make the same inputs from the same seeds. Contestants take what they do from the name of a task, so that one
process of each serves all rows: `python -m benchmarks cuda` takes about two minutes. Without a GPU rows say so.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.checkpoints import SHAPES
from benchmarks.contestant import Absent, Arrays, Contestant
from benchmarks.harness import Peer, Row, Side, Unit, close
from benchmarks.native.kernels import inputs, timed
from benchmarks.native.llama import CONTEXT, IDS_ALONE, PROMPT, prompt, same_logits, tinygrad_application
from benchmarks.native.repeated import Repeated, rounding, widened
from benchmarks.worker import Worker

HEADS, HEAD_WIDTH = 16, 128  # of attention
DECODED = 32  # tokens in a turn
DIFFERENT = 1024  # rows of a matrix
SAMPLE = 256  # rows of a result that are compared
WARM = 3
SEARCH_SECONDS = 40.0
TORCH_TYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "e4m3": "float8_e4m3fn"}
NARROW = ("e4m3",)


def arrays(operation: str, sizes: list[int]) -> list[Any]:
    """float32 inputs: matmul of (n, n) matrices, matvec of (rows, columns), attention over n positions of heads."""
    if operation == "attention":
        random = np.random.default_rng(0)
        return [random.standard_normal((HEADS, sizes[0], HEAD_WIDTH), dtype=np.float32) for _ in range(3)]
    if operation == "matvec":  # as many bytes as that, in a moment
        matrix, x = inputs(operation, [DIFFERENT, sizes[1]])
        return [np.tile(matrix, (sizes[0] // DIFFERENT, 1)), x]
    return inputs(operation, sizes * 3 if operation == "matmul" else sizes)


def parts(task: str) -> tuple[str, str, list[int]]:
    """ "matmul f32 4096" -> operation, type of numbers, sizes."""
    operation, kind, size = task.split(" ")[:3]
    return operation, kind, [int(n) for n in size.split("x")]


class Ours(Contestant):
    """Tasks: "OPERATION TYPE SIZES", of matmul, matvec and attention; "… search" looks for a better schedule first."""

    def __init__(self, device: str = "CUDA") -> None:
        from tinyweb.device import Device
        from tinyweb.errors import TinywebError

        self.name = device
        try:
            self.device = Device[device]
        except TinywebError as error:
            raise Absent(str(error)) from error
        self.steps: dict[str, tuple[Callable[[], Any], Any]] = {}

    def _step(self, task: str) -> tuple[Callable[[], Any], Any]:
        if task not in self.steps:
            from tinyweb.dtype import BY_NAME
            from tinyweb.tensor import Tensor
            from tinyweb.tracing import jit

            self.steps.clear()  # the memory of the last task
            operation, kind, sizes = parts(task)
            given = [Tensor(a, device=self.name).cast(BY_NAME[kind]).realize() for a in arrays(operation, sizes)]

            def compute() -> Any:
                if operation == "attention":
                    q, k, v = given
                    return q.scaled_dot_product_attention(k, v)
                if kind in NARROW:  # numbers to move and to multiply; rows times rows, as all have it
                    return given[0].float() @ given[1].float().T
                return given[0] @ given[1]

            out = compute().realize()

            def plain() -> Any:
                return out.assign(compute())

            step = jit(plain)
            step()
            if task.endswith(" search"):
                from tinyweb.tuning import tune

                with tempfile.TemporaryDirectory() as folder:  # other rows do without what is found
                    tune(plain, SEARCH_SECONDS, path=Path(folder) / "found.json")
            for _ in range(WARM):
                step()
            self.steps[task] = step, out
        return self.steps[task]

    def run(self, task: str, repeat: int) -> float:
        step, _ = self._step(task)
        self.device.runtime.synchronize()
        return timed(step, repeat, self.device.runtime.synchronize)

    def result(self, task: str) -> Arrays:
        step, out = self._step(task)
        step()
        return {"out": out[..., :SAMPLE, :].float().numpy() if len(out.shape) > 1 else out.float().numpy()}

    def notes(self, task: str) -> dict[str, Any]:
        return {"device": getattr(self.device.runtime, "device_name", self.name)}


class Torch(Contestant):
    """The same by PyTorch. Tasks of Ours, and "copy NBYTES": reading as many bytes at the speed of copies."""

    def __init__(self) -> None:
        self.torch = cuda_torch()
        self.steps: dict[str, Callable[[], Any]] = {}

    def versions(self) -> dict[str, str]:
        return {"torch": version("torch")}

    def _step(self, task: str) -> Callable[[], Any]:
        torch = self.torch
        if task not in self.steps:
            self.steps.clear()
            if task.startswith("copy"):
                source = torch.empty(int(task.split()[1]), dtype=torch.uint8, device="cuda")
                to = torch.empty_like(source)
                self.steps[task] = lambda: to.copy_(source)
            else:
                operation, kind, sizes = parts(task)
                dtype = getattr(torch, TORCH_TYPES[kind])
                given = [torch.from_numpy(a).cuda().to(dtype) for a in arrays(operation, sizes)]
                if operation == "attention":
                    q, k, v = (x[None] for x in given)
                    self.steps[task] = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v)[0]
                elif kind in NARROW:
                    one = torch.ones((), device="cuda")
                    self.steps[task] = lambda: torch._scaled_mm(
                        given[0], given[1].T, scale_a=one, scale_b=one, out_dtype=torch.float32
                    )
                else:
                    self.steps[task] = lambda: given[0] @ given[1]
            for _ in range(WARM):
                self.steps[task]()
        return self.steps[task]

    def run(self, task: str, repeat: int) -> float:
        step = self._step(task)
        self.torch.cuda.synchronize()
        # a copy reads and writes: what only reads may take half of its time
        return timed(step, repeat, self.torch.cuda.synchronize) / (2 if task.startswith("copy") else 1)

    def result(self, task: str) -> Arrays | None:
        if task.startswith("copy"):
            return None
        out = self._step(task)()
        return {"out": (out[..., :SAMPLE, :] if out.ndim > 1 else out).float().cpu().numpy()}

    def notes(self, task: str) -> dict[str, Any]:
        return {"device": self.torch.cuda.get_device_name()}


def cuda_torch() -> Any:
    """PyTorch with a CUDA device, float32 in float32; Absent."""
    import torch

    if not torch.cuda.is_available():
        raise Absent("no CUDA device, or PyTorch without CUDA")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_grad_enabled(False)
    return torch


class Tinygrad(Contestant):
    """tinygrad's CUDA device, float32 products; its beam search over kernels has width 2."""

    def __init__(self, device: str = "CUDA"):
        self.tensor = opened_tinygrad(device, beam=2)
        self.steps: dict[str, Any] = {}

    def versions(self) -> dict[str, str]:
        return {"tinygrad": version("tinygrad")}

    def _step(self, task: str) -> Any:
        if task not in self.steps:
            from tinygrad.engine.jit import TinyJit

            operation, kind, sizes = parts(task)
            given = [self.tensor(a).cast(kind).realize() for a in arrays(operation, sizes)]
            self.steps = {task: TinyJit(lambda: (given[0] @ given[1]).realize())}
            for _ in range(WARM):
                self.steps[task]()
        return self.steps[task]

    def run(self, task: str, repeat: int) -> float:
        from tinygrad.device import Device

        return timed(self._step(task), repeat, Device[Device.DEFAULT].synchronize)

    def result(self, task: str) -> Arrays:
        return {"out": self._step(task)()[:SAMPLE].float().numpy()}


def opened_tinygrad(device: str, beam: int) -> Any:
    """tinygrad's Tensor on a device; Absent where it does not open."""
    os.environ |= {"DEV": device, "BEAM": str(beam)}  # read when tinygrad is imported
    from tinygrad.device import Device
    from tinygrad.tensor import Tensor

    try:
        Device[device]
    except Exception as error:
        raise Absent(f"tinygrad's {device} does not open here: {str(error).splitlines()[0]}") from error
    return Tensor


# -- decode ------------------------------------------------------------------------------------------------------------
class OurLlama(Contestant):
    """`models.chat.Chat`: seconds of a greedy token behind a prompt, of DECODED that are asked for together."""

    def __init__(self, shape: str, quant: str, device: str = "CUDA"):
        from tinyweb.device import Device
        from tinyweb.errors import TinywebError
        from tinyweb.models import load
        from tinyweb.models.chat import Chat, Settings

        try:
            self.runtime = Device[device].runtime
        except TinywebError as error:
            raise Absent(str(error)) from error
        with rounding():
            self.model = load(Repeated(shape), quant, CONTEXT, device=device)
        self.chat = Chat(self.model, IDS_ALONE)
        self.ids, self.once = prompt(shape, PROMPT), Settings(max_tokens=1, temperature=0)

    def _read(self) -> int:
        self.chat.forget()
        return next(self.chat.generate_ids(self.ids, self.once))

    def run(self, task: str, repeat: int) -> float:
        seconds = 0.0
        for _ in range(repeat):
            self._read()
            self.runtime.synchronize()
            begin = time.perf_counter()
            for position in range(PROMPT, PROMPT + DECODED):
                self.chat._launch("decode", start_pos=position)
                self.chat._launch("greedy", start_pos=position)
            self.runtime.synchronize()
            seconds += (time.perf_counter() - begin) / DECODED
        return seconds

    def result(self, task: str) -> Arrays:
        token = self._read()
        return {"first": self.model.logits.numpy()[0], "token": np.array(token)}

    def notes(self, task: str) -> dict[str, Any]:
        plan = self.chat._plans["decode"]
        return {"kernels": len(plan.calls)}


class TorchLlama(Contestant):
    """A Llama in half floats, projections fused, with a cache of fixed size; on a GPU each token is one CUDA graph."""

    def __init__(self, shape: str, quant: str, device: str = "cuda"):
        import torch

        self.torch = cuda_torch() if device == "cuda" else torch
        self.device = device
        self.shape = SHAPES[shape]
        source = Repeated(shape)

        def read(name: str, bits: int | None = None) -> Any:
            values = source.read(name + ".weight")
            return torch.from_numpy(values if bits is None else widened(values, bits)).to(device)

        bits = {"f16": None, "q8": 8, "q4": 4}[quant]
        one: dict[str, Any] = {}

        def matrix(layer: int, *names: str) -> Any:
            key = " ".join(names)
            if key not in one:
                one[key] = torch.cat([read(f"model.layers.0.{n}", bits) for n in names])
            return one[key].clone() if layer else one[key]

        self.embedding = read("model.embed_tokens", None if bits is None else 8)
        self.layers = [
            SimpleNamespace(
                qkv=matrix(i, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
                out=matrix(i, "self_attn.o_proj"),
                up=matrix(i, "mlp.gate_proj", "mlp.up_proj"),
                down=matrix(i, "mlp.down_proj"),
                norms=[read(f"model.layers.{i}.{n}_layernorm") for n in ("input", "post_attention")],
                cache=torch.zeros(
                    2, 1, self.shape.num_key_value_heads, CONTEXT, self.shape.head_dim, dtype=torch.half, device=device
                ),
            )
            for i in range(self.shape.num_hidden_layers)
        ]
        self.norm = read("model.norm")
        half = torch.arange(0, self.shape.head_dim, 2, device=device) / self.shape.head_dim
        angles = torch.arange(CONTEXT, device=device)[:, None] * self.shape.rope_theta**-half
        angles = torch.cat([angles, angles], 1)
        self.cos, self.sin = angles.cos(), angles.sin()
        self.token = torch.zeros(1, dtype=torch.long, device=device)
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        self.places = torch.arange(CONTEXT, device=device)
        self.ids = prompt(shape, PROMPT)
        self.step = self._captured() if device == "cuda" else self._forward

    def versions(self) -> dict[str, str]:
        return {"torch": version("torch")}

    def _norm(self, x: Any, weight: Any) -> Any:
        return self.torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, self.shape.rms_norm_eps)

    def _turn(self, x: Any) -> Any:
        a, b = x.chunk(2, -1)
        cos, sin = self.cos[self.position], self.sin[self.position]
        return (x * cos + self.torch.cat([-b, a], -1) * sin).half()

    def _forward(self) -> None:
        f, s = self.torch.nn.functional, self.shape
        x = self.embedding[self.token]
        mask = (self.places <= self.position)[None]
        for layer in self.layers:
            heads = f.linear(self._norm(x, layer.norms[0]), layer.qkv).view(-1, s.head_dim)
            q, k, v = heads.split([s.num_attention_heads, s.num_key_value_heads, s.num_key_value_heads])
            layer.cache[0].index_copy_(2, self.position, self._turn(k)[None, :, None])
            layer.cache[1].index_copy_(2, self.position, v[None, :, None])
            keys, values = layer.cache
            attended = f.scaled_dot_product_attention(
                self._turn(q)[None, :, None], keys, values, attn_mask=mask, enable_gqa=True
            )
            x = x + f.linear(attended.reshape(1, -1), layer.out)
            gate, up = f.linear(self._norm(x, layer.norms[1]), layer.up).chunk(2, -1)
            x = x + f.linear(f.silu(gate) * up, layer.down)
        self.logits = f.linear(self._norm(x, self.norm), self.embedding)
        self.token.copy_(self.logits.argmax(-1))
        self.position += 1

    def _captured(self) -> Any:
        torch = self.torch
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(WARM):
                self._forward()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._forward()
        return graph.replay

    def _read(self) -> None:
        self.position.zero_()
        for token in self.ids:
            self.token.fill_(token)
            self.step()

    def run(self, task: str, repeat: int) -> float:
        seconds = 0.0
        for _ in range(repeat):
            self._read()
            self.torch.cuda.synchronize()
            seconds += timed(self.step, DECODED, self.torch.cuda.synchronize) / DECODED
        return seconds

    def result(self, task: str) -> Arrays:
        self._read()
        return {"first": self.logits[0].float().cpu().numpy(), "token": self.token.cpu().numpy()[0]}


class TinygradLlama(Contestant):
    """tinygrad's language model application without search over kernels, with random half floats: its speed alone."""

    def __init__(self, shape: str, device: str = "CUDA"):
        tensor, s = opened_tinygrad(device, beam=0), SHAPES[shape]
        application = tinygrad_application()
        self.model = application.Transformer(
            application.TransformerConfig(
                num_blocks=s.num_hidden_layers, dim=s.hidden_size, hidden_dim=s.intermediate_size,
                n_heads=s.num_attention_heads, n_kv_heads=s.num_key_value_heads, norm_eps=s.rms_norm_eps,
                vocab_size=s.vocab_size, head_dim=s.head_dim, rope_theta=s.rope_theta, rope_dim=s.head_dim,
                v_head_dim=s.head_dim, max_context=CONTEXT,
            )
        )  # fmt: skip
        from tinygrad import nn

        for parameter in nn.state.get_parameters(self.model):
            parameter.replace(
                tensor.rand(*parameter.shape, dtype="float16").sub(0.5).mul(0.05).cast("float16").realize()
            )
        self.ids = prompt(shape, PROMPT)
        self.run("decode", 1)

    def versions(self) -> dict[str, str]:
        return {"tinygrad": version("tinygrad")}

    def run(self, task: str, repeat: int) -> float:
        seconds = 0.0
        for _ in range(repeat):
            self.model._cached_tokens = []
            tokens = self.model.generate(list(self.ids))
            next(tokens)
            begin = time.perf_counter()
            for _ in range(DECODED):
                next(tokens)
            seconds += (time.perf_counter() - begin) / DECODED
        return seconds


# -- rows --------------------------------------------------------------------------------------------------------------
HERE = "benchmarks.native.cuda:"
TOLERANCES = {
    "f32": 1e-4,
    "f16": 5e-3,
    "bf16": 3e-2,
    "e4m3": 1e-2,
}  # of the largest value: sums of thousands of rounded products


def side(name: str, contestant: str, task: str, **more: Any) -> Side:
    return Side(name, Worker.of(HERE + contestant, **more), task)


def matmul_row(kind: str, size: int, search: bool = False) -> Row:
    task = f"matmul {kind} {size}"
    target = 0.8 if kind == "f32" else 0.75 if search else 0.6
    peers = [Peer(side("cuBLASLt" if kind in NARROW else "cuBLAS", "Torch", task), target, close(TOLERANCES[kind]))]
    if kind == "f32" and size == 4096:
        peers.append(Peer(side("tinygrad CUDA", "Tinygrad", "matmul float32 4096"), 1, close(1e-4)))
    return _row(
        f"cuda-matmul-{kind}-{size}{'-search' if search else ''}",
        f"{kind} matmul {size}{', searched' if search else ''}, CUDA",
        side("tinyweb", "Ours", task + " search" * search),
        peers,
        Unit("TFLOP/s", 2 * size**3 / 1e12),
    )


def matvec_row(kind: str, rows: int, columns: int) -> Row:
    task, nbytes = f"matvec {kind} {rows}x{columns}", rows * columns * (4 if kind == "f32" else 2)
    return _row(
        f"cuda-matvec-{kind}-{rows}x{columns}",
        f"{kind} matvec {rows}×{columns}, CUDA",
        side("tinyweb", "Ours", task),
        [
            Peer(side("copy bandwidth", "Torch", f"copy {nbytes}"), 0.9, None),
            Peer(side("cuBLAS", "Torch", task), 1, close(TOLERANCES[kind])),
        ],
        Unit("GB/s", nbytes / 1e9),
    )


def attention_row(kind: str, size: int) -> Row:
    task = f"attention {kind} {size}"
    return _row(
        f"cuda-attention-{kind}-{size}",
        f"{kind} attention, {HEADS} heads of {HEAD_WIDTH}, {size} positions, CUDA",
        side("tinyweb", "Ours", task),
        [Peer(side("PyTorch SDPA", "Torch", task), 0.6, close(1e-2))],
        Unit("TFLOP/s", 4 * size**2 * HEADS * HEAD_WIDTH / 1e12),
    )


def decode_row(shape: str, quant: str) -> Row:
    layers = SHAPES[shape].num_hidden_layers
    peers = [Peer(side("PyTorch, CUDA graph", "TorchLlama", "run", shape=shape, quant=quant), 1.5, same_logits(0.05))]
    if quant == "f16":
        peers.append(Peer(side("tinygrad CUDA", "TinygradLlama", "run", shape=shape), 3, None))
    return _row(
        f"cuda-llama-{shape}-{quant}-decode",
        f"Llama {shape.upper()} shape ({layers} layers), {quant}, decode, CUDA",
        side("tinyweb", "OurLlama", "run", shape=shape, quant=quant),
        peers,
        Unit("tokens/s", 1),
        seconds=45,
    )


def _row(name: str, work: str, ours: Side, peers: list[Peer], unit: Unit, seconds: float = 8) -> Row:
    return Row(name, "cuda", work, ours, tuple(peers), unit, seconds=seconds, turns=5, turn_seconds=0.05)


def rows() -> list[Row]:
    kinds = ("f32", "f16", "bf16")
    return [
        *(matmul_row(kind, size) for kind in (*kinds, *NARROW) for size in (4096, 8192)),
        *(matvec_row(kind, 32768, 8192) for kind in ("f32", "f16")),
        *(attention_row("f16", size) for size in (2048, 8192)),
        matmul_row("f16", 4096, search=True),
        *(decode_row("1b", quant) for quant in ("f16", "q4")),
    ]
