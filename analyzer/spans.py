"""Which spans a model's layers look back over; the closed forms are those of rooflens.spans."""

from __future__ import annotations

from collections.abc import Iterator

from rooflens.analyzer.arch import arch_from_config
from rooflens.arch_records import Attention, CompressedAttention, Indexer, LatentAttention, Mixer, ModelArch
from rooflens.records import EngineInfo, RooflensError
from rooflens.spans import CHUNK, MARK, OVER, WINDOW, Span, pairs_within, parse, spanned, split, within

__all__ = [
    "CHUNK", "MARK", "OVER", "WINDOW", "Span", "pairs_within", "parse", "spanned", "spans_of", "spans_of_engine",
    "spans_of_mixer", "split", "within",
]  # fmt: skip


def spans_of(arch: ModelArch) -> tuple[str, ...]:
    """Every span that the decoder's layers look back over, sorted; () where all of them see the whole context."""
    found = {span for layer in (*arch.layers, *arch.mtp) for span in spans_of_mixer(layer.mixer)}
    return tuple(sorted(found, key=lambda span: (span[0], parse(span).tokens)))


def spans_of_engine(info: EngineInfo) -> tuple[str, ...]:
    """The spans of the model that an engine states; () where it states none, or one that cannot be read."""
    if info.model_config is None:
        return ()
    try:
        return spans_of(arch_from_config(dict(info.model_config), info.model_name or "model"))
    except RooflensError:
        return ()


def spans_of_mixer(mixer: Mixer | None) -> Iterator[str]:
    """The spans of one mixer: window, chunk, what an indexer's top_k entries cover at most and where it has to look."""
    if isinstance(mixer, Attention):
        if mixer.window_tokens:
            yield f"{WINDOW}{mixer.window_tokens}"
        if mixer.chunk_tokens:
            yield f"{CHUNK}{mixer.chunk_tokens}"
        if mixer.indexer:
            yield from _of_indexer(mixer.indexer, 1)
    elif isinstance(mixer, LatentAttention):
        if mixer.indexer:
            yield from _of_indexer(mixer.indexer, 1)
        elif mixer.window_tokens:
            yield f"{WINDOW}{mixer.window_tokens}"
    elif isinstance(mixer, CompressedAttention):
        yield f"{WINDOW}{mixer.window_tokens}"
        if mixer.indexer and mixer.ratio:
            yield from _of_indexer(mixer.indexer, mixer.ratio)


def _of_indexer(indexer: Indexer, ratio: int) -> Iterator[str]:
    yield f"{WINDOW}{ratio * indexer.top_k}"
    if not indexer.shared:
        yield f"{OVER}{indexer.idle_tokens(ratio)}"
