"""The parts of an encoder: what an architecture chooses. Norms, attention and MLPs are the records of decoders.

Nothing here knows an architecture's name or a checkpoint's; `architectures` fills these records in.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinyweb.models.decoder.config import ModelConfig, Names, NormConfig


@dataclass(frozen=True)
class RelativeConfig:
    """What is added to the scores of all layers for the distance of key and query.

    `buckets`: rows of a table, of which half are for keys behind the query: near distances have a row each, farther
    ones share rows on a logarithmic scale up to `farthest` (Raffel et al. 2020). None: the distance times a slope of
    each head, as a loss (ALiBi; Press et al. 2022).
    """

    buckets: int | None = None
    farthest: int = 128


@dataclass(frozen=True)
class DisentangledConfig:
    """Scores have a part for a content and a position, beside that of two contents (He et al. 2021).

    The table of positions has `reach` rows for keys behind the query and as many for those before it; with `buckets`
    farther distances, up to `farthest`, share rows on a logarithmic scale. `keys`: queries meet the keys of positions;
    `queries`: keys meet their queries. `shared`: made with the matrices of the text. `norm`: of the table.
    """

    reach: int
    farthest: int
    buckets: bool
    keys: bool
    queries: bool
    shared: bool
    norm: NormConfig | None


@dataclass(frozen=True)
class EncoderConfig(ModelConfig):
    """A network that reads a text at once and makes a vector of each token.

    `model_type`: what config.json calls it. `norm_sums`: norms behind attention and MLP are of what came in and what is
    added (post-norm), not of what is added alone. `embedding_norm`, `norm`: of the first and of the last hidden states.
    `first_position`: positions are rows of a table from this one on; None: there is no table. `token_types`: rows of
    the table for parts of a text; 0: there is none. `relative`: scores know distances; `disentangled`: together with
    contents. `causal`: a token sees only what is before it, as in a decoder.

    A layer's `window` holds on both sides: a token sees those less than so many positions away.
    """

    model_type: str
    embedding_norm: NormConfig | None = None
    norm: NormConfig | None = None
    norm_sums: bool = False
    first_position: int | None = None
    token_types: int = 0
    relative: RelativeConfig | None = None
    disentangled: DisentangledConfig | None = None
    causal: bool = False


@dataclass(frozen=True)
class ImageConfig(ModelConfig):
    """A network that reads a picture, square patches of it as if they were tokens; there is no vocabulary.

    `size`: pixels of the picture's sides, `patch`: of a patch's. `first_norm`: of what the first layer reads, `norm`:
    of what the last one makes. `first_token`: a learned token comes first, whose state is the picture's; else one query
    of an attention asks all patches, and goes through an MLP.
    """

    size: int
    patch: int
    norm: NormConfig
    first_norm: NormConfig | None = None
    first_token: bool = True


@dataclass(frozen=True)
class EncoderNames(Names):
    """What a checkpoint calls the parts of an encoder beside those that a decoder has. `up_first`: of a fused matrix
    the rows of `up` are before those of `gate`."""

    embedding_norm: str = "embeddings.LayerNorm"
    token_types: str = "embeddings.token_type_embeddings"
    relative: str = "encoder.relative_attention_bias"
    places: str = "encoder.rel_embeddings"
    places_norm: str = "encoder.LayerNorm"
    place_key: str = "attention.self.pos_key_proj"
    place_query: str = "attention.self.pos_query_proj"
    up_first: bool = False
