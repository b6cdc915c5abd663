"""A plain PyTorch decode loop with a KV cache, recorded: run it, then `rooflens analyze`. CPU or CUDA, no model file.

    python examples/pytorch_loop.py --batch 8 --tokens 64 [--device cuda]

On CUDA the device's own time of each step is measured with events, and the synchronise at the end of a step, which
the loop needs for its tokens anyway, is where they are read.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional

from rooflens.adapters.recorder import Recorder

HIDDEN, LAYERS, HEADS, MLP, VOCABULARY, LONGEST = 512, 4, 8, 1408, 8000, 1024
CONFIG = {
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "intermediate_size": MLP,
    "vocab_size": VOCABULARY,
    "hidden_act": "silu",
}


class Layer(nn.Module):
    """Attention over a cache of shape (2, batch, heads, LONGEST, width), and a gated MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.out = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.gate, self.up = nn.Linear(HIDDEN, MLP, bias=False), nn.Linear(HIDDEN, MLP, bias=False)
        self.down = nn.Linear(MLP, HIDDEN, bias=False)

    def forward(self, x: Tensor, cache: Tensor, cached: int) -> Tensor:
        """``x`` (batch, query, HIDDEN), ``cached`` tokens before it in the cache, which is written."""
        batch, query, _ = x.shape
        parts = self.qkv(functional.rms_norm(x, (HIDDEN,))).view(batch, query, 3, HEADS, HIDDEN // HEADS)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        cache[0, :, :, cached : cached + query], cache[1, :, :, cached : cached + query] = k, v
        seen = cache[:, :, :, : cached + query]
        mixed = functional.scaled_dot_product_attention(q, seen[0], seen[1], is_causal=query > 1)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, query, HIDDEN))
        y = functional.rms_norm(x, (HIDDEN,))
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    """A small decoder with random weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor, caches: list[Tensor], cached: int) -> Tensor:
        """The next token of each row, shape (batch, 1)."""
        x = self.embedding(tokens)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, cache, cached)
        return self.head(x[:, -1:]).argmax(-1)


def main() -> None:
    """One prefill, then a decode step for each token; prints where the recording is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    asked = parser.parse_args()
    torch.manual_seed(0)
    model = Model().to(asked.device, torch.bfloat16).eval()
    shape = (2, asked.batch, HEADS, LONGEST, HIDDEN // HEADS)
    caches = [torch.zeros(shape, dtype=torch.bfloat16, device=asked.device) for _ in range(LAYERS)]
    tokens = torch.randint(VOCABULARY, (asked.batch, asked.prompt), device=asked.device)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if asked.device == "cuda" else None
    cached, device_ms = 0, 0.0
    facts = {"model_config": CONFIG, "weight_dtype": "bfloat16", "kv_dtype": "bfloat16", "async_scheduling": False,
             "concurrent_batches": 1, "max_sequences": asked.batch, "device": asked.device}  # fmt: skip
    with Recorder("pytorch-loop", **facts) as recorder, torch.inference_mode():
        for number in range(asked.tokens):
            query = tokens.shape[1]
            first = {"new_requests": asked.batch, "prompt_tokens": asked.batch * query} if number == 0 else {}
            state = {"running": asked.batch, "waiting": 0, "deferred": 0, **first}
            prefill = range(asked.batch) if number == 0 else ()
            with recorder.step([cached] * asked.batch, [query] * asked.batch, prefill=prefill, **state) as step:
                if events:
                    events[0].record()
                tokens = model(tokens, caches, cached)
                if events:
                    events[1].record()
                tokens.tolist()  # the host has the tokens: this waits for the device
                step.done()
                step.generated_tokens = asked.batch
            cached += query
            device_ms += events[0].elapsed_time(events[1]) if events else 0.0
    if events:
        print(f"device time {device_ms / asked.tokens:.3f} ms a step, by its own events")
    print(f"rooflens analyze {recorder.path} --hardware {'h100-sxm5-80' if events else 'this-cpu'}")


if __name__ == "__main__":
    main()
