"""The pool of KV blocks: which are free, and the block tables of the sequences that hold some."""

from __future__ import annotations

from collections import deque


class BlockPool:
    """Hands out KV blocks by number; a block belongs to one sequence at a time."""

    def __init__(self, blocks: int, block_tokens: int) -> None:
        self.blocks = blocks
        self.block_tokens = block_tokens
        self._free = deque(range(blocks))

    @property
    def used(self) -> int:
        """Blocks that sequences hold."""
        return self.blocks - len(self._free)

    def needed(self, table: list[int], tokens: int) -> int:
        """Blocks that a sequence with this table lacks to hold ``tokens``."""
        return max(0, -(-tokens // self.block_tokens) - len(table))

    def grow(self, table: list[int], tokens: int) -> bool:
        """Extend a table in place until it can hold ``tokens``; False, and nothing taken, where too few are free."""
        needed = self.needed(table, tokens)
        if needed > len(self._free):
            return False
        table.extend(self._free.popleft() for _ in range(needed))
        return True

    def release(self, table: list[int]) -> None:
        """Give all blocks of a table back and empty it."""
        self._free.extend(table)
        table.clear()
