"""Two readings of one run of an engine, and what happened between them: differences, steps, the time they took."""

from __future__ import annotations

from dataclasses import dataclass

from rooflens.adapters.scrape.pool import Held, held
from rooflens.adapters.scrape.readings import Reading
from rooflens.records import StepKind

# Mean tokens of a step over its sequences: beyond it, more prompt than half of what was generated was computed in
# between, so that latencies tell of prefill as much as of decode. Windows that were decode only stay at 1 to 1.3.
MIXED_TOKENS_A_ROW = 1.5
# A mean of six digits: what it is wrong by at most below 10. Its product with a count is used up to a part of a change.
MEAN_DIGITS, LOST_DIGITS, LEAST_BUSY = 1e-5, 0.05, 0.5
CONTEXT_SLACK = 1.05  # a sum of contexts beyond what the pool holds is of another moment
# Sequences that run but put out nothing, on average over the steps: beyond it, at least one of them is at its prompt.
SILENT_SEQUENCES = 0.5


@dataclass(frozen=True, slots=True)
class Change:
    """``exact_steps`` is False where steps may be counted more than once: several API servers share the page."""

    before: Reading
    after: Reading
    exact_steps: bool = True

    def of(self, key: str) -> float | None:
        """How much a counter rose; None where an end does not tell."""
        first, last = self.before.get(key), self.after.get(key)
        return None if first is None or last is None else last - first

    def mean(self, key: str) -> float | None:
        """A gauge's mean of both ends; None where an end does not tell."""
        first, last = self.before.get(key), self.after.get(key)
        return None if first is None or last is None else (first + last) / 2

    @property
    def interval_s(self) -> float:
        """Wall time between the readings."""
        return self.after.monotonic_s - self.before.monotonic_s

    @property
    def busy_ends(self) -> bool:
        """Whether requests ran at both ends."""
        return min(self.before.get("running") or 0, self.after.get("running") or 0) > 0

    @property
    def steady(self) -> bool:
        """Whether no request began to answer, ended or was preempted, and as many ran before as after."""
        quiet = all(not self.of(key) for key in ("first_token_count", "finished", "preempted"))
        return quiet and self.busy_ends and self.before.get("running") == self.after.get("running")

    @property
    def tokens_a_row(self) -> float:
        """Tokens that a sequence gets in a step, as a gauge of accepted drafts tells; 1 without one."""
        return max(self.mean("acceptance_length") or 1.0, 1.0)

    @property
    def decode_passes(self) -> float | None:
        """Steps that decoded, where the engine counts them; those of llama.cpp hold its prompts too."""
        passes = self.of("decode_passes")
        return self.of("decode_passes_count") if passes is None else passes

    @property
    def decode_rows(self) -> float | None:
        """Sequences in the steps that already had a first token, summed.

        By the tokens after a first one, else by the sequences of each pass, else by what was generated.
        """
        tokens = self.decoded_tokens
        if tokens is not None:
            return tokens / self.tokens_a_row
        generated = self.of("generated_tokens")
        if generated is not None:
            return max(generated - (self.of("first_token_count") or 0), 0.0)
        passes, running = self.decode_passes, self.running_at_work
        passes = self.of("passes_count") if passes is None else passes
        if passes is None or running is None:
            return None
        return self.busy_slots(passes) or passes * running

    @property
    def decoded_tokens(self) -> float | None:
        """Tokens after a first one: by the pass that made them, else by the time between them.

        The first counts those that are sent to nobody yet as well: SGLang sends 50 at a time of what is not streamed.
        """
        passed = self.of("decode_tokens")
        return self.of("inter_token_count") if passed is None else passed

    def busy_slots(self, passes: float) -> float | None:
        """Slots in these passes, summed: a mean since the start times a count, where its digits leave anything."""
        slots, made, mean = self.of("busy_slots_sum"), self.after.get("decode_passes"), self.after.get("busy_slots_sum")
        if slots is None or not made or mean is None or slots <= 0:
            return None
        step = MEAN_DIGITS if mean / made < 10 else 10 * MEAN_DIGITS
        return slots if made * step <= LOST_DIGITS * slots and slots >= passes * LEAST_BUSY else None

    @property
    def running_at_work(self) -> float | None:
        """Requests that ran, mean of the ends at which any did."""
        ends = [running for end in (self.before, self.after) if (running := end.get("running"))]
        return sum(ends) / len(ends) if ends else None

    @property
    def generated(self) -> float | None:
        """Tokens that were put out: counted, else one for each sequence and step.

        Where passes hold prompts too, those of the requests that ended: right over a long time, late in a short one.
        """
        counted, first, tokens = self.of("generated_tokens"), self.of("first_token_count") or 0, self.decoded_tokens
        if counted is not None:
            return counted
        if tokens is not None:
            return tokens + first
        if self.prompts_in_passes:
            return self.of("completed_tokens")
        return None if self.decode_rows is None else self.decode_rows * self.tokens_a_row + first

    @property
    def prompts_in_passes(self) -> bool:
        """Whether nobody can tell passes over prompts from those that decode."""
        return self.of("decode_passes") is not None and self.of("prefill_passes") is None

    @property
    def context_steps(self) -> float | None:
        """The passes that read the contexts of the sequences that decode; None where these are all steps."""
        prefill = self.of("prefill_passes_count") if self.of("prefill_passes") is None else self.of("prefill_passes")
        return None if prefill is None else self.decode_passes

    @property
    def rows(self) -> float | None:
        """Sequences in the steps that put out a token, summed over the steps."""
        decode = self.decode_rows
        return None if decode is None else decode + (self.of("first_token_count") or 0)

    @property
    def prompt_tokens(self) -> float | None:
        """Prompt tokens that were computed, without cache hits; counted when the prompt's first token came.

        Of an engine that does not count them then, 0 where no prompt was computed, else None.
        """
        computed = self.of("computed_prompt_tokens")
        if computed is not None:
            return computed
        whole = self.of("prompt_tokens")
        if whole is not None:
            return max(whole - (self.hit_tokens or 0) - (self.of("external_hit_tokens") or 0), 0)
        passes = self.of("prefill_passes_count")
        return 0.0 if (self.of("first_token_count") if passes is None else passes) == 0 else None

    @property
    def hit_tokens(self) -> float | None:
        """Prompt tokens found in the engine's own prefix cache; None where it does not tell."""
        tokens = self.of("prefix_hit_tokens")
        blocks = self.of("prefix_hit_blocks") if tokens is None else None
        if blocks is None:
            return tokens
        size = self.after.config.get("block_size", "")
        return blocks * int(size) if size.isdecimal() else None

    @property
    def rejected(self) -> float:
        """Draft tokens that were computed and thrown away."""
        return max((self.of("drafted") or 0) - (self.of("accepted") or 0), 0)

    @property
    def inter_token_s(self) -> float | None:
        """Mean time from a token to the next one of the same sequence; None where nothing was decoded."""
        total, count = self.of("inter_token_sum"), self.of("inter_token_count")
        return total / count if total is not None and count else None

    @property
    def context_tokens(self) -> float | None:
        """Contexts in one step, summed: the engine's own sum at both ends, else by what the KV pool held."""
        told = [context for end in (self.before, self.after) if (context := _told_context(end)) is not None]
        if told:
            return sum(told) / len(told)
        held_now = self.held()
        return None if held_now is None else held_now.context_tokens

    def held(self) -> Held | None:
        """What requests held of the KV pool on average."""
        return held(self.before, self.after, self.steady)

    def kind(self, steps: float) -> StepKind:
        """What the steps did, by what was computed in them; a window that is partly prefill is MIXED."""
        rows, prompt = self.rows or 0, self.prompt_tokens or 0
        if self.prompts_in_passes or (self.prompt_tokens is None and self.of("first_token_count")):
            return StepKind.MIXED
        if not self.decode_rows and prompt:
            return StepKind.PREFILL
        if rows + prompt > MIXED_TOKENS_A_ROW * rows or self.of("prefill_passes") or self.of("prefill_passes_count"):
            return StepKind.MIXED
        silent = (self.after.get("running") or 0) - rows / steps
        if self.steady and silent > SILENT_SEQUENCES:
            return StepKind.MIXED
        return StepKind.VERIFY if self.of("drafted") or self.tokens_a_row > 1 else StepKind.DECODE


def _told_context(end: Reading) -> float | None:
    """The contexts that an engine sums up itself: of its last decode batch, which may be long ago."""
    context, held_tokens = end.get("decode_context_tokens"), end.get("kv_used_tokens")
    if not context or not end.get("running") or (held_tokens is not None and context > CONTEXT_SLACK * held_tokens):
        return None
    return context


@dataclass(frozen=True, slots=True)
class Steps:
    """How many steps an interval had, and how that is known."""

    count: int
    derivation: str
    low: float | None = None
    high: float | None = None


def steps_of(change: Change) -> Steps | None:
    """The steps of an interval; None where nothing was computed, or it cannot be told."""
    passes = _passes(change)
    if passes is not None:
        return (
            Steps(round(passes), "forward passes, as the engine counts them", passes - 1, None) if passes >= 1 else None
        )
    counted = change.of("iteration_tokens_count")
    if counted is not None and change.exact_steps:
        words = "observations of the tokens of a step; steps that put out no token are not among them"
        return Steps(round(counted), words, counted - 1, None) if counted >= 1 else None
    rows, sequences = change.rows, concurrency(change)
    if not rows or not sequences:
        return None
    count = rows / sequences
    if counted:
        count = min(count, counted)
    words = "generated tokens / mean running sequences, as no step is counted"
    if counted:
        words = "generated tokens / mean running sequences, as each API server counts the steps it saw"
    return Steps(max(round(count), 1), words, None, counted)


def _passes(change: Change) -> float | None:
    """Forward passes of an interval, those of prompts included; None where the engine does not count them."""
    every, decode = change.of("passes_count"), change.decode_passes
    if every is not None or decode is None:
        return every
    prefill = change.of("prefill_passes")
    return decode + ((change.of("prefill_passes_count") if prefill is None else prefill) or 0.0)


def concurrency(change: Change) -> float | None:
    """Sequences in a step: the time they spent between tokens over wall time, or what ran at the ends that were busy.

    The first is low where the engine was idle for a part of the interval, the second where sequences came and went.
    """
    total = change.of("inter_token_sum")
    decoding = total / change.interval_s if total is not None and change.interval_s > 0 else 0.0
    return max(decoding, change.running_at_work or 0.0) or None


@dataclass(frozen=True, slots=True)
class Busy:
    """How long the steps of an interval took together, and how that is known; ``high_s`` is a hard bound."""

    total_s: float
    high_s: float
    derivation: str


def busy_of(change: Change, steps: int) -> Busy | None:
    """The busy time of an interval; None where it cannot be told."""
    passed_s = [change.of(key) for key in ("passes_sum", "decode_passes_sum", "prefill_passes_sum")]
    if any(passed_s):
        total_s = min(sum(each or 0.0 for each in passed_s), change.interval_s)
        return Busy(total_s, change.interval_s, "summed time of the forward passes, as the engine tells it")
    each_s = change.inter_token_s
    if each_s is not None:
        each_s *= change.tokens_a_row
        if (decoding := change.decode_passes) is not None:
            steps = round(decoding)  # a prompt's pass is in the time between tokens of those that waited for it
        words = "steps x mean time between tokens, at most the interval; the time between steps is in it"
        # The first and the last step may stand partly outside.
        high_s = change.interval_s + each_s
        return Busy(min(steps * each_s, change.interval_s), high_s, words)
    if change.busy_ends:
        return Busy(change.interval_s, change.interval_s, "the interval, as requests ran at both ends")
    first_s = change.of("first_token_sum")
    if first_s:
        words = "summed time to first token, at most the interval; the time in the queue is in it"
        total_s = min(first_s, change.interval_s)
        return Busy(total_s, total_s, words)
    return None
