"""Rows of `torch_tpu/ops/transformer.py`."""

import torch

from ops.row import Row, t

BF16 = torch.bfloat16
B, L, D, H = 2, 4, 8, 2
CAUSAL = torch.ones(L, L, dtype=torch.bool).triu(1)
PADDING = torch.tensor([[0, 0, 1, 1], [0, 0, 0, 1]], dtype=torch.bool)
FULL = t(B, H, L, L, dtype=torch.bool, seed=5)  # has rows without a key: NaN on both sides


def mha(dtype=torch.float32, seed=0, same=True):
    q = t(B, L, D, dtype=dtype, seed=seed)
    k, v = (q, q) if same else (t(B, L, D, dtype=dtype, seed=seed + i) for i in (10, 11))
    return (q, k, v, D, H, *weights(dtype))


def weights(dtype=torch.float32):
    return (
        t(3 * D, D, dtype=dtype, seed=1, low=-0.5, high=0.5),
        t(3 * D, dtype=dtype, seed=2),
        t(D, D, dtype=dtype, seed=3, low=-0.5, high=0.5),
        t(D, dtype=dtype, seed=4),
    )


def layer(use_gelu, norm_first, dtype=torch.float32, mask=None, mask_type=None):
    norms = [t(D, dtype=dtype, seed=20 + i) for i in range(4)]
    ffn = (
        t(6, D, dtype=dtype, seed=24, low=-0.5, high=0.5),
        t(6, dtype=dtype, seed=25),
        t(D, 6, dtype=dtype, seed=26, low=-0.5, high=0.5),
        t(D, dtype=dtype, seed=27),
    )
    head = (t(B, L, D, dtype=dtype), D, H, *weights(dtype), use_gelu, norm_first, 1e-5)
    return (*head, *norms, *ffn, mask, mask_type)


def grads(*shape, dtype=torch.float32):
    mask = t(*shape, dtype=torch.bool, seed=6)
    return (t(*shape, dtype=dtype), t(*shape, dtype=dtype, seed=1, low=0, high=1), mask)


NAME = "aten::_native_multi_head_attention"
ROWS = [
    Row(
        "aten::_nested_tensor_from_mask_left_aligned",
        (t(2, 3, 4), torch.tensor([[True, True, False], [True, False, False]])),
        reference=lambda padded, mask: False,
        reason="XLA has no ragged arrays, so the dense path is always asked for",
        views="refused",
    ),
    Row(NAME, mha()),
    Row(NAME, mha(BF16)),
    Row(NAME, mha(torch.float64), {"need_weights": False}),
    Row(NAME, mha(same=False)),
    Row(NAME, mha(), {"average_attn_weights": False, "mask": CAUSAL, "mask_type": 0}),
    Row(NAME, mha(), {"mask": CAUSAL.float() * -1e9, "mask_type": 0}),
    Row(NAME, mha(), {"mask": PADDING, "mask_type": 1}),
    Row(NAME, mha(), {"mask": FULL, "mask_type": 2}),
    Row("aten::_transform_bias_rescale_qkv", (t(B, L, 3 * D), t(3 * D, seed=1), H)),
    Row("aten::_transform_bias_rescale_qkv", (t(B, L, 3 * D, dtype=BF16), t(3 * D, dtype=BF16), 1)),
    *(
        Row("aten::_transformer_encoder_layer_fwd", layer(gelu, first))
        for gelu in (False, True)
        for first in (False, True)
    ),
    Row("aten::_transformer_encoder_layer_fwd", layer(True, False, torch.float64, PADDING, 1)),
    Row("aten::_transformer_encoder_layer_fwd", layer(False, True, mask=CAUSAL, mask_type=0)),
    # bf16 layers are in test_attention_rules.py: the CPU kernel rounds to bf16 after every step and
    # is further from float64 than the rule is, by more than the tolerance in values near zero.
    Row("aten::_masked_softmax", (t(B, H, L, L), FULL, -1, 2)),
    Row("aten::_masked_softmax", (t(B, H, L, L), FULL, 1, 2)),
    Row("aten::_masked_softmax", (t(B, H, L, L), CAUSAL, -1, 0)),
    Row("aten::_masked_softmax", (t(B, H, L, L, dtype=BF16), PADDING, -1, 1)),
    Row("aten::_masked_softmax", (t(3, 4), torch.zeros(3, 4, dtype=torch.bool))),
    Row("aten::_masked_softmax", (t(), torch.tensor(False))),
    Row("aten::_masked_softmax_backward", grads(3, 4)),
    Row("aten::_masked_softmax_backward", grads(2, 3, 4), {"dim": 1}),
    Row("aten::_masked_softmax_backward", grads(3, 4, dtype=torch.float64), {"dim": 0}),
]
