"""Results whose number of rows depends on values: in a bundle the host finds them between launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tinyweb.array.host_steps import HostStep, add_host_step
from tinyweb.device import current_recorder, not_recording
from tinyweb.dtype import DType, dtypes
from tinyweb.formats.onnx.call import Call
from tinyweb.graph.ir import Size, UOp, Variable, size_max
from tinyweb.tensor import Tensor


def has_host() -> bool:
    """Whether what is recorded here has a host that carries out steps between launches."""
    recorder = current_recorder()
    return recorder is not None and recorder.host_steps is not None


def found(
    call: Call,
    operator: str,
    inputs: Sequence[Tensor],
    most: int,
    columns: int,
    numbers: Mapping[str, float] | None = None,
) -> Tensor:
    """The rows (count, columns), int32, that the host finds in values; their number is a Variable from 0 to `most`."""
    output = _memory(call, (_steps(), "rows"), (most, columns), dtypes.int32)
    return call.part(output, [_counted(call, operator, inputs, most, output, numbers or {}), columns])


def number_of(call: Call, value: Tensor, most: int) -> Size:
    """A number, 0 to `most`, that is computed, as a Variable."""
    return _counted(call, "number", [value.reshape(1).cast(dtypes.int32)], most, None, {})


def _steps() -> int:
    recorder = current_recorder()
    assert recorder is not None
    return len(recorder.host_steps or ())


def _counted(
    call: Call, operator: str, inputs: Sequence[Tensor], most: int, output: Tensor | None, numbers: Mapping[str, float]
) -> UOp:
    index = _steps()
    held = [_memory(call, (index, i), t.shape, t.dtype) for i, t in enumerate(inputs)]
    name = f"{operator}_{index}"
    while name in call.around.bound:
        name += "_"
    variable = Variable(name, 0, most)
    step = HostStep(operator, tuple(held), output, variable, tuple(sorted(numbers.items())))
    add_host_step(step, inputs)
    call.bind(name, 0)
    return variable


def _memory(call: Call, key: tuple[int, int | str], shape: Sequence[Size], dtype: DType) -> Tensor:
    """Memory beside the recording, the same in those for other targets."""
    largest = tuple(map(size_max, shape))
    kept, place = call.around.kept.host_memory, (*key, largest, dtype.name)
    if place not in kept:
        with not_recording():
            kept[place] = Tensor.zeros(*largest, dtype=dtype, device=call.device).contiguous().realize()
    recorder = current_recorder()
    assert recorder is not None
    recorder.outside.add(kept[place].uop.buffer)
    return call.part(kept[place], shape)
