"""The decode loop: real matrix products and attention in torch over a synthetic model, eager or as a CUDA graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from synthetic import Shape

SCALE = 0.02  # of random weights: with a norm before each product nothing grows
EPS = 1e-5
WARM_UP_STEPS = 3


@dataclass
class Layer:
    norm_in: Any
    qkv: Any
    out: Any
    norm_mlp: Any
    gate_up: Any
    down: Any


class Weights:
    """The weights on the device; one set serves every batch."""

    def __init__(self, torch: Any, shape: Shape, device: Any) -> None:
        self.shape, self.device, self.dtype = shape, device, getattr(torch, shape.dtype)
        hidden = shape.hidden

        def matrix(rows: int, columns: int) -> Any:
            return torch.empty(rows, columns, dtype=self.dtype, device=device).normal_(std=SCALE)

        def ones() -> Any:
            return torch.ones(hidden, dtype=self.dtype, device=device)

        torch.manual_seed(0)
        self.layers = [
            Layer(
                ones(),
                matrix(3 * hidden, hidden),
                matrix(hidden, hidden),
                ones(),
                matrix(2 * shape.intermediate, hidden),
                matrix(hidden, shape.intermediate),
            )
            for _ in range(shape.layers)
        ]
        self.embedding = matrix(shape.vocabulary, hidden)
        self.norm = ones()
        self.head = matrix(shape.vocabulary, hidden)


class Loop:
    """Decode steps of one batch at one context; ``tokens`` is both what goes in and what comes out of a step."""

    def __init__(self, torch: Any, weights: Weights, batch: int, passes: int = 1) -> None:
        """``passes`` above 1 is waste on purpose: the whole model is read so often for one step."""
        shape = weights.shape
        self.torch, self.weights, self.batch, self.passes = torch, weights, batch, passes
        sizes = (shape.layers, batch, shape.context_tokens + 1, shape.heads, shape.head_dim)
        self.keys, self.values = (
            torch.empty(sizes, dtype=weights.dtype, device=weights.device).normal_() for _ in range(2)
        )
        self.tokens = torch.zeros(batch, dtype=torch.long, device=weights.device)
        self.graph: Any = None

    def _norm(self, x: Any, weight: Any) -> Any:
        functional = self.torch.nn.functional
        return functional.rms_norm(x, (x.shape[-1],), weight, EPS)

    def _pass(self) -> Any:
        """The logits of one pass; the last position of the cache is written, all of it is read."""
        functional, shape = self.torch.nn.functional, self.weights.shape
        x = functional.embedding(self.tokens, self.weights.embedding)
        for number, layer in enumerate(self.weights.layers):
            rows = functional.linear(self._norm(x, layer.norm_in), layer.qkv)
            query, key, value = rows.view(self.batch, 3, shape.heads, shape.head_dim).unbind(1)
            self.keys[number, :, -1] = key
            self.values[number, :, -1] = value
            seen = functional.scaled_dot_product_attention(
                query.unsqueeze(2), self.keys[number].transpose(1, 2), self.values[number].transpose(1, 2)
            )
            x = x + functional.linear(seen.reshape(self.batch, shape.hidden), layer.out)
            gate, up = functional.linear(self._norm(x, layer.norm_mlp), layer.gate_up).chunk(2, dim=-1)
            x = x + functional.linear(functional.silu(gate) * up, layer.down)
        return functional.linear(self._norm(x, self.weights.norm), self.weights.head)

    def forward(self) -> None:
        """Launch one step; the new tokens lie on the device once it has run."""
        if self.graph is not None:
            self.graph.replay()
            return
        for _ in range(self.passes):
            logits = self._pass()
        self.tokens.copy_(logits.argmax(dim=-1))

    def warm_up(self) -> None:
        """Some steps whose time nobody looks at: kernels are chosen and loaded."""
        for _ in range(WARM_UP_STEPS):
            self.forward()
            self.tokens.tolist()

    def capture(self) -> None:
        """Record the step as a CUDA graph; from then on a step is one launch. Raises what CUDA says against it."""
        cuda = self.torch.cuda
        side = cuda.Stream()
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            self.warm_up()
        cuda.current_stream().wait_stream(side)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            self.forward()
        self.graph = graph


def attention_backend(torch: Any) -> Any:
    """A context in which attention is computed by flash kernels alone on a GPU: others may copy keys and values."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel([SDPBackend.FLASH_ATTENTION])
