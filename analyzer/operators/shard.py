"""One device's part of a model: the sizes that deployment and formats leave it, and the row of a weight matrix."""

from __future__ import annotations

from dataclasses import dataclass

from rooflens.analyzer.precision import KV_FORMATS, NumberFormat, Precision, TensorFormat
from rooflens.analyzer.work import Coefficients, Work
from rooflens.arch_records import Deployment, ModelArch


@dataclass(frozen=True, slots=True)
class Shard:
    """``tensors`` is the group of precision.GROUPS that all matrices belong to, "" where each has its own."""

    arch: ModelArch
    precision: Precision
    deployment: Deployment
    tensors: str = ""

    @property
    def devices(self) -> int:
        """The devices that share each layer."""
        return self.deployment.tensor

    @property
    def kv(self) -> NumberFormat:
        """The format of the KV cache."""
        return KV_FORMATS[self.precision.kv]

    @property
    def hidden(self) -> int:
        """The width between layers."""
        return self.arch.hidden_size

    def parts(self, tensors: str) -> tuple[TensorFormat, ...]:
        """The formats of a group of tensors that have any share in it."""
        return tuple(part for part in self.precision.parts(self.tensors or tensors) if part.share)

    def mean_bytes(self, tensors: str) -> float:
        """Bytes of an element of a group, the mean over its formats."""
        return sum(part.share * part.bytes_per_element for part in self.parts(tensors))

    def passed(self, count: float, width: float) -> Coefficients:
        """Activation bytes where each of ``count`` layers writes or reads ``width`` elements a token."""
        return {"query_tokens": count * width * self.precision.activation_bytes}

    def matrix(
        self,
        operator: str,
        tensors: str,
        count: int,
        rows: float,
        columns: float,
        whole: float,
        group: str = "linear",
    ) -> tuple[Work, ...]:
        """A weight matrix, ``rows`` x ``columns`` on this device, in each of ``count`` layers, read once a pass.

        ``whole`` are one layer's elements in the whole model. A group in several formats is one row a format, so that
        flops follow the format.
        """
        elements = count * rows * columns
        return tuple(
            Work(
                operator,
                group,
                part.compute,
                calls=count * part.share,
                flops={"query_tokens": 2 * part.share * elements},
                weight_bytes={"passes": elements * part.share * part.bytes_per_element},
                activation_bytes=self.passed(count * part.share, rows + columns),
                resident_bytes=elements * part.share * part.bytes_per_element,
                elements=count * whole * part.share,
            )
            for part in self.parts(tensors)
        )
