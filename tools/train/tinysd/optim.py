"""Muon for the matrices, Adam for the rest, with clipping and an averaged copy of the weights.

Muon (Jordan et al., 2024): the momentum of a weight matrix is replaced by the nearest
semi-orthogonal matrix, found by five Newton-Schulz steps; convolutions count as matrices of
one row per output channel.
"""
import torch


def orthogonal(g, steps=5):
    x = g.T if g.shape[0] > g.shape[1] else g
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        a = x @ x.T
        x = 3.4445 * x + (2.0315 * a @ a - 4.7750 * a) @ x
    return x.T if g.shape[0] > g.shape[1] else x


class Mixed:
    """`named`: [(name, parameter)]; `outer`: parts of names of the first and last layers, left to Adam."""

    def __init__(self, named, outer, lr=1e-3, matrix_lr=3e-3, ema=0.999, slow=(), turns=1):
        self.params = [p for _, p in named]
        self.average = [p.detach().clone() for p in self.params]
        use = [p.dim() >= 2 and not any(o in k for o in outer) for k, p in named]
        self.matrix = [p for p, u in zip(self.params, use) if u]
        plain = [p for p, u in zip(self.params, use) if not u]
        self.gain = [0.25 if any(s in k for s in slow) else 1.0 for (k, _), u in zip(named, use) if u]
        self.momentum = [torch.zeros_like(p) for p in self.matrix]
        self.lr, self.matrix_lr, self.ema, self.turns, self.count = lr, matrix_lr, ema, turns, 0
        self.adam = torch.optim.AdamW(plain, lr=lr, betas=(0.9, 0.99), weight_decay=0.0, foreach=True)

    @torch.no_grad()
    def step(self, scale):
        """One update at `scale` times the peak rates; returns the gradient's norm before clipping."""
        norm = torch.nn.utils.clip_grad_norm_(self.params, 1.0, foreach=True)
        for g in self.adam.param_groups:
            g["lr"] = self.lr * scale
        self.adam.step()
        rate = self.matrix_lr * scale
        for i, (p, m, gain) in enumerate(zip(self.matrix, self.momentum, self.gain)):
            m.lerp_(p.grad, 0.05)
            if (i + self.count) % self.turns:        # orthogonalisation is dear: matrices take turns
                continue
            d = p.grad.lerp(m, 0.95).reshape(p.shape[0], -1)
            move = orthogonal(d).reshape(p.shape) * (0.2 * max(d.shape) ** 0.5)
            p.mul_(1 - 0.01 * rate * gain).sub_(move, alpha=rate * gain)
        for p in self.params:
            p.grad = None
        self.count += 1
        decay = min(self.ema, (1 + self.count) / (10 + self.count))
        torch._foreach_lerp_(self.average, [p.detach() for p in self.params], 1 - decay)
        return norm

    @torch.no_grad()
    def swap(self):
        """Exchanges the weights and their average, to look at the average; call again to go back."""
        for p, a in zip(self.params, self.average):
            keep = p.detach().clone()
            p.data.copy_(a)
            a.copy_(keep)

    def state(self):
        return dict(params=[p.detach() for p in self.params], average=self.average, momentum=self.momentum,
                    adam=self.adam.state_dict(), count=self.count)

    @torch.no_grad()
    def load(self, state):
        for mine, theirs in ((self.params, state["params"]), (self.average, state["average"]),
                             (self.momentum, state["momentum"])):
            for a, b in zip(mine, theirs, strict=True):
                a.copy_(b)
        self.adam.load_state_dict(state["adam"])
        self.count = state["count"]
