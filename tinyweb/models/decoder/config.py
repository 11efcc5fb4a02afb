"""The parts of a decoder: what an architecture chooses, said once for each layer.

Nothing here knows an architecture's name or a checkpoint's; `architectures` fills these records in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tinyweb.nn.rotary import RotaryScaling


@dataclass(frozen=True)
class NormConfig:
    """x / sqrt(mean(x²) + eps) ("rms"), or x less its mean, divided by its deviation ("layer"); then · weight + bias.

    `offset` is added to the stored weights: Gemma's are distances from 1.
    """

    kind: str
    eps: float
    weight: bool = True
    bias: bool = False
    offset: float = 0.0


@dataclass(frozen=True)
class RotaryConfig:
    """Rotary positions of the first `turned` elements of each head.

    `interleaved`: the checkpoint's pairs are neighbours (x[2i], x[2i + 1]), else halves (x[i], x[i + turned/2]).
    """

    theta: float
    turned: int
    scaling: RotaryScaling = field(default_factory=RotaryScaling)
    interleaved: bool = False


@dataclass(frozen=True)
class GrowthConfig:
    """Scores of far positions grow: queries are multiplied with 1 + weight · log(1 + ⌊(position + first) / every⌋)."""

    weight: float
    every: int
    first: int = 0


@dataclass(frozen=True)
class AttentionConfig:
    """`heads` queries of `width` elements share `kv_heads` keys and values in groups of equal size.

    `scale`: of the scores. `softcap`: scores s become cap · tanh(s / cap). `rotary`: None: queries and keys know no
    positions. `window`: how many positions a token sees, its own included; None: all before it. `chunk`: it sees those
    of its own chunk of so many positions. `growth`: of queries, for far positions. `keys_of`: the number of the layer
    whose keys and values these are. `value_norm`: of values. `clip`: queries, keys
    and values are held within ± it, behind their norms. `sinks`: each head has one more score, whose value is 0.

    `norm` is that of queries and keys, before they are turned; `norm_of` what it goes over, and what has a weight of
    its own: "head" (one weight for all heads), "each head", "all heads" (their elements are normalised together).
    `norm_turned`: they are normalised when they are turned already. `slopes`: what scores of each head lose for each
    position between query and key. `gated`: what heads give is multiplied with a sigmoid of what is made beside
    queries.
    """

    heads: int
    kv_heads: int
    width: int
    scale: float
    rotary: RotaryConfig | None = None
    window: int | None = None
    chunk: int | None = None
    growth: GrowthConfig | None = None
    keys_of: int | None = None
    value_norm: NormConfig | None = None
    bias: bool = False
    output_bias: bool = False
    norm: NormConfig | None = None
    norm_of: str = "head"
    norm_turned: bool = False
    slopes: tuple[float, ...] | None = None
    gated: bool = False
    softcap: float | None = None
    clip: float | None = None
    sinks: bool = False


@dataclass(frozen=True)
class LatentConfig:
    """Attention whose keys and values are made of one vector of `rank` elements for each position.

    A head's queries and keys are `plain` elements and those of `rotary`, whose keys all heads share; its values are
    `value` elements. `query_rank`: queries are made of so many elements, None: of the hidden states. `norm`: of both
    vectors. `bias`: of the matrices that make them, and of the output.
    """

    heads: int
    rank: int
    plain: int
    value: int
    scale: float
    rotary: RotaryConfig
    norm: NormConfig
    query_rank: int | None = None
    bias: bool = False


@dataclass(frozen=True)
class ConvConfig:
    """In place of attention: a convolution over the last `taps` positions, channel by channel, between two gates."""

    taps: int
    bias: bool = False


@dataclass(frozen=True)
class StateSpaceConfig:
    """In place of attention: Mamba-2, `heads` of `width` elements with a state of `size` numbers for each of these.

    What is written to the state and read of it is the same for all heads of one of `groups`. A convolution over the
    last `taps` positions is before it; `norm`, over each of `norm_groups` parts of the channels, is behind it and its
    gate. `bias`: of input and output; `conv_bias`: of the convolution. Steps are held within `least_step` and
    `largest_step`.
    """

    heads: int
    width: int
    size: int
    groups: int
    taps: int
    activation: str
    norm: NormConfig | None
    norm_groups: int = 1
    bias: bool = False
    conv_bias: bool = True
    least_step: float = 0.0
    largest_step: float = math.inf


@dataclass(frozen=True)
class SelectiveConfig:
    """In place of attention: Mamba, `channels` with a state of `size` numbers each.

    A convolution over the last `taps` positions is before it. Steps are made through `rank` elements; `norm`, without
    weights: of these, and of what is written to the state and read of it. `bias`: of input and output; `conv_bias`: of
    the convolution.
    """

    channels: int
    size: int
    taps: int
    rank: int
    activation: str
    norm: NormConfig | None = None
    bias: bool = False
    conv_bias: bool = True


@dataclass(frozen=True)
class DeltaConfig:
    """In place of attention: the gated delta rule, `heads` with a state of `value` · `key` numbers each.

    Queries and keys are those of one of `key_heads` for several heads. A convolution over the last `taps` positions is
    before them; `norm`, over what each head reads, is before its gate.
    """

    heads: int
    key_heads: int
    key: int
    value: int
    taps: int
    activation: str
    norm: NormConfig


@dataclass(frozen=True)
class TimeMixConfig:
    """In place of attention: RWKV-7, `heads` of `width` elements with as many numbers of state for each of these.

    Decays, rates, gates and what values have of those of the first layer are made through so many elements. `norm`: of
    what each head reads. `first`: this is the first layer.
    """

    heads: int
    width: int
    decay_rank: int
    rate_rank: int
    gate_rank: int
    value_rank: int
    norm: NormConfig
    first: bool


MixerConfig = (
    AttentionConfig | LatentConfig | ConvConfig | StateSpaceConfig | SelectiveConfig | DeltaConfig | TimeMixConfig
)
STATES = (StateSpaceConfig, SelectiveConfig, DeltaConfig, TimeMixConfig)  # those that cannot go back


XIELU = "xielu"  # an activation whose numbers each layer has learned


@dataclass(frozen=True)
class MlpConfig:
    """down(f(gate(x)) · up(x)), or without `gated` down(f(up(x))), through `width` elements; f is an `activation`.

    `down_bias`: that of `down`; None: as `bias` says. `limit`: gate(x) is held below it, and up(x) within ± it.
    `shift` is added to up(x). `cut`: of gate(x) only what is more than so many deviations above its mean remains.
    `shifted`: what goes in is mixed with that of the token before.
    """

    width: int
    activation: str
    gated: bool = True
    bias: bool = False
    down_bias: bool | None = None
    limit: float | None = None
    shift: float = 0.0
    cut: float | None = None
    shifted: bool = False


@dataclass(frozen=True)
class ExpertsConfig:
    """Of `count` MLPs each token goes through the `chosen` ones of highest score; their sum is weighted by the scores.

    `scores`: "softmax" over all experts, or "sigmoid". `normalised`: those of the chosen are divided by their sum.
    `scale`: what they are multiplied with. `weighted_inputs`: what goes into experts is weighted, not what comes out.
    Of `groups` of experts only those of the `groups_chosen` ones are chosen whose `group_best` best scores have the
    largest sum. `router_bias`: what scores are made of has a bias; `choice_bias`: a bias is added where experts are
    chosen, not where they are weighted. `shared`: an MLP that all tokens go through, with `shared_gate` times the
    sigmoid of a score.
    """

    count: int
    chosen: int
    mlp: MlpConfig
    scores: str = "softmax"
    normalised: bool = True
    scale: float = 1.0
    weighted_inputs: bool = False
    groups: int = 1
    groups_chosen: int = 1
    group_best: int = 1
    router_bias: bool = False
    choice_bias: bool = False
    shared: MlpConfig | None = None
    shared_gate: bool = False


@dataclass(frozen=True)
class SideConfig:
    """Beside attention: x + norm(right(left(x))) through `rank` elements; both are then divided by √2."""

    rank: int
    norm: NormConfig


@dataclass(frozen=True)
class StreamsConfig:
    """`count` hidden states for each token, of which layers compute with the `active` one; and a table of `rows` ids,
    which gives each layer `width` elements. `norm`: of what it is made with. `scaled`: the active one, where it meets
    them."""

    count: int
    active: int
    width: int
    rows: int
    activation: str
    norm: NormConfig
    scaled: bool = True


@dataclass(frozen=True)
class LayerConfig:
    """x + mixer(x), then x + mlp(x), each with a norm before it, after it, both or none.

    The mixer is what brings positions together: attention, a convolution or a state. `mlp` None: there is no more.

    `parallel`: x + mixer(x) + mlp(x), where without a norm of its own the MLP reads what the mixer reads.
    `residual`: what both are multiplied with before they are added. `side`: what is beside the mixer.
    """

    mixer: MixerConfig
    mlp: MlpConfig | ExpertsConfig | None
    before_attention: NormConfig | None = None
    after_attention: NormConfig | None = None
    before_mlp: NormConfig | None = None
    after_mlp: NormConfig | None = None
    parallel: bool = False
    residual: float = 1.0
    side: SideConfig | None = None


@dataclass(frozen=True)
class ModelConfig:
    """What decoders and encoders have. `positions`: the longest text. `embedding_scale`: of embeddings."""

    vocab_size: int
    hidden_size: int
    positions: int
    layers: tuple[LayerConfig, ...]
    embedding_scale: float = field(default=1.0, kw_only=True)


@dataclass(frozen=True)
class DecoderConfig(ModelConfig):
    """A decoder-only language model.

    `learned_positions`: they are rows of a table that is added to the embedding. `logit_scale`: what logits are
    multiplied with; `logit_softcap`: logits l become cap · tanh(l / cap). `tied`: the head is the embedding.
    """

    norm: NormConfig
    tied: bool = False
    head_bias: bool = False
    learned_positions: bool = False
    logit_scale: float = 1.0
    logit_softcap: float | None = None
    embedding_norm: NormConfig | None = None
    streams: StreamsConfig | None = None


@dataclass(frozen=True)
class Names:
    """What a checkpoint calls the parts, without `.weight` and `.bias`.

    All but the head are below the one of `prefixes` that a checkpoint has: none, where it was saved without a head.
    Parts of a layer are below `layer`, where {} is its number. The table of positions begins with `unused_positions`
    rows that no token has. `qkv` and `gate_up` are one name where the matrices are one, rows below each other, or
    (`by_head`) for each key/value head its queries, the key and the value. `each_norm`: of norms
    with a weight for each head, {} the head; "" where these weights are one tensor. `transposed`: matrices are (in,
    out). `experts_gate_up` and `experts_down`: {} is the expert, or all are one tensor with a first axis for them,
    fused as `gate_up` is; `experts_transposed`: these are (experts, in, out) without `.weight`; `experts_woven`: gate
    and up in turns.
    """

    prefixes: tuple[str, ...] = ("model.",)
    embedding: str = "embed_tokens"
    positions: str = ""
    unused_positions: int = 0
    norm: str = "norm"
    embedding_norm: str = ""
    head: str = "lm_head"
    layer: str = "layers.{}."
    before_attention: str = "input_layernorm"
    after_attention: str = "post_attention_layernorm"
    before_mlp: str = "post_attention_layernorm"
    after_mlp: str = "post_feedforward_layernorm"
    qkv: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    output: str = "self_attn.o_proj"
    query_norm: str = "self_attn.q_norm"
    key_norm: str = "self_attn.k_norm"
    each_norm: str = ""
    sinks: str = "self_attn.sinks"
    gate_up: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj")
    down: str = "mlp.down_proj"
    mlp_shift: str = ""
    activation: str = "mlp.act_fn"
    by_head: bool = False
    transposed: bool = False
    query_down: str = "self_attn.q_a_proj"
    query_down_norm: str = "self_attn.q_a_layernorm"
    query_up: str = "self_attn.q_b_proj"
    latent: str = "self_attn.kv_a_proj_with_mqa"
    latent_norm: str = "self_attn.kv_a_layernorm"
    latent_up: str = "self_attn.kv_b_proj"
    conv: str = "conv.conv"
    conv_in: str = "conv.in_proj"
    conv_out: str = "conv.out_proj"
    state_space: str = "mixer."
    router: str = "mlp.gate"
    choice_bias: str = "mlp.gate.e_score_correction_bias"
    experts_gate_up: tuple[str, ...] = ("mlp.experts.{}.gate_proj", "mlp.experts.{}.up_proj")
    experts_down: str = "mlp.experts.{}.down_proj"
    experts_transposed: bool = False
    experts_woven: bool = False
    shared_gate_up: tuple[str, ...] = ("mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj")
    shared_down: str = "mlp.shared_expert.down_proj"
    shared_gate: str = "mlp.shared_expert_gate"
