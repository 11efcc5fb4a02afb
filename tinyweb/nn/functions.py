"""Layers without weights: methods of Tensor with their arguments, as objects for `Sequential`.

`MaxPool2d(2)(x)` is `x.max_pool2d(2)`; arguments are those of the methods. Losses are called with input and target.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tinyweb.nn.parameters import constant
from tinyweb.tensor import Tensor


class Function:
    """Calls a method of its first argument."""

    method: ClassVar[str]

    def __init__(self, *arguments: Any, **keywords: Any):
        keywords.pop("inplace", None)  # PyTorch's; there is nothing to save here
        self._arguments, self._keywords = arguments, keywords

    def __call__(self, x: Tensor, *others: Any) -> Any:
        return getattr(x, self.method)(*others, *self._arguments, **self._keywords)

    def __repr__(self) -> str:
        given = [*map(repr, self._arguments), *(f"{k}={v!r}" for k, v in self._keywords.items())]
        return f"{type(self).__name__}({', '.join(given)})"


class Identity:
    """Its input."""

    def __init__(self, *arguments: Any, **keywords: Any):
        pass

    def __call__(self, x: Any) -> Any:
        return x


class Flatten:
    """Merges the axes from `start_dim` to `end_dim`."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        self.start_dim, self.end_dim = start_dim, end_dim

    def __call__(self, x: Tensor) -> Tensor:
        return x.flatten(self.start_dim, self.end_dim)


class PReLU:
    """x where positive, else weight · x; `weight` has one element, or one per channel (axis 1) (He et al. 2015)."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, *, device: str | None = None):
        self.weight = constant((num_parameters,), init, device)

    def __call__(self, x: Tensor) -> Tensor:
        return x.prelu(self.weight)


def _layer(name: str, method: str) -> type[Function]:
    return type(name, (Function,), {"method": method, "__doc__": f"`Tensor.{method}`.", "__module__": __name__})


# activations
ReLU = _layer("ReLU", "relu")
ReLU6 = _layer("ReLU6", "relu6")
LeakyReLU = _layer("LeakyReLU", "leaky_relu")
RReLU = _layer("RReLU", "rrelu")
ELU = _layer("ELU", "elu")
SELU = _layer("SELU", "selu")
CELU = _layer("CELU", "celu")
GELU = _layer("GELU", "gelu")
SiLU = _layer("SiLU", "silu")
Mish = _layer("Mish", "mish")
Sigmoid = _layer("Sigmoid", "sigmoid")
LogSigmoid = _layer("LogSigmoid", "logsigmoid")
Tanh = _layer("Tanh", "tanh")
Softplus = _layer("Softplus", "softplus")
Softsign = _layer("Softsign", "softsign")
Softshrink = _layer("Softshrink", "softshrink")
Hardshrink = _layer("Hardshrink", "hardshrink")
Tanhshrink = _layer("Tanhshrink", "tanhshrink")
Hardtanh = _layer("Hardtanh", "hardtanh")
Hardsigmoid = _layer("Hardsigmoid", "hardsigmoid")
Hardswish = _layer("Hardswish", "hardswish")
Threshold = _layer("Threshold", "threshold")
GLU = _layer("GLU", "glu")
Softmax = _layer("Softmax", "softmax")
Softmin = _layer("Softmin", "softmin")
LogSoftmax = _layer("LogSoftmax", "log_softmax")
# dropout, within `Tensor.train()`
Dropout = _layer("Dropout", "dropout")
Dropout1d = _layer("Dropout1d", "dropout1d")
Dropout2d = _layer("Dropout2d", "dropout2d")
Dropout3d = _layer("Dropout3d", "dropout3d")
AlphaDropout = _layer("AlphaDropout", "alpha_dropout")
FeatureAlphaDropout = _layer("FeatureAlphaDropout", "feature_alpha_dropout")
# pooling
MaxPool1d = _layer("MaxPool1d", "max_pool1d")
MaxPool2d = _layer("MaxPool2d", "max_pool2d")
MaxPool3d = _layer("MaxPool3d", "max_pool3d")
AvgPool1d = _layer("AvgPool1d", "avg_pool1d")
AvgPool2d = _layer("AvgPool2d", "avg_pool2d")
AvgPool3d = _layer("AvgPool3d", "avg_pool3d")
LPPool1d = _layer("LPPool1d", "lp_pool1d")
LPPool2d = _layer("LPPool2d", "lp_pool2d")
LPPool3d = _layer("LPPool3d", "lp_pool3d")
AdaptiveAvgPool1d = _layer("AdaptiveAvgPool1d", "adaptive_avg_pool1d")
AdaptiveAvgPool2d = _layer("AdaptiveAvgPool2d", "adaptive_avg_pool2d")
AdaptiveAvgPool3d = _layer("AdaptiveAvgPool3d", "adaptive_avg_pool3d")
AdaptiveMaxPool1d = _layer("AdaptiveMaxPool1d", "adaptive_max_pool1d")
AdaptiveMaxPool2d = _layer("AdaptiveMaxPool2d", "adaptive_max_pool2d")
AdaptiveMaxPool3d = _layer("AdaptiveMaxPool3d", "adaptive_max_pool3d")
MaxUnpool1d = _layer("MaxUnpool1d", "max_unpool1d")
MaxUnpool2d = _layer("MaxUnpool2d", "max_unpool2d")
MaxUnpool3d = _layer("MaxUnpool3d", "max_unpool3d")
# shapes, images, distances
Unfold = _layer("Unfold", "im2col")
Fold = _layer("Fold", "fold")
Unflatten = _layer("Unflatten", "unflatten")
CosineSimilarity = _layer("CosineSimilarity", "cosine_similarity")
PairwiseDistance = _layer("PairwiseDistance", "pairwise_distance")
PixelShuffle = _layer("PixelShuffle", "pixel_shuffle")
PixelUnshuffle = _layer("PixelUnshuffle", "pixel_unshuffle")
ChannelShuffle = _layer("ChannelShuffle", "channel_shuffle")
Upsample = _layer("Upsample", "interpolate")
# losses
MSELoss = _layer("MSELoss", "mse_loss")
L1Loss = _layer("L1Loss", "l1_loss")
SmoothL1Loss = _layer("SmoothL1Loss", "smooth_l1_loss")
HuberLoss = _layer("HuberLoss", "huber_loss")
BCELoss = _layer("BCELoss", "binary_cross_entropy")
BCEWithLogitsLoss = _layer("BCEWithLogitsLoss", "binary_cross_entropy_with_logits")
NLLLoss = _layer("NLLLoss", "nll_loss")
CrossEntropyLoss = _layer("CrossEntropyLoss", "cross_entropy")
KLDivLoss = _layer("KLDivLoss", "kl_div")
HingeEmbeddingLoss = _layer("HingeEmbeddingLoss", "hinge_embedding_loss")
MarginRankingLoss = _layer("MarginRankingLoss", "margin_ranking_loss")
MultiMarginLoss = _layer("MultiMarginLoss", "multi_margin_loss")
MultiLabelMarginLoss = _layer("MultiLabelMarginLoss", "multilabel_margin_loss")
MultiLabelSoftMarginLoss = _layer("MultiLabelSoftMarginLoss", "multilabel_soft_margin_loss")
SoftMarginLoss = _layer("SoftMarginLoss", "soft_margin_loss")
TripletMarginLoss = _layer("TripletMarginLoss", "triplet_margin_loss")
CosineEmbeddingLoss = _layer("CosineEmbeddingLoss", "cosine_embedding_loss")
PoissonNLLLoss = _layer("PoissonNLLLoss", "poisson_nll_loss")
GaussianNLLLoss = _layer("GaussianNLLLoss", "gaussian_nll_loss")
CTCLoss = _layer("CTCLoss", "ctc_loss")
