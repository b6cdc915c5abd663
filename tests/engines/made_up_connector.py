"""A KV connector without a transport: brings as much of each prompt as it is told to, when it is told to."""

from __future__ import annotations

from typing import Any, ClassVar

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata


class MadeUpConnector(KVConnectorBase_V1):
    """Tokens brought by request id; ``asynchronous`` requests wait until the harness says that they arrived."""

    brings: ClassVar[dict[str, int]] = {}
    asynchronous: ClassVar[bool] = True

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """How many tokens beyond the local hits this connector brings."""
        brought = max(0, self.brings.get(request.request_id, 0) - num_computed_tokens)
        return brought, self.asynchronous and brought > 0

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Nothing to remember."""

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        """Nothing to tell the workers."""
        return KVConnectorMetadata()

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Worker side; not used."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Worker side; not used."""

    def save_kv_layer(self, *args: Any, **kwargs: Any) -> None:
        """Worker side; not used."""

    def wait_for_save(self) -> None:
        """Worker side; not used."""
