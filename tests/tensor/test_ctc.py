"""The CTC loss against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.tensor.ops import Op, data, gradients_test, values_test
from tinyweb import Tensor

F = torch.nn.functional
FRAMES, BATCH, CLASSES = 5, 3, 5
LABELS = np.array([[1, 1, 2], [3, 4, 0], [2, 0, 0]], np.int32)
LONG, SHORT = np.array([5, 4, 3], np.int32), np.array([3, 2, 1], np.int32)
LOGITS = data(FRAMES, BATCH, CLASSES)


def ctc(name: str, labels: np.ndarray, long: np.ndarray, short: np.ndarray, **keywords) -> Op:
    return Op(
        name,
        lambda x: x.log_softmax(-1).ctc_loss(Tensor(labels, device=x.device), long, short, **keywords),
        (LOGITS,),
        lambda x: F.ctc_loss(
            x.log_softmax(-1), *(torch.from_numpy(t).long() for t in (labels, long, short)), **keywords
        ),
        rtol=1e-4,
        atol=1e-5,
    )


OPS = [
    ctc("mean", LABELS, LONG, SHORT),
    ctc("none", LABELS, LONG, SHORT, reduction="none"),
    ctc("sum_blank", np.minimum(LABELS, 3), LONG, SHORT, reduction="sum", blank=4),
    ctc("empty_target", LABELS, LONG, np.array([3, 0, 1], np.int32), reduction="none"),
    ctc("impossible", LABELS, np.array([3, 4, 3], np.int32), SHORT, reduction="none", zero_infinity=True),
    Op("unbatched", lambda x: x.log_softmax(-1).ctc_loss(Tensor([1, 1], device=x.device), 4, 2), (data(4, 5),),
       lambda x: F.ctc_loss(x.log_softmax(-1), torch.tensor([1, 1]), torch.tensor(4), torch.tensor(2)), rtol=1e-4,
       atol=1e-5),
]  # fmt: skip

test_values = values_test(OPS)
test_gradients = gradients_test(OPS)


def test_impossible_targets_are_infinitely_unlikely() -> None:
    loss = Tensor(LOGITS).log_softmax(-1).ctc_loss(Tensor(LABELS), [3, 4, 3], [3, 2, 1], reduction="none")
    assert np.isinf(loss.numpy()).tolist() == [True, False, False]


def test_errors() -> None:
    x = Tensor(LOGITS)
    with pytest.raises(ValueError, match=r"ctc_loss: needs \(T, N, C\), targets \(N, S\) and a blank below C"):
        x.ctc_loss(Tensor(LABELS), LONG, SHORT, blank=5)
    with pytest.raises(ValueError, match="ctc_loss: reduction must be one of mean, sum, none, got 'max'"):
        x.ctc_loss(Tensor(LABELS), LONG, SHORT, reduction="max")
