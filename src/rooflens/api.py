"""Recordings in Python: ``rooflens.load(path)`` gives steps, events, counters and findings as Arrow tables.

Needs ``pip install 'rooflens[trace]'``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rooflens.records import RooflensError
from rooflens.trace_records import TraceFacts

if TYPE_CHECKING:
    import pyarrow as pa

    from rooflens.cli.recorded.steps_in import StepsIn, Wanted

Path = str | os.PathLike[str]
When = str | float | datetime
NEEDS = "rooflens.load needs {}: pip install 'rooflens[trace]'"


def load(
    path: Path | Sequence[Path],
    *,
    from_: When | None = None,
    to: When | None = None,
    engine: str | Sequence[str] = (),
    where: str | None = None,
    hardware: str | None = None,
    model: str | None = None,
) -> Trace:
    """The recordings at one path or several: rings, traces (folders, files, globs, URLs), forward-pass traces, logs.

    ``from_`` is included and ``to`` is not: a datetime (UTC where it has no zone), Unix seconds, or a text as the
    command line takes it (``14:32``, ``-15m``, ``2026-11-30T14:32``). ``engine`` are patterns with * and ? against
    model/engine@host, the engine or the run; ``where`` is an SQL condition over the columns of steps. ``hardware`` and
    ``model`` work out the bounds anew, as Trace.analyze does; a ring has none without ``hardware``.

    RooflensError in one line where nothing can be read; what was left out otherwise is in ``problems``.
    """
    try:
        from rooflens.cli.named import config_named, hardware_named
        from rooflens.cli.recorded.steps_in import Roofs, Wanted

        paths = [path] if isinstance(path, str | os.PathLike) else list(path)
        if not paths:
            raise RooflensError("rooflens.load: name at least one recording")
        period, relative = _period(from_, to)
        engines = (engine,) if isinstance(engine, str) else tuple(engine)
        roofs = Roofs(hardware_named(hardware), config_named(model))
        return Trace([os.fspath(each) for each in paths], Wanted(roofs, period, relative, engines, where))
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "rooflens"):
            raise
        raise RooflensError(NEEDS.format(missing)) from error


class Trace:
    """What load returns. Tables are made when they are first asked for, and kept.

    ``places`` are the paths as they were given.
    """

    def __init__(self, places: Sequence[str], wanted: Wanted) -> None:
        """Use load."""
        from rooflens.cli.recorded.steps_in import StepsIn

        self.places = tuple(places)
        self._wanted = wanted
        self._source: StepsIn = StepsIn(places, wanted, lambda words, ratio: None)

    def __repr__(self) -> str:
        return f"<rooflens.Trace of {len(self.engines)} engines at {', '.join(self.places)}>"

    def __len__(self) -> int:
        """Steps."""
        return int(self.steps.num_rows)

    @property
    def engines(self) -> tuple[TraceFacts, ...]:
        """What is known of each engine: label, info, hardware, devices; one for each change of an engine's facts."""
        return self._source.facts

    @property
    def problems(self) -> tuple[str, ...]:
        """One line for each thing that was left out, as far as it was read."""
        return tuple(dict.fromkeys((*self._source.problems, *self._source.roofs.problems)))

    @cached_property
    def steps(self) -> pa.Table:
        """A row a step: ``engine`` (the label), then the columns of docs/trace.md; null for not known."""
        import pyarrow as pa

        tables = []
        for facts, table in self._source.tables():
            label = pa.array([facts.label], pa.string()).dictionary_encode()
            labels = pa.DictionaryArray.from_arrays(pa.array([0] * len(table), pa.int32()), label.dictionary)
            tables.append(table.add_column(0, "engine", labels))
        if not tables:
            raise RooflensError("no steps in what was asked for: widen from_, to, engine or where")
        return pa.concat_tables(tables, promote_options="default").unify_dictionaries()

    @cached_property
    def _beside(self) -> pa.Table:
        import pyarrow as pa

        tables = [*self._source.event_tables()]
        return pa.concat_tables(tables, promote_options="default").sort_by("unix_s")

    @cached_property
    def events(self) -> pa.Table:
        """A row an event (sleep, wake, a clock that jumped): columns of docs/trace.md, in the order of time."""
        return self._of_class("event")

    @cached_property
    def findings(self) -> pa.Table:
        """A row whenever a finding began, changed or ended; ``detail`` is its JSON. A ring holds none."""
        return self._of_class("finding")

    def _of_class(self, name: str) -> pa.Table:
        import pyarrow.compute as pc

        return self._beside.filter(pc.equal(self._beside.column("class"), name))

    @cached_property
    def counters(self) -> pa.Table:
        """A row a window of a device: columns of docs/trace.md, of all devices of the engines' hosts."""
        import pyarrow as pa

        from rooflens.collector.trace.beside import COUNTER_SCHEMA

        tables = list(self._source.counters())
        return pa.concat_tables(tables, promote_options="default") if tables else COUNTER_SCHEMA.empty_table()

    def cells(self, width_s: float | None = None) -> pa.Table:
        """Steps summed by engine, window of ``width_s`` seconds, kind and regime: the columns of trace_records.Cells.

        ``engine`` is the label and ``start_unix_s`` where the window begins. None chooses a width for the span.
        """
        import pyarrow as pa

        from rooflens.analyzer.history.joined import joined
        from rooflens.collector.trace.cells import cells_of_table, chosen_width
        from rooflens.trace_records import TraceFilter

        if width_s is not None and not width_s > 0:
            raise RooflensError(f"width_s must be above 0, not {width_s!r}")
        pieces, steps = [], self.steps
        if width_s is None:
            times = steps.column("unix_s").drop_null().to_numpy()
            labels = {facts.label for facts in self.engines}
            width_s = chosen_width(float(times.max() - times.min()) if len(times) else 0.0, len(labels))
        for facts, table in self._source.tables():
            pieces.append(cells_of_table(table, facts, TraceFilter(), width_s))
        found = joined(pieces)
        names = pa.array([found.engines[at] for at in found.columns["engine"].tolist()], pa.string())
        columns = {"engine": names, "start_unix_s": pa.array(found.columns["window"] * found.width_s)}
        rest = {name: pa.array(values, from_pandas=True) for name, values in found.columns.items() if name != "engine"}
        return pa.table(columns | rest)

    def sql(self, query: str) -> pa.Table:
        """The answer of DuckDB to a query over the tables steps, events, findings and counters.

        Those that the query names are read; it sees nothing else, no file and no network.
        """
        import duckdb

        from rooflens.collector.trace.duck import closed

        with closed() as connection:
            for name in ("steps", "events", "findings", "counters"):
                if name in query.lower():
                    connection.register(name, getattr(self, name))
            try:
                return connection.sql(query).to_arrow_table()
            except duckdb.Error as error:
                raise RooflensError(f"SQL: {' '.join(str(error).split())}") from None

    def analyze(self, hardware: str | None = None, model: str | None = None) -> Trace:
        """The same steps with their bounds worked out anew: on other hardware, or of a model that was not stated."""
        from rooflens.cli.named import config_named, hardware_named
        from rooflens.cli.recorded.steps_in import Roofs

        if hardware is None and model is None:
            raise RooflensError("analyze: name hardware, a model or both")
        now = self._wanted.roofs
        roofs = Roofs(hardware_named(hardware) or now.hardware, config_named(model) or now.model)
        return Trace(self.places, replace(self._wanted, roofs=roofs))

    def what_if(self, change: str) -> Mapping[str, Any]:
        """What a change such as ``kv=fp8`` or ``weights=fp8,batch=64`` would make of these steps.

        The object of ``what_ifs`` in ``rooflens analyze --json`` (docs/analyze.md): observed and reachable seconds now
        and then, and the new time as an interval, by kind of step and in total.
        """
        from dataclasses import asdict

        from rooflens.cli.analysis.asked import SET_KEYS
        from rooflens.cli.analysis.sets import Piece, answers, changes_of, keyframes_in, roof_of
        from rooflens.cli.what_if import what_ifs
        from rooflens.collector.trace.schema import steps_of

        changes = changes_of(what_ifs([change], SET_KEYS))
        pieces = (
            Piece(facts, steps_of(table), keyframes_in(table, table.column_names))
            for facts, table in self._source.tables()
        )
        (answer,) = answers(pieces, changes, roof_of)
        return asdict(answer)

    def to_pandas(self) -> Any:
        """The steps as a pandas DataFrame, NaN for not known; RooflensError in one line without pandas."""
        try:
            import_module("pandas")  # pyarrow asks for it later, in words of its own
        except ImportError:
            raise RooflensError("Trace.to_pandas() needs pandas: pip install pandas") from None
        return self.steps.to_pandas()


def _period(from_: When | None, to: When | None) -> tuple[Any, bool]:
    """(the ends once the last time is known, whether it is needed)."""
    import argparse

    from rooflens.cli.analysis.period import checked, moment

    try:
        ends = [moment(_text(each)) if each is not None else None for each in (from_, to)]
    except argparse.ArgumentTypeError as error:
        raise RooflensError(str(error)) from None
    words = (str(from_), str(to))

    def period(last_unix_s: float | None) -> tuple[float | None, float | None]:
        begin, end = (each.of(last_unix_s or 0.0) if each else None for each in ends)
        checked(begin, end, words)
        return begin, end

    return period, any(each is not None and not each.absolute for each in ends)


def _text(when: When) -> str:
    if isinstance(when, datetime):
        return repr((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())
    return when if isinstance(when, str) else repr(float(when))
