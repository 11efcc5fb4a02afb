"""Model configurations and small helpers shared by the training scripts."""
import math

import torch
import torch.nn.functional as F
from torch import nn

SIZE = 64                 # pixels
LATENT = 16               # latents are 4 x 16 x 16
SCALING = 0.18215         # SD v1's factor; the encoder's means are the latents divided by it

VAE_CONFIG = dict(
    in_channels=3, out_channels=3, latent_channels=4, sample_size=SIZE,
    block_out_channels=[16, 32, 64], layers_per_block=1, act_fn="silu", norm_num_groups=8,
    down_block_types=["DownEncoderBlock2D"] * 3, up_block_types=["UpDecoderBlock2D"] * 3,
    scaling_factor=SCALING)

UNET_CONFIG = dict(
    sample_size=LATENT, in_channels=4, out_channels=4, block_out_channels=[48, 96, 128],
    layers_per_block=1, cross_attention_dim=128, attention_head_dim=4, act_fn="silu",
    down_block_types=["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
    up_block_types=["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
    norm_num_groups=8, norm_eps=1e-5, flip_sin_to_cos=True, freq_shift=0,
    center_input_sample=False, downsample_padding=1, mid_block_scale_factor=1)

TEXT_CONFIG = dict(
    hidden_size=128, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4,
    max_position_embeddings=32, hidden_act="quick_gelu", layer_norm_eps=1e-5,
    projection_dim=128)

# What a latent is: the mean of a 4x4 block of pixels, its three colour values turned onto
# uncorrelated axes of unit variance, and as a fourth value the share of the block that shapes cover.
COLOUR_MEAN = [0.6539, 0.5907, 0.5837]
COLOUR_AXES = [[-2.2903, 4.9726, -2.8674], [2.8388, 0.0115, -2.2474], [-1.3499, -1.6097, -1.7133]]
COVER_MEAN, COVER_STD = 0.1162, 0.2904


def latents(img, cover):
    """img [n,3,64,64] in 0..1, cover [n,1,64,64] -> [n,4,16,16], about unit variance."""
    block = F.avg_pool2d(img, SIZE // LATENT) - torch.tensor(COLOUR_MEAN)[:, None, None]
    colour = torch.einsum("ij,njhw->nihw", torch.tensor(COLOUR_AXES), block)
    share = (F.avg_pool2d(cover, SIZE // LATENT) - COVER_MEAN) / COVER_STD
    return torch.cat([colour, share], 1)


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.v_proj, self.out_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = [f(x).view(b, n, self.heads, -1).transpose(1, 2)
                   for f in (self.q_proj, self.k_proj, self.v_proj)]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out_proj(y.transpose(1, 2).reshape(b, n, d))


class Mlp(nn.Module):
    def __init__(self, dim, inner):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, inner), nn.Linear(inner, dim)

    def forward(self, x):
        x = self.fc1(x)
        return self.fc2(x * torch.sigmoid(1.702 * x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, eps = c["hidden_size"], c["layer_norm_eps"]
        self.self_attn = SelfAttention(d, c["num_attention_heads"])
        self.layer_norm1, self.layer_norm2 = nn.LayerNorm(d, eps), nn.LayerNorm(d, eps)
        self.mlp = Mlp(d, c["intermediate_size"])

    def forward(self, x):
        x = x + self.self_attn(self.layer_norm1(x))
        return x + self.mlp(self.layer_norm2(x))


class TextModel(nn.Module):
    def __init__(self, c, vocab):
        super().__init__()
        d = c["hidden_size"]
        self.embeddings = nn.ModuleDict({
            "token_embedding": nn.Embedding(vocab, d),
            "position_embedding": nn.Embedding(c["max_position_embeddings"], d)})
        self.encoder = nn.ModuleDict({
            "layers": nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))})
        self.final_layer_norm = nn.LayerNorm(d, c["layer_norm_eps"])
        for e in self.embeddings.values():
            nn.init.normal_(e.weight, std=0.1)
        for name, p in self.named_parameters():
            if name.endswith(("out_proj.weight", "fc2.weight")):
                p.data.mul_(0.35)

    def forward(self, ids):
        x = self.embeddings["token_embedding"](ids) + \
            self.embeddings["position_embedding"].weight[:ids.shape[1]]
        for layer in self.encoder["layers"]:
            x = layer(x)
        return self.final_layer_norm(x)


class ClipText(nn.Module):
    """CLIP's text transformer with SD v1's parameter names; returns all states."""

    def __init__(self, vocab, config=TEXT_CONFIG):
        super().__init__()
        self.text_model = TextModel(config, vocab)

    def forward(self, ids):
        return self.text_model(ids)


def make_vae():
    from diffusers import AutoencoderKL
    m = AutoencoderKL(**VAE_CONFIG)
    for name, p in m.named_parameters():       # residual branches start at zero
        if ".conv2." in name or ".to_out." in name:
            nn.init.zeros_(p)
    return m


def make_unet():
    """A UNet that starts as the identity: noise in, noise out.

    Every latent channel travels as a pair (+x, -x) through the outermost skip connection, and
    silu(a) - silu(-a) = a.  Two constants beside each pair hold the last group norm's scale steady,
    so that the noise's own size stays visible.
    """
    from diffusers import UNet2DConditionModel
    m = UNet2DConditionModel(**UNET_CONFIG)
    for name, p in m.named_parameters():       # residual branches start at zero
        if name.endswith(("conv2.weight", "conv2.bias", "proj_out.weight", "proj_out.bias",
                          "conv_out.weight", "conv_out.bias")):
            nn.init.zeros_(p)
    with torch.no_grad():
        last = m.up_blocks[-1].resnets[-1].conv_shortcut
        width = m.conv_in.weight.shape[0]
        side = last.weight.shape[1] - width                    # where the skip channels begin
        group = width // UNET_CONFIG["norm_num_groups"]
        for c in range(4):
            for k, sign in ((group * c, 1.0), (group * c + 1, -1.0)):
                m.conv_in.weight[k] = 0
                m.conv_in.weight[k, c, 1, 1] = sign
                m.conv_in.bias[k] = 0
                last.weight[k] = 0
                last.weight[k, side + k] = 1
                last.bias[k] = 0
                m.conv_out.weight[c, k, 1, 1] = sign
            for k, value in ((group * c + 2, 3.0), (group * c + 3, -3.0)):
                last.weight[k] = 0
                last.bias[k] = value
        x = torch.randn(8, 4, LATENT, LATENT)
        y = m(x, torch.full((8,), 500), torch.zeros(8, 4, UNET_CONFIG["cross_attention_dim"])).sample
        m.conv_out.weight /= ((x * y).sum((0, 2, 3)) / (x * x).sum((0, 2, 3)))[:, None, None, None]
    return m


def alphas_cumprod():
    betas = torch.linspace(0.00085 ** 0.5, 0.012 ** 0.5, 1000, dtype=torch.float64) ** 2
    return torch.cumprod(1 - betas, 0).float()


@torch.no_grad()
def ddim(unet, cond, uncond, latents, steps=20, guidance=5.0):
    """Deterministic DDIM with SD v1's time steps; returns the final latents."""
    ac = alphas_cumprod().to(latents.device)
    gap = 1000 // steps
    ctx = torch.cat([uncond.expand_as(cond), cond])
    for i in reversed(range(steps)):
        t = i * gap + 1
        a = ac[t]
        b = ac[t - gap] if t >= gap else ac[0]
        e = unet(torch.cat([latents, latents]), torch.full((2 * len(latents),), t, device=latents.device),
                 ctx).sample.float()
        u, c = e.chunk(2)
        e = u + guidance * (c - u)
        x0 = (latents - (1 - a).sqrt() * e) / a.sqrt()
        latents = b.sqrt() * x0 + (1 - b).sqrt() * e
    return latents


def lr_at(progress, peak, warm=0.03, floor=0.01):
    """Warm-up and cosine decay by the share of the time that has passed."""
    if progress < warm:
        return peak * max(progress / warm, 0.01)
    t = min((progress - warm) / (1 - warm), 1.0)
    return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * t)))
