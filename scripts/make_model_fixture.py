"""Write what small models give in torch, and their gradients, into a fixture that tests of nn read.

    python scripts/make_model_fixture.py tests/nn/fixtures/models.npz

runs by hand where torch 2.13 is installed (cubepy need not be). The models are defined here with
torch's modules, as transformers, timm and torchvision define them, with attention, rotations and
norms written out; `tests/nn/models` has them in `nn`, with the same names of weights. Weights and
inputs are drawn by NumPy, from the names, and are not stored: tests draw them again. Stored are
results, and of each gradient its norm and products with random vectors (see `summary`), in f64.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.nn.models.given import along, drawn, inputs, summary


def attention(q: Any, k: Any, v: Any, seen: Any = None) -> Any:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if seen is not None:
        scores = scores.masked_fill(~seen, -math.inf)
    return torch.softmax(scores, -1) @ v


def heads_of(x: Any, heads: int) -> Any:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def joined(x: Any) -> Any:
    return x.transpose(1, 2).flatten(2)


class RobertaLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.attention_output, self.attention_norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.intermediate, self.output = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.output_norm = nn.LayerNorm(width)

    def forward(self, x: Any, seen: Any) -> Any:
        q, k, v = (heads_of(part(x), self.heads) for part in (self.query, self.key, self.value))
        x = self.attention_norm(x + self.attention_output(joined(attention(q, k, v, seen))))
        return self.output_norm(x + self.output(F.gelu(self.intermediate(x))))


class Roberta(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.word, self.position = nn.Embedding(50, 16), nn.Embedding(20, 16)
        self.kind, self.norm = nn.Embedding(1, 16), nn.LayerNorm(16)
        self.layers = nn.ModuleList([RobertaLayer(16, 2) for _ in range(2)])
        self.dense, self.head_norm = nn.Linear(16, 16), nn.LayerNorm(16)
        self.head = nn.Linear(16, 50)

    def forward(self, ids: Any) -> Any:
        known = ids != 1
        positions = known.long().cumsum(1) * known + 1
        x = self.norm(self.word(ids) + self.position(positions) + self.kind(torch.zeros_like(ids)))
        for layer in self.layers:
            x = layer(x, known[:, None, None])
        return self.head(self.head_norm(F.gelu(self.dense(x))))


class Conv1D(nn.Module):
    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, out))
        self.bias = nn.Parameter(torch.empty(out))

    def forward(self, x: Any) -> Any:
        return torch.addmm(self.bias, x.flatten(0, -2), self.weight).view(*x.shape[:-1], -1)


class Gpt2Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = Conv1D(width, 3 * width), Conv1D(width, width)
        self.c_fc, self.c_out = Conv1D(width, 4 * width), Conv1D(4 * width, width)

    def forward(self, x: Any) -> Any:
        n = x.shape[1]
        q, k, v = (heads_of(p, self.heads) for p in self.c_attn(self.ln_1(x)).chunk(3, -1))
        seen = torch.ones(n, n, dtype=torch.bool).tril()
        x = x + self.c_proj(joined(attention(q, k, v, seen)))
        y = self.c_fc(self.ln_2(x))
        y = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
        return x + self.c_out(y)


class Gpt2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(50, 16), nn.Embedding(20, 16)
        self.h = nn.ModuleList([Gpt2Block(16, 2) for _ in range(2)])
        self.ln_f = nn.LayerNorm(16)

    def forward(self, ids: Any) -> Any:
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)


class LlamaNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, x: Any) -> Any:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = LlamaNorm(16), LlamaNorm(16)
        self.q_proj, self.o_proj = (nn.Linear(16, 16, bias=False) for _ in range(2))
        self.k_proj, self.v_proj = (nn.Linear(16, 8, bias=False) for _ in range(2))
        self.gate_proj, self.up_proj = (nn.Linear(16, 24, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(24, 16, bias=False)

    def rotated(self, x: Any) -> Any:
        inverse = 1.0 / (10000.0 ** (torch.arange(0, 4, 2, dtype=torch.float64) / 4))
        angles = torch.outer(torch.arange(x.shape[2], dtype=torch.float64), inverse)
        angles = torch.cat([angles, angles], -1)
        turned = torch.cat([-x[..., 2:], x[..., :2]], -1)
        return x * angles.cos() + turned * angles.sin()

    def forward(self, x: Any) -> Any:
        h, n = self.input_layernorm(x), x.shape[1]
        q, k = self.rotated(heads_of(self.q_proj(h), 4)), self.rotated(heads_of(self.k_proj(h), 2))
        v = heads_of(self.v_proj(h), 2)
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        seen = torch.ones(n, n, dtype=torch.bool).tril()
        x = x + self.o_proj(joined(attention(q, k, v, seen)))
        h = self.post_attention_layernorm(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


class VitBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        q, k, v = (heads_of(p, self.heads) for p in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.proj(joined(attention(q, k, v)))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Vit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, 16, 4, stride=4)
        self.cls_token = nn.Parameter(torch.empty(1, 1, 16))
        self.pos_embed = nn.Parameter(torch.empty(1, 17, 16))
        self.blocks = nn.Sequential(*(VitBlock(16, 2) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(16, eps=1e-6), nn.Linear(16, 10)

    def forward(self, images: Any) -> Any:
        x = self.patch_embed(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


class Bottleneck(nn.Module):
    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.downsample = None
        if stride != 1 or channels != 4 * width:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: Any) -> Any:
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu())).relu()
        return (self.bn3(self.conv3(y)) + (self.downsample(x) if self.downsample else x)).relu()


class ResNet50(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 7, 2, 3, bias=False), nn.BatchNorm2d(4)
        self.layers, channels = nn.ModuleList(), 4
        for n, blocks in enumerate((3, 4, 6, 3)):
            stage = nn.Sequential()
            for k in range(blocks):
                stage.append(Bottleneck(channels, 4 * 2**n, 2 if n and not k else 1))
                channels = 16 * 2**n
            self.layers.append(stage)
        self.fc = nn.Linear(channels, 10)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(self.bn1(self.conv1(x)).relu(), 3, 2, 1)
        for stage in self.layers:
            x = stage(x)
        return self.fc(x.mean((2, 3)))


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x: Any) -> Any:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv_dw = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(torch.empty(width))

    def forward(self, x: Any) -> Any:
        y = self.fc2(F.gelu(self.fc1(self.norm(self.conv_dw(x).permute(0, 2, 3, 1)))))
        return x + (y * self.gamma).permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        widths = 8, 16, 24
        self.stem, self.stem_norm = nn.Conv2d(3, 8, 4, 4), LayerNorm2d(8, eps=1e-6)
        self.stages = nn.ModuleList()
        for n, (width, depth) in enumerate(zip(widths, (1, 2, 1))):
            stage = nn.Sequential()
            if n:
                stage.append(LayerNorm2d(widths[n - 1], eps=1e-6))
                stage.append(nn.Conv2d(widths[n - 1], width, 2, 2))
            stage.extend(ConvNextBlock(width) for _ in range(depth))
            self.stages.append(stage)
        self.norm, self.fc = nn.LayerNorm(24, eps=1e-6), nn.Linear(24, 10)

    def forward(self, x: Any) -> Any:
        x = self.stem_norm(self.stem(x))
        for stage in self.stages:
            x = stage(x)
        return self.fc(self.norm(x.mean((2, 3))))


class InvertedResidual(nn.Module):
    def __init__(self, channels: int, out: int, stride: int, expand: int) -> None:
        super().__init__()
        wide, layers = channels * expand, []
        self.same = stride == 1 and channels == out
        if expand != 1:
            layers += [nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()]
        layers += [nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False)]
        layers += [nn.BatchNorm2d(wide), nn.ReLU6()]
        self.conv = nn.Sequential(*layers, nn.Conv2d(wide, out, 1, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Any) -> Any:
        return x + self.conv(x) if self.same else self.conv(x)


class MobileNetV2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8)
        self.features, channels = nn.Sequential(), 8
        for expand, out, repeats, stride in ((1, 4, 1, 1), (6, 6, 2, 2), (6, 8, 2, 2)):
            for n in range(repeats):
                self.features.append(InvertedResidual(channels, out, 1 if n else stride, expand))
                channels = out
        self.head, self.head_norm = nn.Conv2d(8, 32, 1, bias=False), nn.BatchNorm2d(32)
        self.classifier = nn.Linear(32, 10)

    def forward(self, x: Any) -> Any:
        x = self.features(F.relu6(self.stem_norm(self.stem(x))))
        return self.classifier(F.relu6(self.head_norm(self.head(x))).mean((2, 3)))


class LstmModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 8)
        self.lstm = nn.LSTM(8, 12, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(24, 30)

    def forward(self, ids: Any) -> Any:
        return self.head(self.lstm(self.embed(ids))[0])


class Translator(nn.Module):
    """Tokens (1 is padding) -> numbers for each of their first seven, by `nn.Transformer` and a
    layer of a decoder whose norms come first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.transformer = nn.Transformer(16, 2, 2, 2, 24, 0.0, batch_first=True)
        self.layer = nn.TransformerDecoderLayer(
            16, 4, 24, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.head = nn.Linear(16, 50)

    def forward(self, ids: Any) -> Any:
        x, mask = self.embed(ids), self.transformer.generate_square_subsequent_mask(7)
        absent = torch.zeros(ids.shape, dtype=x.dtype).masked_fill(ids == 1, -math.inf)
        y = self.transformer(
            x,
            x[:, :7],
            tgt_mask=mask.to(x.dtype),
            src_key_padding_mask=absent,
            memory_key_padding_mask=absent,
        )
        y = self.layer(y, x, mask.to(x.dtype), memory_key_padding_mask=absent)
        return self.head(y)


MODELS = {
    "roberta": Roberta,
    "gpt2": Gpt2,
    "llama": Llama,
    "vit": Vit,
    "resnet50": ResNet50,
    "convnext": ConvNext,
    "mobilenetv2": MobileNetV2,
    "lstm": LstmModel,
    "transformer": Translator,
}


def main(path: str) -> None:
    stored: dict[str, np.ndarray] = {}
    for name, given in inputs().items():
        kind, _, trained = name.partition("_")
        model = MODELS[kind]().double().train(bool(trained))
        state = model.state_dict()
        for key, value in state.items():
            if value.is_floating_point():
                value.copy_(torch.from_numpy(drawn(f"{kind}.{key}", tuple(value.shape))))
        x = torch.from_numpy(given)
        x = x.double().requires_grad_() if x.is_floating_point() else x
        y = model(x)
        (y * torch.from_numpy(along(name, tuple(y.shape)))).sum().backward()
        stored[f"{name}/result"] = y.detach().numpy()
        grads = {key: p.grad for key, p in model.named_parameters()}
        if x.requires_grad:
            grads["input"] = x.grad
        for key, grad in grads.items():
            assert grad is not None, key
            stored[f"{name}/{key}"] = summary(key, grad.numpy())
        if trained:
            for key, value in model.named_buffers():
                if value.is_floating_point():
                    stored[f"{name}/{key}"] = value.numpy()
    np.savez_compressed(path, **stored)
    print(len(stored), "arrays", sum(v.size for v in stored.values()), "numbers")


if __name__ == "__main__":
    main(sys.argv[1])
