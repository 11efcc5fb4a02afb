"""Sampling against a plain NumPy version of the same rules, its distribution, and its cost."""

import numpy as np
import pytest

from tinyweb import Tensor, Variable
from tinyweb.nn.sampling import _largest, _threshold, greedy, sample
from tinyweb.tracing import capture, jit

DEVICES = ("CPU", "WASM", "WEBGPU")
VOCABULARY, CONTEXT = 517, 200
STREAM = 0x746F6B65  # second word of the key; written out: exported pages must draw as they did before
RECENT = 64  # tokens that the repetition penalty looks back


# -- the reference -----------------------------------------------------------------------------------------------------
def rotate(x: np.ndarray, n: int) -> np.ndarray:
    return (x << np.uint32(n)) | (x >> np.uint32(32 - n))


def threefry_reference(key: tuple[int, int], counter: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """First word of Threefry-2x32-20, written from the paper."""
    with np.errstate(over="ignore"):
        k = [np.uint32(key[0]), np.uint32(key[1]), np.uint32(key[0] ^ key[1] ^ 0x1BD11BDA)]
        x, y = counter[0] + k[0], counter[1] + k[1]
        rotations = [13, 15, 26, 6, 17, 29, 16, 24]
        for r in range(20):
            x = x + y
            y = rotate(y, rotations[r % 8]) ^ x
            if r % 4 == 3:
                s = r // 4 + 1
                x, y = x + k[s % 3], y + k[(s + 1) % 3] + np.uint32(s)
    return x


def probabilities(
    logits: np.ndarray, recent: np.ndarray, temperature: float, top_k: int, top_p: float, penalty: float
) -> np.ndarray:
    """The distribution a token is drawn from, in float64, by sorting."""
    x = logits.astype(np.float64).copy()
    seen = np.unique(recent)
    x[seen] = np.where(x[seen] > 0, x[seen] / penalty, x[seen] * penalty)
    if temperature == 0:
        return np.eye(len(x))[x.argmax()]
    x /= temperature
    order = np.argsort(-x, kind="stable")
    p = np.exp(x - x.max())
    keep = order[: top_k or len(x)]
    share = np.cumsum(p[keep]) / p[keep].sum()
    keep = keep[: 1 + int((share < top_p).sum())] if top_p < 1 else keep
    out = np.zeros_like(p)
    out[keep] = p[keep]
    return out / out.sum()


def draw(p: np.ndarray, seed: int, position: int) -> tuple[int, float]:
    """The token that Gumbel noise makes the largest, and how far the second lies behind."""
    index = np.arange(len(p), dtype=np.uint32)
    words = threefry_reference((seed % 2**32, STREAM), (index, np.full_like(index, position)))
    u = np.minimum((words + 0.5) / 2**32, 1 - 2.0**-24)
    with np.errstate(divide="ignore"):
        score = np.log(p) - np.log(-np.log1p(-u))
    best, second = np.sort(score)[::-1][:2]
    return int(score.argmax()), float(best - second)


# -- running it --------------------------------------------------------------------------------------------------------
class Sampler:
    """One compiled sampler with its state."""

    def __init__(self, device: str = "CPU", vocabulary: int = VOCABULARY):
        self.position = Variable("start_pos", 0, CONTEXT - 1)
        self.run = jit(self._run)
        self.device, self.vocabulary = device, vocabulary

    def _run(self, logits: Tensor, ids: Tensor, floats: Tensor, integers: Tensor, position: object) -> Tensor:
        return sample(logits, ids.contiguous().realize(), position, floats, integers).realize()  # type: ignore[arg-type]

    def __call__(
        self, logits: np.ndarray, ids: np.ndarray, position: int, temperature: float = 1.0, top_k: int = 0,
        top_p: float = 1.0, penalty: float = 1.0, seed: int = 0,
    ) -> int:  # fmt: skip
        floats = np.array([temperature, top_p, penalty, 0], np.float32)
        integers = np.array([top_k, seed], np.int32)
        args = (logits.reshape(1, -1), ids, floats, integers)
        out = self.run(*(Tensor(a, device=self.device) for a in args), self.position.bind(position))
        after = out.numpy()
        others = np.arange(len(after)) != position + 1
        np.testing.assert_array_equal(after[others], ids[others])  # nothing else is written
        return int(after[position + 1])


@pytest.fixture(scope="module")
def samplers() -> dict[str, Sampler]:
    return {}


def sampler_on(samplers: dict[str, Sampler], device: str) -> Sampler:
    if device not in samplers:
        samplers[device] = Sampler(device)
    return samplers[device]


SETTINGS = [
    {"temperature": 1.0},
    {"temperature": 0.7, "top_k": 40, "top_p": 0.95},
    {"temperature": 1.5, "top_k": 5},
    {"temperature": 1.0, "top_p": 0.5},
    {"temperature": 0.3, "top_p": 0.9, "penalty": 1.3},
    {"temperature": 2.0, "top_k": 3, "top_p": 0.99, "penalty": 1.1},
    {"temperature": 1.0, "top_k": 1},
    {"temperature": 1.0, "top_p": 0.0},
    {"temperature": 0.0},
    {"temperature": 0.0, "penalty": 2.0, "top_k": 7, "top_p": 0.3},
]


def problem(seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Logits with a few likely tokens, ids that contain them, a position."""
    random = np.random.default_rng(seed)
    logits = (random.standard_normal(VOCABULARY) * 3).astype(np.float32)
    ids = random.integers(0, VOCABULARY, CONTEXT + 1).astype(np.int32)
    ids[::5] = logits.argsort()[-5:][random.integers(0, 5, len(ids[::5]))]
    return logits, ids, int(random.choice([0, 1, 5, 62, 63, 64, 65, 120, CONTEXT - 1]))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_same_token_as_the_reference(samplers: dict[str, Sampler], device: str, settings: dict[str, float]) -> None:
    run = sampler_on(samplers, device)
    for seed in range(8):
        logits, ids, position = problem(seed)
        recent = ids[max(position - RECENT + 1, 0) : position + 1]
        full = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "penalty": 1.0} | settings
        p = probabilities(logits, recent, **full)  # type: ignore[arg-type]
        want, lead = draw(p, seed - 4, position)
        got = run(logits, ids, position, seed=seed - 4, **settings)  # type: ignore[arg-type]
        assert got == want or (lead < 1e-4 and p[got] > 0)


@pytest.mark.parametrize("settings", SETTINGS[:6], ids=str)
def test_distribution(samplers: dict[str, Sampler], settings: dict[str, float]) -> None:
    """Over many seeds: no token outside the kept set, and frequencies that a chi-square test finds plausible."""
    run = sampler_on(samplers, "CPU")
    logits, ids, position = problem(3)
    recent = ids[max(position - RECENT + 1, 0) : position + 1]
    full = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "penalty": 1.0} | settings
    p = probabilities(logits, recent, **full)  # type: ignore[arg-type]
    n = 1500
    counts = np.bincount([run(logits, ids, position, seed=s, **settings) for s in range(n)], minlength=VOCABULARY)  # type: ignore[arg-type]
    assert counts[p == 0].sum() == 0
    common = p * n >= 5
    observed = np.append(counts[common], counts[~common].sum())
    expected = np.append(p[common], p[~common].sum()) * n
    chi = ((observed - expected) ** 2 / np.maximum(expected, 1e-9))[expected > 0.5].sum()
    freedom = max(int((expected > 0.5).sum()) - 1, 1)
    assert chi < freedom + 4 * np.sqrt(2 * freedom)


GRID = 32 / 4**9  # what a threshold is found to


def test_the_largest_that_holds() -> None:
    """Of [low, 0): the last multiple of low / 4⁹ at which it holds."""
    random = np.random.default_rng(0)
    for low in (-32.0, -8.0):
        step = -low / 4**9
        for places in (0, 1, 4, 4**9, *random.integers(0, 4**9, 1).tolist()):
            bound = low + places * step
            for at, want in ((bound, bound), (bound + step * 0.5, bound)):
                most = float(np.float32(at))
                got = _largest(Tensor(low, device="INTERPRETER"), lambda t: t <= most)  # noqa: B023
                assert got.item() == min(want, -step), (low, places)


@pytest.mark.parametrize(
    ("top_k", "top_p"),
    [(0, 1.0), (1, 1.0), (3, 1.0), (40, 1.0), (0, 0.0), (0, 0.9), (7, 0.5)],
)
def test_thresholds(top_k: int, top_p: float) -> None:
    """No more than a step below the least logit that is kept, and never above it; off: everything is kept."""
    x = (np.random.default_rng(top_k).standard_normal(40) * 4).astype(np.float32)
    x[5] = x.max() - 40  # no chance, but kept by a large top_k
    device = "INTERPRETER"
    found = _threshold(Tensor(x, device=device), Tensor(top_k, device=device), Tensor(top_p, device=device)).item()
    order = np.sort(x.astype(np.float64))[::-1]
    counted = order[: top_k or 40]
    p = np.exp(counted - order[0])
    kept = counted[: int((np.cumsum(p) < p.sum() * np.float32(top_p)).sum()) + 1] if top_p < 1 else counted
    if top_k == 0 and top_p == 1:
        assert found == -np.inf
    elif len(kept) > 39:
        assert abs(found - (order[0] - 32)) < 1e-5  # farther down nothing is looked for
    else:
        assert kept[-1] - 1.05 * GRID <= found <= kept[-1] + 2e-6


def test_logits_at_a_threshold_are_kept() -> None:
    """0, -1, -2, …: of the three likeliest 0.91 of the probability are in two, and 0.66 in one."""
    x = Tensor(-np.arange(9, dtype=np.float32), device="INTERPRETER")
    for top_p, want in ((0.95, -2), (0.9, -1), (0.6, 0)):
        top_k, share = (Tensor(v, device="INTERPRETER") for v in (3, top_p))
        assert want - 1.05 * GRID <= _threshold(x, top_k, share).item() <= want


def test_positions_and_seeds_are_independent(samplers: dict[str, Sampler]) -> None:
    run = sampler_on(samplers, "CPU")
    flat, ids = np.zeros(VOCABULARY, np.float32), np.zeros(CONTEXT + 1, np.int32)
    by_seed = [run(flat, ids, 5, seed=s) for s in range(60)]
    by_position = [run(flat, ids, q, seed=1) for q in range(60)]
    assert len(set(by_seed)) > 50 and len(set(by_position)) > 50
    assert by_seed[:10] == [run(flat, ids, 5, seed=s) for s in range(10)]


def test_extreme_logits(samplers: dict[str, Sampler]) -> None:
    run = sampler_on(samplers, "CPU")
    ids = np.zeros(CONTEXT + 1, np.int32)
    masked = np.full(VOCABULARY, -np.inf, np.float32)
    masked[[7, 99]] = 0
    found = {run(masked, ids, 3, seed=s, top_k=50, top_p=0.95) for s in range(30)}
    assert found == {7, 99}
    large = np.zeros(VOCABULARY, np.float32)
    large[11] = 1e30
    assert run(large, ids, 3, temperature=0.7, top_k=40, top_p=0.9) == 11
    # a token that has no chance is never drawn, however the cuts are set
    tail = np.full(VOCABULARY, -37, np.float32)
    tail[13] = 0
    assert {run(tail, ids, 3, seed=s) for s in range(50)} == {13}


@pytest.mark.parametrize("position", [5, RECENT - 1, RECENT, 150])
def test_the_penalty_looks_back_over_a_window(samplers: dict[str, Sampler], position: int) -> None:
    """The oldest token of the window is made less likely, the one before it is not; nor is one that comes later."""
    run = sampler_on(samplers, "CPU")
    oldest = max(position - RECENT + 1, 0)
    for place, penalised in ((oldest, True), (position, True), (oldest - 1, False), (position + 1, False)):
        if place < 0:
            continue
        logits, ids = np.zeros(VOCABULARY, np.float32), np.full(CONTEXT + 1, 9, np.int32)
        ids[place] = 3
        logits[[3, 5]] = 4, 3
        assert run(logits, ids, position, temperature=0.0, penalty=2.0) == (5 if penalised else 3), place


@pytest.mark.parametrize("device", DEVICES)
def test_greedy_takes_the_lowest_of_equals(device: str) -> None:
    position = Variable("start_pos", 0, CONTEXT - 1)
    for hits, want in (([3, 400], 3), ([516], 516), ([0, 1], 0), ([], 0)):
        logits = np.full(VOCABULARY, -2.5, np.float32)
        logits[hits] = 4.0
        ids = Tensor(np.zeros(CONTEXT + 1, np.int32), device=device)
        out = greedy(Tensor(logits.reshape(1, -1), device=device), ids, position.bind(17)).numpy()
        assert out[18] == want and np.count_nonzero(out) == (want != 0)


@pytest.mark.parametrize("vocabulary", [VOCABULARY, 4096, 128_256])
def test_few_kernels(vocabulary: int) -> None:
    """Within the budget of a decoded token: at most 5 to draw, 2 to take the maximum."""
    logits, ids = Tensor.empty(1, vocabulary), Tensor(np.zeros(CONTEXT + 1, np.int32))
    floats, integers = Tensor(np.zeros(4, np.float32)), Tensor(np.zeros(2, np.int32))
    position = Variable("start_pos", 0, CONTEXT - 1).bind(3)
    plan = capture(lambda: sample(logits, ids, position, floats, integers).realize())
    assert len(plan.calls) <= 5
    # rows that divide evenly need no bounds checks
    assert max(u.arg.size for u in plan.temporaries) == -(-vocabulary // 256) * 256
    assert len(capture(lambda: greedy(logits, ids, position).realize()).calls) <= 2
