"""Writes the trained parts in diffusers' folders, and reference values for tests.

    python export.py --out OUT --tokenizer TOK --to assets/models/tinysd
OUT holds average.pt of train_unet.py and vae.pt of train_vae.py.  Weights become float16; the
reference values (golden.safetensors, golden.json) are float32 arithmetic on these float16
weights with diffusers and transformers on a CPU.
"""
import argparse
import json
import os
import shutil

import torch
from safetensors.torch import save_file

import common
import tokenizer

PROMPT, SEED, STEPS, GUIDANCE = "a red circle to the left of a blue star on a yellow background", 11, 10, 5.0
SPREAD = 0.02             # the encoder's fixed standard deviation, in latents of unit variance

SCHEDULER = {
    "_class_name": "DDIMScheduler", "_diffusers_version": "0.6.0",
    "beta_end": 0.012, "beta_schedule": "scaled_linear", "beta_start": 0.00085,
    "clip_sample": False, "num_train_timesteps": 1000, "prediction_type": "epsilon",
    "set_alpha_to_one": False, "steps_offset": 1, "timestep_spacing": "leading",
    "trained_betas": None}

INDEX = {
    "_class_name": "StableDiffusionPipeline", "_diffusers_version": "0.6.0",
    "feature_extractor": [None, None], "requires_safety_checker": False,
    "safety_checker": [None, None], "scheduler": ["diffusers", "DDIMScheduler"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "unet": ["diffusers", "UNet2DConditionModel"], "vae": ["diffusers", "AutoencoderKL"]}


def put(folder, name, value):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "w") as f:
        f.write(json.dumps(value, indent=2) + "\n")


def weights(state, folder, name):
    os.makedirs(folder, exist_ok=True)
    state = {k: v.half().contiguous() for k, v in state.items()}
    assert all(torch.isfinite(v).all() for v in state.values()), folder
    save_file(state, os.path.join(folder, name), metadata={"format": "pt"})
    os.chmod(os.path.join(folder, name), 0o644)


def scaled(state):
    """Folds the scaling factor into the two 1x1 convolutions beside the latents."""
    state = dict(state)
    s = common.SCALING
    w, b = state["quant_conv.weight"].clone(), state["quant_conv.bias"].clone()
    w[:4], b[:4] = w[:4] / s, b[:4] / s
    w[4:], b[4:] = 0.0, 2 * torch.log(torch.tensor(SPREAD / s))
    state["quant_conv.weight"], state["quant_conv.bias"] = w, b
    state["post_quant_conv.weight"] = state["post_quant_conv.weight"] * s
    return state


def layout(out, tok_folder, to):
    trained = torch.load(os.path.join(out, "average.pt"))
    tok = tokenizer.Tokenizer.load(tok_folder)
    put(to, "model_index.json", INDEX)
    put(os.path.join(to, "scheduler"), "scheduler_config.json", SCHEDULER)
    shutil.copytree(tok_folder, os.path.join(to, "tokenizer"), dirs_exist_ok=True)
    put(os.path.join(to, "text_encoder"), "config.json", dict(
        architectures=["CLIPTextModel"], model_type="clip_text_model", vocab_size=len(tok.ids),
        bos_token_id=tok.bos, eos_token_id=tok.eos, pad_token_id=tok.eos, attention_dropout=0.0,
        dropout=0.0, initializer_factor=1.0, initializer_range=0.02, torch_dtype="float16",
        **common.TEXT_CONFIG))
    weights(trained["text"], os.path.join(to, "text_encoder"), "model.safetensors")
    for name, make, state in (("unet", common.make_unet, trained["unet"]),
                              ("vae", common.make_vae, scaled(torch.load(os.path.join(out, "vae.pt"))))):
        make().save_config(os.path.join(to, name))
        weights(state, os.path.join(to, name), "diffusion_pytorch_model.safetensors")
    print("%d steps, %.0f minutes" % (trained["steps"], trained["minutes"]))


@torch.no_grad()
def golden(to):
    from diffusers import StableDiffusionPipeline
    pipe = StableDiffusionPipeline.from_pretrained(to, safety_checker=None, torch_dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    ours = tokenizer.Tokenizer.load(os.path.join(to, "tokenizer"))

    def encode(text):
        ids = pipe.tokenizer(text, padding="max_length", max_length=tokenizer.MAX_LEN,
                             truncation=True, return_tensors="pt").input_ids
        assert ids[0].tolist() == ours(text), text
        return ids, pipe.text_encoder(ids)[0]

    ids, emb = encode(PROMPT)
    blank_ids, blank = encode("")
    z = torch.randn(1, 4, common.LATENT, common.LATENT, generator=torch.Generator().manual_seed(SEED))
    pipe.scheduler.set_timesteps(STEPS)
    times = pipe.scheduler.timesteps.tolist()
    last = []
    final = pipe(PROMPT, latents=z.clone(), num_inference_steps=STEPS, guidance_scale=GUIDANCE, eta=0.0, output_type="latent",
                 callback_on_step_end=lambda p, n, t, kw: last.append(kw["latents"].clone()) or kw).images
    assert torch.equal(final, last[-1])
    mine = common.ddim(pipe.unet, emb, blank, z, STEPS, GUIDANCE)
    assert (mine - final).abs().max() < 1e-3, (mine - final).abs().max()
    image = pipe.vae.decode(final / pipe.vae.config.scaling_factor).sample
    picture = ((image / 2 + 0.5).clamp(0, 1) * 255).round() / 127.5 - 1
    mean = pipe.vae.encode(picture).latent_dist.mean
    keep = {
        "input_ids": ids.int(), "uncond_input_ids": blank_ids.int(), "text_embeddings": emb, "uncond_embeddings": blank,
        "latents": z, "unet_cond": pipe.unet(z, times[0], emb).sample, "unet_uncond": pipe.unet(z, times[0], blank).sample,
        "latents_step1": last[0], "latents_final": final, "image": image,
        "vae_input": picture, "vae_mean": mean, "vae_decoded": pipe.vae.decode(mean).sample}
    path = os.path.join(to, "golden.safetensors")
    save_file({k: v.contiguous() for k, v in keep.items()}, path)
    os.chmod(path, 0o644)
    put(to, "golden.json", dict(
        prompt=PROMPT, seed=SEED, scheduler="DDIM", eta=0.0, steps=STEPS, guidance_scale=GUIDANCE, timesteps=times,
        scaling_factor=common.SCALING, dtype="float32 arithmetic on the float16 weights",
        tensors={
            "input_ids, uncond_input_ids": "token ids of the prompt and of the empty text, padded to 32",
            "text_embeddings, uncond_embeddings": "the text encoder's last hidden state after its final norm",
            "latents": "noise at the start (torch.randn with the seed)",
            "unet_cond, unet_uncond": "the UNet's output for `latents` at the first of the time steps",
            "latents_step1, latents_final": "after the first and after the last step, guidance as above",
            "image": "decoder's output for latents_final / scaling_factor; pixels are clamp(x / 2 + 0.5, 0, 1) * 255",
            "vae_input, vae_mean, vae_decoded": "the image rounded to bytes and as -1..1, the encoder's mean of it "
                                                "(not multiplied by the scaling factor), the decoder's output for that mean"}))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", required=True, help="the training's folder")
    ap.add_argument("--tokenizer", required=True)
    ap.add_argument("--to", required=True)
    args = ap.parse_args()
    torch.set_num_threads(1)
    layout(args.out, args.tokenizer, args.to)
    golden(args.to)


if __name__ == "__main__":
    main()
