"""From config.json to the parts of a decoder: one function for each family, and the table of names that it serves."""

from __future__ import annotations

from collections.abc import Callable

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.models.decoder.architectures import (
    cohere,
    deepseek,
    experts,
    first,
    gemma,
    glm,
    gpt,
    lfm,
    llama,
    mamba,
    olmo,
    rwkv,
)
from tinyweb.models.decoder.config import DecoderConfig, Names

Read = Callable[[Config], tuple[DecoderConfig, Names]]

ARCHITECTURES: dict[str, Read] = {
    "LlamaForCausalLM": llama.llama,
    "MistralForCausalLM": llama.mistral,
    "MinistralForCausalLM": llama.mistral,
    "Qwen2ForCausalLM": llama.qwen2,
    "Qwen3ForCausalLM": llama.qwen3,
    "MixtralForCausalLM": experts.mixtral,
    "Qwen2MoeForCausalLM": experts.qwen2_moe,
    "Qwen3MoeForCausalLM": experts.qwen3_moe,
    "GraniteMoeForCausalLM": experts.granite_moe,
    "OlmoeForCausalLM": experts.olmoe,
    "Qwen3NextForCausalLM": experts.qwen3_next,
    "GptOssForCausalLM": experts.gpt_oss,
    "Llama4ForCausalLM": experts.llama4,
    "Llama4ForConditionalGeneration": experts.llama4_with_pictures,
    "DeepseekV2ForCausalLM": deepseek.deepseek2,
    "DeepseekV3ForCausalLM": deepseek.deepseek3,
    "Lfm2ForCausalLM": lfm.lfm2,
    "Lfm2MoeForCausalLM": lfm.lfm2_moe,
    "MambaForCausalLM": mamba.mamba,
    "FalconMambaForCausalLM": mamba.falcon_mamba,
    "Mamba2ForCausalLM": mamba.mamba2,
    "GraniteMoeHybridForCausalLM": mamba.granite_hybrid,
    "BambaForCausalLM": mamba.bamba,
    "RWKV7ForCausalLM": rwkv.rwkv7,
    "Ministral3ForCausalLM": llama.ministral3,
    "GlmForCausalLM": glm.glm,
    "Glm4ForCausalLM": glm.glm4,
    "Ernie4_5ForCausalLM": glm.ernie,
    "Exaone4ForCausalLM": olmo.exaone4,
    "SmolLM3ForCausalLM": llama.smollm3,
    "GraniteForCausalLM": llama.granite,
    "Phi3ForCausalLM": llama.phi3,
    "GemmaForCausalLM": gemma.gemma,
    "Gemma2ForCausalLM": gemma.gemma2,
    "Gemma3ForCausalLM": gemma.gemma3,
    "Gemma3ForConditionalGeneration": gemma.gemma3_with_pictures,
    "Gemma3nForCausalLM": gemma.gemma3n,
    "Gemma3nForConditionalGeneration": gemma.gemma3n_with_pictures,
    "OlmoForCausalLM": olmo.olmo,
    "Olmo2ForCausalLM": olmo.olmo2,
    "Olmo3ForCausalLM": olmo.olmo3,
    "CohereForCausalLM": cohere.cohere,
    "Cohere2ForCausalLM": cohere.cohere2,
    "GPT2LMHeadModel": gpt.gpt2,
    "GPTNeoXForCausalLM": gpt.gpt_neox,
    "PhiForCausalLM": gpt.phi,
    "StableLmForCausalLM": gpt.stablelm,
    "Starcoder2ForCausalLM": gpt.starcoder2,
    "NemotronForCausalLM": gpt.nemotron,
    "ArceeForCausalLM": llama.plain_mlp,
    "SeedOssForCausalLM": llama.seed_oss,
    "HeliumForCausalLM": llama.helium,
    "CwmForCausalLM": llama.cwm,
    "VaultGemmaForCausalLM": gemma.vault_gemma,
    "Dots1ForCausalLM": deepseek.dots,
    "Glm4MoeForCausalLM": deepseek.glm4_moe,
    "GraniteMoeSharedForCausalLM": experts.granite_moe_shared,
    "FalconForCausalLM": first.falcon,
    "OPTForCausalLM": first.opt,
    "GPTJForCausalLM": first.gpt_j,
    "GPTNeoForCausalLM": first.gpt_neo,
    "GPTBigCodeForCausalLM": first.gpt_bigcode,
    "BloomForCausalLM": first.bloom,
    "MptForCausalLM": first.mpt,
    "MPTForCausalLM": first.mpt,
    "ApertusForCausalLM": llama.apertus,
    "HunYuanDenseV1ForCausalLM": llama.hunyuan,
}
"""By the names in `architectures` of config.json."""


def read_config(c: Config) -> tuple[DecoderConfig, Names]:
    """The decoder that a config.json describes, and what its checkpoint calls the parts.

    Raises ModelFormatError, which names the field that is missing, wrong or not supported.
    """
    named = c.values.get("architectures") or []
    known = (
        [name for name in named if isinstance(name, str) and name in ARCHITECTURES] if isinstance(named, list) else []
    )
    if not known:
        found = ", ".join(map(str, named))[:80] if isinstance(named, list) and named else "no architecture"
        raise ModelFormatError(f"{c.where} names {found}; supported here: {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[known[0]](c)
