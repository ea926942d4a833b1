"""The same networks in JAX, on the parameters of the PyTorch ones (a dict by PyTorch's names)."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def linear(p: dict, name: str, x):
    y = x @ p[f"{name}.weight"].T
    bias = p.get(f"{name}.bias")
    return y if bias is None else y + bias


def wide(function, x):
    """As PyTorch makes such functions of 16-bit numbers: in float32, rounded at the end."""
    return function(x.astype(jnp.float32)).astype(x.dtype)


def layer_norm(p: dict, name: str, x):
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = ((wide - mean) ** 2).mean(-1, keepdims=True)
    normed = (wide - mean) * jax.lax.rsqrt(variance + 1e-5)
    return (normed * p[f"{name}.weight"] + p[f"{name}.bias"]).astype(x.dtype)


def rms_norm(p: dict, name: str, x):
    wide = x.astype(jnp.float32)
    scale = jax.lax.rsqrt((wide**2).mean(-1, keepdims=True) + 1e-5)
    return p[f"{name}.weight"] * (wide * scale).astype(x.dtype)


def attention(q, k, v, mask):
    scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5 + mask.astype(q.dtype)
    out = (wide(lambda s: jax.nn.softmax(s, -1), scores) @ v).swapaxes(1, 2)
    return out.reshape(*out.shape[:2], -1)


def causal(length: int):
    return jnp.where(jnp.tril(jnp.ones((length, length), bool)), 0.0, -jnp.inf)


def gpt(p: dict, size, tokens):
    x = p["words.weight"][tokens] + p["places.weight"][: tokens.shape[1]]
    batch, length, width = x.shape
    for i in range(size.layers):
        at = f"blocks.{i}"
        qkv = linear(p, f"{at}.qkv", layer_norm(p, f"{at}.ln1", x))
        q, k, v = qkv.reshape(batch, length, 3, size.heads, -1).transpose(2, 0, 3, 1, 4)
        x = x + linear(p, f"{at}.out", attention(q, k, v, causal(length)))
        y = wide(jax.nn.gelu, linear(p, f"{at}.up", layer_norm(p, f"{at}.ln2", x)))
        x = x + linear(p, f"{at}.down", y)
    return linear(p, "head", layer_norm(p, "norm", x))


def rotate(x, cos, sin):
    left, right = jnp.split(x, 2, -1)
    return (x * cos + jnp.concatenate([-right, left], -1) * sin).astype(x.dtype)


def llama(p: dict, size, tokens):
    x = p["words.weight"][tokens]
    batch, length, width = x.shape
    for i in range(size.layers):
        at = f"blocks.{i}"
        y = rms_norm(p, f"{at}.norm1", x)
        parts = (linear(p, f"{at}.{n}", y) for n in "qkv")
        q, k, v = (t.reshape(batch, length, size.heads, -1).swapaxes(1, 2) for t in parts)
        q, k = rotate(q, p["cos"], p["sin"]), rotate(k, p["cos"], p["sin"])
        x = x + linear(p, f"{at}.out", attention(q, k, v, p["mask"]))
        y = rms_norm(p, f"{at}.norm2", x)
        gated = wide(jax.nn.silu, linear(p, f"{at}.gate", y)) * linear(p, f"{at}.up", y)
        x = x + linear(p, f"{at}.down", gated)
    return linear(p, "head", rms_norm(p, "norm", x))


def conv(p: dict, name: str, x, stride: int, pad: int):
    return jax.lax.conv_general_dilated(
        x, p[f"{name}.weight"], (stride, stride), ((pad, pad), (pad, pad))
    )


def batch_norm(p: dict, name: str, x, training: bool):
    """Training normalises by the batch; the running statistics are not kept here."""
    wide = x.astype(jnp.float32)
    if training:
        mean, variance = wide.mean((0, 2, 3)), wide.var((0, 2, 3))
    else:
        mean, variance = p[f"{name}.running_mean"], p[f"{name}.running_var"]
    at = (None, slice(None), None, None)
    normed = (wide - mean[at]) * jax.lax.rsqrt(variance[at] + 1e-5)
    return (normed * p[f"{name}.weight"][at] + p[f"{name}.bias"][at]).astype(x.dtype)


def resnet(p: dict, size, images, training: bool = False):
    x = jax.nn.relu(batch_norm(p, "bn", conv(p, "stem", images, 1, 1), training))
    for i in range(4 * size.layers):
        at = f"blocks.{i}"
        stride = 2 if i >= size.layers and i % size.layers == 0 else 1
        y = batch_norm(p, f"{at}.bn1", conv(p, f"{at}.conv1", x, stride, 1), training)
        y = batch_norm(p, f"{at}.bn2", conv(p, f"{at}.conv2", jax.nn.relu(y), 1, 1), training)
        x = conv(p, f"{at}.skip", x, stride, 0) if f"{at}.skip.weight" in p else x
        x = jax.nn.relu(y + x)
    return linear(p, "head", x.mean((2, 3)))


MODELS = {"gpt": gpt, "gpt-small-op": gpt, "llama": llama, "resnet": resnet}


def loss(outputs, targets):
    logs = jax.nn.log_softmax(outputs.astype(jnp.float32).reshape(-1, outputs.shape[-1]))
    return -jnp.take_along_axis(logs, targets.reshape(-1, 1), 1).mean()
