"""Optimisers: how gradients change parameters.

    optimizer = AdamW(get_parameters(model), lr=1e-3)

    @jit
    def step(x, y):
        optimizer.zero_grad()
        loss = model(x).cross_entropy(y).backward()
        return loss.realize(*optimizer.schedule_step())

Everything an optimiser keeps is a tensor that is updated in place, the learning rate too, so that a whole step
(forward, gradients, update) is one schedule and can be one `jit` call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import size_max
from tinyweb.tensor import Tensor


class Optimizer:
    """The base: parameters, their gradients, and the learning rate `lr`, a one-element float32 tensor.

    The parameters get `requires_grad`. They are realised, because updates write into their memory. A subclass says
    how in `_update`. `weight_decay` of the subclasses is added to the gradient or, where they say "decoupled", shrinks
    the parameter itself (Loshchilov and Hutter 2019).

    Raises ValueError for no parameters and for hyper-parameters outside of their range, TypeError for parameters that
    are no tensors of a float dtype.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float):
        given = list(parameters)
        name = type(self).__name__
        for p in given:
            if not isinstance(p, Tensor):
                raise TypeError(f"{name}: parameters must be tensors, got {type(p).__name__}")
            p.requires_grad_()
        self.parameters = list({id(p): p for p in given}.values())
        if not self.parameters:
            raise ValueError(f"{name}: no parameters to optimise")
        devices = sorted({p.device for p in self.parameters})
        if len(devices) > 1:
            raise ValueError(f"{name}: parameters live on {' and '.join(devices)}: one optimiser serves one device")
        self.device = devices[0]
        _at_least(name, lr=lr)
        for p in self.parameters:
            if not p.is_realized():
                p.realize()
        self.lr = Tensor([lr], dtype=dtypes.float32, device=self.device)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for p in self.parameters:
            p.grad = None

    def set_lr(self, lr: float) -> None:
        """Another learning rate from the next step on, in jitted steps too."""
        self.lr.assign(Tensor([lr], dtype=dtypes.float32, device=self.device)).realize()

    def step(self) -> None:
        """Update the parameters that have gradients, now."""
        first, *rest = self.schedule_step()
        first.realize(*rest)

    def schedule_step(self) -> list[Tensor]:
        """Update the parameters that have gradients, lazily: what is returned must be realised.

        RuntimeError if no parameter has a gradient.
        """
        pairs = [(i, p, p.grad.detach()) for i, p in enumerate(self.parameters) if p.grad is not None]
        if not pairs:
            raise RuntimeError(f"{type(self).__name__}: no parameter has a gradient: call backward() on a loss first")
        changed = self._before()
        for i, p, g in pairs:
            changed += [p, *self._update(i, p, g.cast(dtypes.float32))]
        return list({id(t): t for t in changed}.values())

    def _memory(self) -> list[Tensor]:
        """Zeros of float32 for each parameter."""
        return [_zeros(p) for p in self.parameters]

    def _before(self) -> list[Tensor]:
        """What changes once per step; returns it."""
        return []

    def _update(self, i: int, p: Tensor, g: Tensor) -> list[Tensor]:
        """Update parameter number `i` by its gradient `g` (float32); returns the state that changed with it."""
        raise NotImplementedError

    def _write(self, p: Tensor, value: Tensor) -> None:
        p.assign(value.cast(p.dtype))


class SGD(Optimizer):
    """Stochastic gradient descent with momentum (Polyak 1964) or Nesterov's momentum (Sutskever et al. 2013)."""

    def __init__(
        self, parameters: Iterable[Tensor], lr: float = 1e-3, momentum: float = 0.0, dampening: float = 0.0,
        weight_decay: float = 0.0, nesterov: bool = False,
    ):  # fmt: skip
        super().__init__(parameters, lr)
        _at_least("SGD", momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum == 0 or dampening != 0):
            raise ValueError("SGD: nesterov needs a momentum and no dampening")
        self.momentum, self.dampening, self.weight_decay, self.nesterov = momentum, dampening, weight_decay, nesterov
        self.velocity = self._memory() if momentum else []
        # the first gradient is not dampened: 1 before the first step, then 0
        self.first = Tensor([1.0], dtype=dtypes.float32, device=self.device)

    def schedule_step(self) -> list[Tensor]:
        changed = super().schedule_step()
        if self.dampening:
            self.first.assign(self.first * 0)
            changed.append(self.first)
        return changed

    def _update(self, i: int, p: Tensor, g: Tensor) -> list[Tensor]:
        if self.weight_decay:
            g = g + p.detach() * self.weight_decay
        if not self.momentum:
            self._write(p, p.detach() - self.lr * g)
            return []
        velocity = self.velocity[i]
        share = 1 - self.dampening * (1 - self.first) if self.dampening else 1.0
        velocity.assign(velocity * self.momentum + g * share)
        self._write(p, p.detach() - self.lr * (g + velocity * self.momentum if self.nesterov else velocity))
        return [velocity]


class _Moments(Optimizer):
    """Running means of gradients and of their squares, with bias correction (Kingma and Ba 2015)."""

    def __init__(
        self, parameters: Iterable[Tensor], lr: float, betas: tuple[float, float], eps: float, weight_decay: float
    ):
        super().__init__(parameters, lr)
        name = type(self).__name__
        _at_least(name, eps=eps, weight_decay=weight_decay)
        if len(betas) != 2 or not all(0 <= b < 1 for b in betas):
            raise ValueError(f"{name}: betas must be two numbers in [0, 1), got {betas}")
        self.betas, self.eps, self.weight_decay = betas, eps, weight_decay
        self.mean, self.square = self._memory(), self._memory()
        # the powers of the betas after all steps so far
        self.power = Tensor([1.0, 1.0], dtype=dtypes.float32, device=self.device)

    def _before(self) -> list[Tensor]:
        self.power.assign(self.power * Tensor(list(self.betas), dtype=dtypes.float32, device=self.device))
        return [self.power]

    def _direction(self, i: int, g: Tensor) -> Tensor:
        mean, square = self.mean[i], self.square[i]
        first, second = self.betas
        mean.assign(mean * first + g * (1 - first))
        square.assign(square * second + g * g * (1 - second))
        corrected = (square / (1 - self.power[1])).sqrt()
        return mean / (1 - self.power[0]) / (corrected + self.eps)


class Adam(_Moments):
    """Adam (Kingma and Ba 2015); weight decay is added to the gradient."""

    def __init__(
        self, parameters: Iterable[Tensor], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0.0,
    ):  # fmt: skip
        super().__init__(parameters, lr, betas, eps, weight_decay)

    def _update(self, i: int, p: Tensor, g: Tensor) -> list[Tensor]:
        if self.weight_decay:
            g = g + p.detach() * self.weight_decay
        self._write(p, p.detach() - self.lr * self._direction(i, g))
        return [self.mean[i], self.square[i]]


class AdamW(_Moments):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    def __init__(
        self, parameters: Iterable[Tensor], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0.01,
    ):  # fmt: skip
        super().__init__(parameters, lr, betas, eps, weight_decay)

    def _update(self, i: int, p: Tensor, g: Tensor) -> list[Tensor]:
        kept = p.detach() * (1 - self.lr * self.weight_decay)
        self._write(p, kept - self.lr * self._direction(i, g))
        return [self.mean[i], self.square[i]]


class RMSprop(Optimizer):
    """Gradients over the root of a running mean of their squares (Tieleman and Hinton 2012), with momentum if asked
    for; `centered`: over their running deviation (Graves 2013)."""

    def __init__(
        self, parameters: Iterable[Tensor], lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8,
        weight_decay: float = 0.0, momentum: float = 0.0, centered: bool = False,
    ):  # fmt: skip
        super().__init__(parameters, lr)
        _at_least("RMSprop", alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum)
        self.alpha, self.eps, self.weight_decay, self.momentum = alpha, eps, weight_decay, momentum
        self.square = self._memory()
        self.mean = self._memory() if centered else []
        self.velocity = self._memory() if momentum else []

    def _update(self, i: int, p: Tensor, g: Tensor) -> list[Tensor]:
        if self.weight_decay:
            g = g + p.detach() * self.weight_decay
        kept = [memory[i] for memory in (self.square, self.mean, self.velocity) if memory]
        spread = self.square[i].assign(self.square[i] * self.alpha + g * g * (1 - self.alpha))
        if self.mean:
            mean = self.mean[i].assign(self.mean[i] * self.alpha + g * (1 - self.alpha))
            spread = spread - mean * mean
        step = g / (spread.sqrt() + self.eps)
        if self.velocity:
            step = self.velocity[i].assign(self.velocity[i] * self.momentum + step)
        self._write(p, p.detach() - self.lr * step)
        return kept


class LAMB(_Moments):
    """Layer-wise adaptive moments for large batches (You et al. 2020): Adam's step, decoupled weight decay included, is
    scaled by |parameter| / |step|, each parameter for itself; by 1 where one of them is zero."""

    def __init__(
        self, parameters: Iterable[Tensor], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6, weight_decay: float = 0.0,
    ):  # fmt: skip
        super().__init__(parameters, lr, betas, eps, weight_decay)

    def _update(self, i: int, p: Tensor, g: Tensor) -> list[Tensor]:
        old = p.detach().cast(dtypes.float32)
        step = self._direction(i, g) + old * self.weight_decay
        self._write(p, old - self.lr * _trust(old, step) * step)
        return [self.mean[i], self.square[i]]


class LARS(Optimizer):
    """Layer-wise adaptive rate scaling (You et al. 2017): momentum whose rate is scaled by
    coefficient · |parameter| / (|gradient| + weight_decay · |parameter|); by 1 where one of the norms is zero."""

    def __init__(
        self, parameters: Iterable[Tensor], lr: float = 1e-3, momentum: float = 0.9, weight_decay: float = 1e-4,
        coefficient: float = 1e-3,
    ):  # fmt: skip
        super().__init__(parameters, lr)
        _at_least("LARS", momentum=momentum, weight_decay=weight_decay, coefficient=coefficient)
        self.momentum, self.weight_decay, self.coefficient = momentum, weight_decay, coefficient
        self.velocity = self._memory()

    def _update(self, i: int, p: Tensor, g: Tensor) -> list[Tensor]:
        old = p.detach().cast(dtypes.float32)
        size, slope = _norm(old), _norm(g)
        scaled = size * self.coefficient / (slope + size * self.weight_decay)
        rate = (size > 0).logical_and(slope > 0).where(scaled, 1.0)
        velocity = self.velocity[i]
        velocity.assign(velocity * self.momentum + self.lr * rate * (g + old * self.weight_decay))
        self._write(p, old - velocity)
        return [velocity]


class Muon(Optimizer):
    """Momentum orthogonalised by Newton-Schulz iteration (Jordan 2024, "Muon: an optimizer for hidden layers").

    For matrices: an array of more axes is seen as (first axis, all others); what has fewer than two axes belongs to
    another optimiser (`OptimizerGroup` joins them). The step is scaled by sqrt(max(1, rows / columns)), and weight
    decay is decoupled.
    """

    COEFFICIENTS = (3.4445, -4.7750, 2.0315)

    def __init__(
        self, parameters: Iterable[Tensor], lr: float = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95,
        nesterov: bool = True, steps: int = 5, eps: float = 1e-7,
    ):  # fmt: skip
        super().__init__(parameters, lr)
        _at_least("Muon", weight_decay=weight_decay, momentum=momentum, steps=steps, eps=eps)
        for p in self.parameters:
            if p.ndim < 2:
                raise ValueError(f"Muon: a parameter of shape {p.shape} is no matrix: give it to another optimiser")
        self.weight_decay, self.momentum, self.nesterov, self.steps, self.eps = (
            weight_decay, momentum, nesterov, steps, eps,
        )  # fmt: skip
        self.velocity = self._memory()

    def _update(self, i: int, p: Tensor, g: Tensor) -> list[Tensor]:
        velocity = self.velocity[i]
        velocity.assign(velocity * self.momentum + g * (1 - self.momentum))
        step = g * (1 - self.momentum) + velocity * self.momentum if self.nesterov else velocity
        matrix = step.flatten(1)
        rows, columns = matrix.shape
        scale = math.sqrt(max(1.0, size_max(rows) / size_max(columns)))
        direction = self.orthogonalize(matrix).reshape(*p.shape)
        kept = p.detach() * (1 - self.lr * self.weight_decay)
        self._write(p, kept - self.lr * scale * direction)
        return [velocity]

    def orthogonalize(self, matrix: Tensor) -> Tensor:
        """(m, n) → about U Vᵀ of its singular value decomposition: singular values near 1."""
        a, b, c = self.COEFFICIENTS
        tall = size_max(matrix.shape[0]) > size_max(matrix.shape[1])
        x = matrix.transpose(0, 1) if tall else matrix
        x = (x / _norm(x).maximum(self.eps)).contiguous()
        for _ in range(self.steps):
            square = (x @ x.transpose(0, 1)).contiguous()
            x = (x * a + (square * b + (square @ square) * c).contiguous() @ x).contiguous()
        return x.transpose(0, 1) if tall else x


class OptimizerGroup:
    """Several optimisers, each for its own parameters, that step together."""

    def __init__(self, *optimizers: Optimizer):
        self.optimizers = optimizers
        self.parameters = [p for o in optimizers for p in o.parameters]
        if len({id(p) for p in self.parameters}) != len(self.parameters):
            raise ValueError("OptimizerGroup: a parameter belongs to two optimisers")

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for o in self.optimizers:
            o.zero_grad()

    def step(self) -> None:
        """Update all parameters that have gradients, now."""
        first, *rest = self.schedule_step()
        first.realize(*rest)

    def schedule_step(self) -> list[Tensor]:
        """The lazy updates of all optimisers; what is returned must be realised."""
        return [t for o in self.optimizers for t in o.schedule_step()]


# -- gradients --------------------------------------------------------------------------------------------------------
def clip_grad_norm_(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """Scale all gradients so that their Euclidean norm together is at most `max_norm`; returns the norm before.

    ValueError where no parameter has a gradient (Pascanu et al. 2013).
    """
    held = [(p, p.grad) for p in parameters if p.grad is not None]
    if not held:
        raise ValueError("clip_grad_norm_: no parameter has a gradient: call backward() on a loss first")
    total = held[0][1].float().square().sum()
    for _, g in held[1:]:
        total = total + g.float().square().sum()
    norm = total.sqrt()
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for p, g in held:
        p.grad = (g * factor).cast(g.dtype)
    return norm


def clip_grad_value_(parameters: Iterable[Tensor], clip_value: float) -> None:
    """Bring every element of every gradient into [-clip_value, clip_value]."""
    for p in parameters:
        if p.grad is not None:
            p.grad = p.grad.clamp(-clip_value, clip_value)


# -- learning rates ---------------------------------------------------------------------------------------------------
class LRScheduler:
    """Sets the learning rate of an optimiser before each step: the first one's times `factor(number of steps so far)`.

    `step()` moves on; `last_lr` is the present learning rate.
    """

    def __init__(self, optimizer: Optimizer, factor: Callable[[int], float]):
        self.optimizer, self.factor, self.steps = optimizer, factor, 0
        self.initial_lr = float(optimizer.lr.numpy()[0])
        self.last_lr = self.initial_lr
        self._set()

    def step(self) -> None:
        """One step of training has been done."""
        self.steps += 1
        self._set()

    def _set(self) -> None:
        lr = self.initial_lr * self.factor(self.steps)
        if lr != self.last_lr:
            self.optimizer.set_lr(lr)
            self.last_lr = lr


def step_factor(step_size: int, gamma: float = 0.1) -> Callable[[int], float]:
    """The rate times `gamma` every `step_size` steps."""
    return lambda step: gamma ** (step // step_size)


def exponential_factor(gamma: float) -> Callable[[int], float]:
    """The rate times `gamma` every step."""
    return lambda step: gamma**step


def cosine_factor(steps: int, lowest: float = 0.0) -> Callable[[int], float]:
    """Half a cosine from 1 down to `lowest` within `steps`, then `lowest` (Loshchilov and Hutter 2017)."""
    return lambda step: lowest + (1 - lowest) * 0.5 * (1 + math.cos(math.pi * min(step / steps, 1.0)))


def warmup_factor(steps: int, then: Callable[[int], float] | None = None) -> Callable[[int], float]:
    """From 1/steps up to 1 in a straight line within `steps`, then `then`, counted from there (1 without it)."""

    def factor(step: int) -> float:
        if step < steps:
            return (step + 1) / steps
        return 1.0 if then is None else then(step - steps)

    return factor


def one_cycle_factor(
    steps: int, start: float = 1 / 25, end: float = 1e-4, rising: float = 0.3
) -> Callable[[int], float]:
    """Up from `start` to 1 in the first `rising` part of `steps`, then down to `start · end`, both along half a cosine
    (Smith and Topin 2018)."""

    def factor(step: int) -> float:
        turn = rising * steps - 1
        if step <= turn:
            low, high, at = start, 1.0, step / turn
        else:
            low, high, at = 1.0, start * end, min((step - turn) / (steps - 1 - turn), 1.0)
        return high + (low - high) * 0.5 * (1 + math.cos(math.pi * at))

    return factor


# -- helpers ----------------------------------------------------------------------------------------------------------
def _zeros(p: Tensor) -> Tensor:
    return p.empty_like(dtypes.float32)


def _norm(x: Tensor) -> Tensor:
    return x.square().sum().sqrt()


def _trust(p: Tensor, step: Tensor) -> Tensor:
    size, length = _norm(p), _norm(step)
    return (size > 0).logical_and(length > 0).where(size / length, 1.0)


def _at_least(method: str, **values: float) -> None:
    """ValueError for negative hyper-parameters."""
    for name, value in values.items():
        if not value >= 0:
            raise ValueError(f"{method}: {name} must be at least 0, got {value}")
