"""Weights that others quantised, packed here as their formats are defined, come back as what they stand for."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.models.decoder_folders import LLAMA_LIKE
from tinyweb import Tensor
from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import ModelFolder
from tinyweb.models import load

Tensors = dict[str, torch.Tensor]
Parts = dict[str, Any]  # arrays, or tensors of types that NumPy lacks
Packer = Callable[[np.ndarray], tuple[Parts, np.ndarray]]
ROWS, COLUMNS = 48, 64
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
rng = np.random.default_rng(5)


def stream(values: np.ndarray, bits: int) -> np.ndarray:
    """Fields along the last axis as 32-bit words, from the lowest bit on."""
    each = (values[..., None].astype(np.int64) >> np.arange(bits)) & 1
    flat = each.reshape(*values.shape[:-1], -1)
    flat = np.pad(flat, [(0, 0)] * (flat.ndim - 1) + [(0, -flat.shape[-1] % 32)])
    words = (flat.reshape(*flat.shape[:-1], -1, 32) << np.arange(32)).sum(-1)
    return words.astype(np.uint32).view(np.int32)


def integers(bits: int, rows: int, columns: int) -> np.ndarray:
    return rng.integers(0, 1 << bits, (rows, columns))


def scales_of(*shape: int) -> np.ndarray:
    return (rng.random(shape) / 50 + 0.001).astype(np.float16)


def gptq(bits: int, group: int, order: bool, less: int) -> Packer:
    def pack(shape: np.ndarray) -> tuple[Parts, np.ndarray]:
        rows, columns = shape
        values, groups = integers(bits, columns, rows), columns // group
        zeros = rng.integers(0, 1 << bits, (groups, rows))
        scales, of = scales_of(groups, rows), np.arange(columns) // group
        parts = {
            "qweight": stream(values.T, bits).T, "qzeros": stream((zeros - less) % (1 << bits), bits), "scales": scales,
        }  # fmt: skip
        if order:
            parts["g_idx"] = of = rng.permutation(of).astype(np.int32)
        return parts, ((values - zeros[of]) * scales[of].astype(np.float32)).T

    return pack


def awq(shape: np.ndarray) -> tuple[Parts, np.ndarray]:
    rows, columns = shape
    values, zeros, scales = integers(4, columns, rows), integers(4, columns // 32, rows), scales_of(columns // 32, rows)

    def pack(found: np.ndarray) -> np.ndarray:
        return stream(found.reshape(len(found), -1, 8)[..., list(AWQ_ORDER)].reshape(found.shape), 4)

    of = np.arange(columns) // 32
    weight = ((values - zeros[of]) * scales[of].astype(np.float32)).T
    return {"qweight": pack(values), "qzeros": pack(zeros), "scales": scales}, weight


def words(values: np.ndarray, bits: int) -> np.ndarray:
    """Fields along the last axis as 32-bit words, none in two of them."""
    each = 32 // bits
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, -values.shape[-1] % each)]).astype(np.int64)
    shifted = padded.reshape(*values.shape[:-1], -1, each) << np.arange(each) * bits
    return shifted.sum(-1).astype(np.uint32).view(np.int32)


def pack_quantized(bits: int, group: int, zeros: bool, order: bool = False, packed: Any = stream) -> Packer:
    def pack(shape: np.ndarray) -> tuple[Parts, np.ndarray]:
        rows, columns = shape
        half = 1 << (bits - 1)
        values, scales = integers(bits, rows, columns) - half, scales_of(rows, columns // group)
        of: Any = np.arange(columns) // group
        parts = {
            "weight_packed": packed(values + half, bits),
            "weight_scale": scales,
            "weight_shape": np.array([rows, columns]),
        }
        points: Any = np.zeros((rows, columns // group), np.int64)
        if zeros:
            points = rng.integers(-half, half, points.shape)
            parts["weight_zero_point"] = np.ascontiguousarray(packed((points + half).T, bits).T)
        if order:
            parts["weight_g_idx"] = of = rng.permutation(of).astype(np.int32)
        return parts, (values - points[:, of]) * scales[:, of].astype(np.float32)

    return pack


def int_quantized(shape: np.ndarray) -> tuple[Parts, np.ndarray]:
    values, scales = rng.integers(-128, 128, shape).astype(np.int8), scales_of(shape[0], 1)
    return {"weight": values, "weight_scale": scales}, values * scales.astype(np.float32)


def fp8(end: str, *parts_of: int) -> Packer:
    """Scales over blocks of so many rows and columns; 0: all."""

    def pack(shape: np.ndarray) -> tuple[Parts, np.ndarray]:
        values = torch.tensor(rng.normal(size=shape).astype(np.float32) * 100).to(torch.float8_e4m3fn)
        rows, columns = (p or n for p, n in zip(parts_of, shape, strict=True))
        scales = (rng.random((-(-shape[0] // rows), -(-shape[1] // columns))) / 50).astype(np.float32)
        every = np.repeat(np.repeat(scales, rows, 0)[: shape[0]], columns, 1)[:, : shape[1]]
        stored = scales.reshape(()) if scales.size == 1 else scales
        return {"weight": values, end: stored}, values.float().numpy() * every

    return pack


def nvfp4(shape: np.ndarray) -> tuple[Parts, np.ndarray]:
    values, whole = integers(4, *shape), np.float32(37.0)
    scales = torch.tensor(rng.random((shape[0], shape[1] // 16)) * 40).to(torch.float8_e4m3fn)
    numbers = np.array([*E2M1, *(-x for x in E2M1)], np.float32)[values]
    packed = (values[:, 0::2] | values[:, 1::2] << 4).astype(np.uint8)
    parts: Any = {"weight_packed": packed, "weight_scale": scales, "weight_global_scale": whole.reshape(1)}
    return parts, numbers * np.repeat(scales.float().numpy() / whole, 16, 1)


def mxfp4(shape: np.ndarray) -> tuple[Parts, np.ndarray]:
    values, exponents = integers(4, *shape), rng.integers(118, 132, (shape[0], shape[1] // 32)).astype(np.uint8)
    numbers = np.array([*E2M1, *(-x for x in E2M1)], np.float32)[values]
    packed = (values[:, 0::2] | values[:, 1::2] << 4).astype(np.uint8)
    scales = 2.0 ** (exponents.astype(np.float32) - 127)
    return {"weight_packed": packed, "weight_scale": exponents}, numbers * np.repeat(scales, 32, 1)


def awq_symmetric(shape: np.ndarray) -> tuple[Parts, np.ndarray]:
    """Without zero points: 8 stands for 0."""
    rows, columns = shape
    values, scales, of = integers(4, columns, rows), scales_of(columns // 64, rows), np.arange(columns) // 64
    packed = stream(values.reshape(len(values), -1, 8)[..., list(AWQ_ORDER)].reshape(values.shape), 4)
    return {"qweight": packed, "scales": scales}, ((values - 8.0) * scales[of].astype(np.float32)).T


def gptq_symmetric(shape: np.ndarray) -> tuple[Parts, np.ndarray]:
    """What `sym` writes: all zero points are the middle, stored less one; every group in order."""
    rows, columns = shape
    values, scales, of = integers(4, columns, rows), scales_of(columns // 32, rows), np.arange(columns) // 32
    parts = {
        "qweight": stream(values.T, 4).T, "qzeros": np.full((columns // 32, rows // 8), 0x77777777, np.int32),
        "scales": scales, "g_idx": of.astype(np.int32),
    }  # fmt: skip
    return parts, ((values - 8) * scales[of].astype(np.float32)).T


def four_bits(kind: str, nested: bool) -> Packer:
    def pack(shape: np.ndarray) -> tuple[Parts, np.ndarray]:
        values, table = integers(4, *shape).reshape(-1), np.sort(rng.normal(size=16)).astype(np.float32)
        blocks = values.size // 64
        state: dict[str, Any] = {
            "quant_type": kind,
            "blocksize": 64,
            "dtype": "float16",
            "shape": [int(n) for n in shape],
        }
        parts = {"weight": ((values[0::2] << 4) | values[1::2]).astype(np.uint8)[:, None], "weight.quant_map": table}
        absmax = (rng.random(blocks) + 0.1).astype(np.float32)
        if nested:
            codes, outer = rng.integers(0, 256, blocks), (rng.random(-(-blocks // 256)) + 0.1).astype(np.float32)
            inner = np.sort(rng.normal(size=256)).astype(np.float32)
            absmax = inner[codes] * np.repeat(outer, 256)[:blocks] + np.float32(0.25)
            state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.25}
            parts |= {
                "weight.absmax": codes.astype(np.uint8),
                "weight.nested_absmax": outer,
                "weight.nested_quant_map": inner,
            }
        else:
            parts["weight.absmax"] = absmax
        text = np.frombuffer(json.dumps(state).encode(), np.uint8)
        parts[f"weight.quant_state.bitsandbytes__{kind}"] = text
        return parts, (table[values] * np.repeat(absmax, 64)).reshape(shape)

    return pack


def eight_bits(shape: np.ndarray) -> tuple[Parts, np.ndarray]:
    values, scales = rng.integers(-127, 128, shape).astype(np.int8), (rng.random(shape[0]) * 3).astype(np.float32)
    return {"weight": values, "SCB": scales, "weight_format": np.array(0, np.uint8)}, values * (scales[:, None] / 127)


def mlx(bits: int, group: int) -> Packer:
    def pack(shape: np.ndarray) -> tuple[Parts, np.ndarray]:
        values, few = integers(bits, *shape), (shape[0], shape[1] // group)
        scales, biases = scales_of(*few), -scales_of(*few)
        each = [np.repeat(v.astype(np.float32), group, 1) for v in (scales, biases)]
        parts = {"weight": stream(values, bits).view(np.uint32), "scales": scales, "biases": biases}
        return parts, values * each[0] + each[1]

    return pack


def compressed(kind: str, bits: int = 4, **more: Any) -> dict[str, Any]:
    groups = {"group_0": {"weights": {"num_bits": bits, **more}, "format": None}}
    return {"quant_method": "compressed-tensors", "format": kind, "config_groups": groups}


BNB = {"quant_method": "bitsandbytes", "load_in_4bit": True}
CASES: dict[str, tuple[dict[str, Any], Packer]] = {
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": 32}, gptq(4, 32, False, 1)),
    "gptq, act-order": ({"quant_method": "gptq", "bits": 4, "group_size": 16, "desc_act": True}, gptq(4, 16, True, 1)),
    "gptq, 3 bits": ({"quant_method": "gptq", "bits": 3, "group_size": 32}, gptq(3, 32, False, 1)),
    "gptq, 8 bits, whole rows": ({"quant_method": "gptq", "bits": 8, "group_size": -1}, gptq(8, COLUMNS, False, 1)),
    "gptq v2": (
        {"quant_method": "gptq", "bits": 2, "group_size": 32, "checkpoint_format": "gptq_v2"}, gptq(2, 32, False, 0),
    ),
    "gptq, symmetric": ({"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True}, gptq_symmetric),
    "gptq, groups of 64": ({"quant_method": "gptq", "bits": 4, "group_size": 64, "sym": False}, gptq(4, 64, False, 1)),
    "gptq v2, act-order": (
        {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True, "checkpoint_format": "gptq_v2"},
        gptq(4, 32, True, 0),
    ),
    "awq, symmetric": ({"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": False}, awq_symmetric),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"}, awq),
    "compressed-tensors": (compressed("pack-quantized"), pack_quantized(4, 32, False)),
    "compressed-tensors, zero points": (compressed("pack-quantized"), pack_quantized(4, 16, True)),
    "compressed-tensors, act-order": (compressed("pack-quantized", 8), pack_quantized(8, 16, False, True)),
    "compressed-tensors, channels": (compressed("pack-quantized"), pack_quantized(4, COLUMNS, False)),
    "compressed-tensors, int8": (compressed("int-quantized", 8), int_quantized),
    "compressed-tensors, fp8": (compressed("float-quantized", 8), fp8("weight_scale", 1, 0)),
    "compressed-tensors, nvfp4": (compressed("nvfp4-pack-quantized"), nvfp4),
    "compressed-tensors, mxfp4": (compressed("mxfp4-pack-quantized"), mxfp4),
    "compressed-tensors, 3 bits": (compressed("pack-quantized", 3), pack_quantized(3, 32, True)),
    "compressed-tensors, 3 bits, words of their own": (
        compressed("pack-quantized", 3), pack_quantized(3, 32, True, packed=words),
    ),
    "compressed-tensors, 5 bits": (compressed("pack-quantized", 5), pack_quantized(5, 16, True)),
    "compressed-tensors, 6 bits, words of their own": (
        compressed("pack-quantized", 6), pack_quantized(6, 64, True, packed=words),
    ),
    "compressed-tensors, blocks": (
        compressed("float-quantized", 8, block_structure=[40, 24]), fp8("weight_scale", 40, 24),
    ),
    "fp8, blocks": ({"quant_method": "fp8", "weight_block_size": [32, 48]}, fp8("weight_scale_inv", 32, 48)),
    "fp8, one scale": ({"quant_method": "fp8"}, fp8("weight_scale", 0, 0)),
    "fbgemm fp8": ({"quant_method": "fbgemm_fp8"}, fp8("weight_scale", 1, 0)),
    "nf4": (BNB, four_bits("nf4", False)),
    "nf4, nested": (BNB, four_bits("nf4", True)),
    "fp4": (BNB, four_bits("fp4", False)),
    "int8": ({"quant_method": "bitsandbytes", "load_in_8bit": True}, eight_bits),
    "mlx": ({"bits": 4, "group_size": 64}, mlx(4, 64)),
    "mlx, 2 bits": ({"bits": 2, "group_size": 32}, mlx(2, 32)),
    "mlx, 5 bits": ({"bits": 5, "group_size": 32}, mlx(5, 32)),
    "mlx, 8 bits": ({"bits": 8, "group_size": 64}, mlx(8, 64)),
    "mlx, 3 bits": ({"bits": 3, "group_size": 32}, mlx(3, 32)),
    "mlx, 6 bits": ({"bits": 6, "group_size": 32}, mlx(6, 32)),
}  # fmt: skip


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    global rng
    rng = np.random.default_rng(5)


def tensor(value: Any) -> torch.Tensor:
    return value.contiguous() if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value, order="C"))


def packed_folder(folder: Path, settings: dict[str, Any], pack: Packer) -> dict[str, np.ndarray]:
    """A small Llama whose matrices are packed; what they stand for, and the other tensors, by name."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"model.layers.0.mlp.{n}_proj" for n in ("gate", "up")]
    want, stored = {}, {"model.norm.weight": torch.ones(COLUMNS)}
    for name in names:
        parts, want[f"{name}.weight"] = pack(np.array([ROWS, COLUMNS]))
        stored |= {f"{name}.{part}": tensor(value) for part, value in parts.items()}
    key = "quantization_config" if "quant_method" in settings else "quantization"
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", key: settings}))
    save_file(stored, folder / "model.safetensors")
    return want


@pytest.mark.parametrize("case", CASES)
def test_values(case: str, tmp_path: Path) -> None:
    want = packed_folder(tmp_path, *CASES[case])
    found = ModelFolder(tmp_path).weights()
    assert sorted(found) == sorted([*want, "model.norm.weight"])
    for name, values in want.items():
        assert found.entry(name).shape == values.shape
        np.testing.assert_allclose(found.read(name, values.shape), values, rtol=1e-6, atol=1e-7)
    assert found.read("model.norm.weight", (COLUMNS,)).sum() == COLUMNS


def test_layers_of_other_bits(tmp_path: Path) -> None:
    """Of compressed-tensors: a matrix's shape says which of the config's bits it has."""
    up = "model.layers.0.mlp.up_proj"
    want = packed_folder(tmp_path, *CASES["compressed-tensors, zero points"])
    stored = {n: v for n, v in _stored(tmp_path).items() if not n.startswith(up)}
    parts, want[f"{up}.weight"] = pack_quantized(8, 32, False)(np.array([ROWS, COLUMNS]))
    save_file(stored | {f"{up}.{n}": tensor(v) for n, v in parts.items()}, tmp_path / "model.safetensors")
    groups = {str(b): {"weights": {"num_bits": b}, "format": "pack-quantized"} for b in (4, 8)}
    settings = {"quant_method": "compressed-tensors", "format": "mixed-precision", "config_groups": groups}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "quantization_config": settings}))
    found = ModelFolder(tmp_path).weights()
    for name, values in want.items():
        np.testing.assert_allclose(found.read(name, values.shape), values, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("field", ["blocksize", "nested_blocksize"])
def test_blocks_larger_than_the_weight_cost_nothing(field: str, tmp_path: Path) -> None:
    """Memory is that of the weight, whatever the state says."""
    packed_folder(tmp_path, *CASES["nf4, nested"])
    stored = _stored(tmp_path)
    for name in [n for n in stored if "quant_state" in n]:
        state = json.loads(stored[name].numpy().tobytes()) | {field: (1 << 31) - 1}
        stored[name] = tensor(np.frombuffer(json.dumps(state).encode(), np.uint8))
        if field == "blocksize":
            for part, count in (("absmax", 1), ("nested_absmax", 1)):
                stored[f"{name.partition('.weight')[0]}.weight.{part}"] = stored[
                    f"{name.partition('.weight')[0]}.weight.{part}"
                ][:count].clone()
    save_file(stored, tmp_path / "model.safetensors")
    found = ModelFolder(tmp_path).weights()
    tracemalloc.start()
    assert np.isfinite(found.read("model.layers.0.mlp.up_proj.weight", (ROWS, COLUMNS))).all()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_experts_of_gpt_oss(tmp_path: Path) -> None:
    values, exponents = integers(4, 3 * 10 * 2, 32).reshape(3, 10, 2, 32), rng.integers(120, 132, (3, 10, 2))
    numbers = np.array([*E2M1, *(-x for x in E2M1)], np.float32)[values] * 2.0 ** (exponents[..., None] - 127)
    stored = {
        "x.gate_up_proj_blocks": tensor((values[..., 0::2] | values[..., 1::2] << 4).astype(np.uint8)),
        "x.gate_up_proj_scales": tensor(exponents.astype(np.uint8)),
    }
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "mxfp4"}}))
    save_file(stored, tmp_path / "model.safetensors")
    found = ModelFolder(tmp_path).weights()
    assert list(found) == ["x.gate_up_proj"]
    want = numbers.reshape(3, 10, 64).swapaxes(1, 2)
    np.testing.assert_array_equal(found.read("x.gate_up_proj", (3, 64, 10)), want)


def test_layers_of_their_own_in_mlx(tmp_path: Path) -> None:
    packed_folder(tmp_path, *CASES["mlx"])
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization"]["model.layers.0.mlp.up_proj"] = {"bits": 8, "group_size": 32}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = ModelFolder(tmp_path).weights()
    assert found.entry("model.layers.0.mlp.gate_proj.weight").shape == (ROWS, COLUMNS)
    assert found.entry("model.layers.0.mlp.up_proj.weight").shape == (ROWS, COLUMNS // 2)


def test_a_model_runs(tmp_path: Path) -> None:
    """Logits are those of the dequantised checkpoint."""
    small = LLAMA_LIKE["Llama 3"]
    small.write(tmp_path / "plain")
    tensors = _torch_tensors(tmp_path / "plain")
    stored: Tensors = {}
    for name, values in tensors.items():
        if values.ndim == 2 and ".layers." in name:
            scale = values.abs().amax(1, keepdim=True) / 127
            whole = (values / scale).round()
            stored |= {name: whole.to(torch.int8), name + "_scale": scale}
            tensors[name] = whole * scale
        else:
            stored[name] = values
    for folder, content in (("plain", tensors), ("packed", stored)):
        (tmp_path / folder).mkdir(exist_ok=True)
        save_file(content, tmp_path / folder / "model.safetensors")
    config = json.loads((tmp_path / "plain" / "config.json").read_text())
    (tmp_path / "packed" / "config.json").write_text(
        json.dumps(config | {"quantization_config": compressed("int-quantized", 8)})
    )
    ids = Tensor(np.arange(9, dtype=np.int32)[None])
    plain, packed = (load(tmp_path / folder, context=16)(ids).numpy() for folder in ("plain", "packed"))
    np.testing.assert_allclose(packed, plain, atol=1e-5)


def _torch_tensors(folder: Path) -> Tensors:
    from safetensors.torch import load_file

    return {name: values.float() for name, values in load_file(folder / "model.safetensors").items()}


def changes(config: dict[str, Any], stored: Tensors) -> Iterator[tuple[str, dict[str, Any], Tensors]]:
    """What may be wrong with a checkpoint, one thing at a time."""
    key = next(k for k in config if k.startswith("quantization"))
    for name, value in stored.items():
        yield f"without {name}", config, {n: v for n, v in stored.items() if n != name}
        if value.ndim:
            yield f"{name} cut", config, stored | {name: value[:-1].contiguous()}
            yield f"{name} flat", config, stored | {name: value.reshape(-1).contiguous()}
            yield f"{name} empty", config, stored | {name: value[:0].contiguous()}
            yield f"{name} of one axis more", config, stored | {name: value[None].contiguous()}
            yield f"{name} of one", config, stored | {name: value.reshape(-1)[:1].contiguous()}
        yield (
            f"{name} of another type",
            config,
            stored | {name: value.to(torch.int64 if value.is_floating_point() else torch.float32)},
        )
        if not value.is_floating_point() and value.numel():
            yield (
                f"{name} of the largest",
                config,
                stored | {name: torch.full_like(value, torch.iinfo(value.dtype).max)},
            )
    for field in config[key]:
        wrong: Any
        for wrong in (None, -1, 0, 7, 1 << 40, "x", [], {}):
            yield f"{field}: {wrong}", config | {key: config[key] | {field: wrong}}, stored


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_said(case: str, tmp_path: Path) -> None:
    """A sentence, or weights of the right shape: never another error."""
    want = packed_folder(tmp_path, *CASES[case])
    config, stored = json.loads((tmp_path / "config.json").read_text()), _stored(tmp_path)
    refused = 0
    for what, changed, tensors in changes(config, stored):
        (tmp_path / "config.json").write_text(json.dumps(changed))
        save_file(tensors, tmp_path / "model.safetensors")
        try:
            found = ModelFolder(tmp_path).weights()
            for name, values in want.items():
                assert found.read(name, values.shape).shape == values.shape, what
        except ModelFormatError as error:
            refused += 1
            assert len(str(error)) < 600, what
    assert refused > 8


def _stored(folder: Path) -> Tensors:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def test_a_method_that_is_not_known(tmp_path: Path) -> None:
    packed_folder(tmp_path, {"quant_method": "hqq"}, CASES["mlx"][1])
    with pytest.raises(ModelFormatError, match="quantised by hqq, which is not supported"):
        ModelFolder(tmp_path).weights()
