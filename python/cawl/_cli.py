"""Questions to cawl-cli, which is a program of its own: what it answers with --json."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import lru_cache
from html import escape
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence, Union

from ._cawl import Error
from ._trace import Trace, read

AnyTrace = Union[str, "os.PathLike[str]", Trace]


class Answer(Mapping[str, Any]):
    """What cawl-cli answers, as a mapping whose keys are attributes, too. The reference pages have the
    fields: docs/reference/REPORT.md (explain), WHATIF.md, ADVISE.md. Times end in ``_s`` (seconds), sizes are
    bytes.
    """

    def __init__(self, title: str, data: Dict[str, Any]) -> None:
        self._title, self._data = title, data

    def __getitem__(self, key: str) -> Any:
        return self._data[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self._data[name]
        except KeyError:
            raise AttributeError(f"the answer has no `{name}`; it has {', '.join(self._data)}") from None

    def _plain(self) -> Dict[str, Any]:
        return {key: value for key, value in self._data.items() if isinstance(value, (int, float, str))}

    def __repr__(self) -> str:
        return (
            f"<cawl.Answer of {self._title}: "
            + ", ".join(f"{k}={_shown(v)}" for k, v in self._plain().items())
            + ">"
        )

    def _repr_html_(self) -> str:
        plain = [(escape(key), escape(_shown(value))) for key, value in self._plain().items()]
        cells = "".join(
            f"<tr><th style='text-align:left'>{key}</th><td>{value}</td></tr>" for key, value in plain
        )
        tables = "".join(
            _rows(key, value) for key, value in self._data.items() if isinstance(value, list) and value
        )
        return f"<table><caption>{escape(self._title)}</caption>{cells}</table>{tables}"


def _shown(value: Any) -> str:
    return (
        f"{value:.6g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
    )


def _rows(name: str, rows: Sequence[Any]) -> str:
    """The first rows of a list of objects, or its texts."""
    first = rows[0]
    if not isinstance(first, dict):
        return "".join(f"<p>{escape(str(row))}</p>" for row in rows[:10])
    keys = [key for key, value in first.items() if not isinstance(value, (dict, list))]
    head = "".join(f"<th>{escape(key)}</th>" for key in keys)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_shown(row.get(key)))}</td>" for key in keys) + "</tr>"
        for row in rows[:10]
    )
    return f"<table><caption>{escape(name)}</caption><tr>{head}</tr>{body}</table>"


def _program() -> str:
    named = os.environ.get("CAWL_CLI")
    found = shutil.which(named or "cawl-cli")
    if found is None:
        where = f"CAWL_CLI names {named}, which is no program" if named else "cawl-cli is not in PATH"
        raise Error(
            f"{where}; install it (cargo install --path crates/cawl-cli --locked), or let CAWL_CLI name it"
        )
    return found


def _asked(title: str, arguments: Sequence[str]) -> Answer:
    """Runs cawl-cli; what it says of its own accord goes into the error."""
    done = subprocess.run(
        [_program(), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False
    )
    told = done.stderr.decode(errors="replace").strip()
    if done.stdout.strip():
        # Exit code 1 with an answer: the trace is damaged, or what was asked for is not met.
        try:
            return Answer(title, json.loads(done.stdout))
        except ValueError as error:
            raise Error(f"cawl-cli {arguments[0]} answered no JSON: {error}. {told}") from error
    raise Error(f"cawl-cli {arguments[0]} ended with {done.returncode}: {told or 'no message'}")


def _path(trace: AnyTrace) -> str:
    return trace.path if isinstance(trace, Trace) else os.fspath(trace)


@lru_cache(maxsize=None)
def _traces() -> "tempfile.TemporaryDirectory[str]":
    """Where traces are that have no name of the caller's. It goes with the interpreter."""
    return tempfile.TemporaryDirectory(prefix="cawl-")


def run(
    command: Union[str, Sequence[Union[str, "os.PathLike[str]"]]],
    *,
    trace: Union[None, str, "os.PathLike[str]"] = None,
    options: Union[str, Sequence[str]] = (),
    check: bool = True,
    quiet: bool = True,
    **popen: Any,
) -> Trace:
    """Runs a program under ``cawl-cli run --trace`` and reads its trace.

    A ``command`` that is one text is split into words as by a shell, which is not run. The trace is the file
    ``trace``, or a new one in a folder that goes when Python ends. ``options`` are of ``cawl-cli run``. ``popen`` goes to subprocess.run (cwd, env, stdout, …). With ``check`` a program that
    fails raises subprocess.CalledProcessError; without ``quiet`` the report is printed.
    """
    if trace is None:
        handle, name = tempfile.mkstemp(suffix=".cawl", prefix="run-", dir=_traces().name)
        os.close(handle)
        os.unlink(name)
    else:
        name = os.fspath(trace)
    options = shlex.split(options) if isinstance(options, str) else list(options)
    command = shlex.split(command) if isinstance(command, str) else list(map(os.fspath, command))
    arguments = [_program(), "run", "--trace", name, *options, "--", *command]
    if quiet:
        popen.setdefault("stderr", subprocess.PIPE)
    done = subprocess.run(arguments, check=False, **popen)
    told = (
        (done.stderr or b"").decode(errors="replace")
        if isinstance(done.stderr, (bytes, type(None)))
        else done.stderr
    )
    if not os.path.exists(name):
        raise Error(f"cawl-cli run ended with {done.returncode} and left no trace: {told.strip()}")
    if check and done.returncode:
        print(told, file=sys.stderr, end="")
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    return read(name)


def explain(trace: AnyTrace, *options: str) -> Answer:
    """Where the time of a trace went: ``causes``, ``worst`` calls, ``lost_s`` (docs/reference/REPORT.md)."""
    return _asked("explain", ["explain", _path(trace), "--json", *_split(options)])


def whatif(
    trace: Union[AnyTrace, Any], *changes: str, profile: Union[None, str, "os.PathLike[str]"] = None
) -> Answer:
    """What the calls would cost if program or machine were another: ``whatif(t, "--fsync every=16")``
    (docs/reference/WHATIF.md).

    ``trace`` may also be the calls of one machine as an Arrow table, or what gives such batches
    (``__arrow_c_stream__``), with the columns of an export, in the order of ``start_ns``; ``profile`` is the
    machine's: a file or its text. docs/reference/PYTHON.md has what a table does not tell. Takes pyarrow.
    """
    if not hasattr(trace, "__arrow_c_stream__"):
        if profile is not None:
            raise ValueError(
                'a trace has its profile; that of another machine is the change "--profile FILE"'
            )
        return _asked("whatif", ["whatif", _path(trace), *_split(changes), "--json"])
    with tempfile.TemporaryDirectory(prefix="cawl-") as folder:
        name = os.path.join(folder, "calls.cawl")
        if isinstance(profile, str) and "\n" in profile:
            text, profile = profile, os.path.join(folder, "profile.toml")
            with open(profile, "w") as file:
                file.write(text)
        _import(trace, name, [] if profile is None else ["--profile", os.fspath(profile)])
        return _asked("whatif", ["whatif", name, *_split(changes), "--json"])


#: What models need of a table.
_COLUMNS = "start_ns op offset size duration_ns pid tid path flags kind program".split()


def _import(calls: Any, trace: str, options: Sequence[str]) -> None:
    """Makes a trace of calls in Arrow batches, by way of csv: batch by batch."""
    import pyarrow as pa
    from pyarrow import csv

    batches = pa.RecordBatchReader.from_stream(calls)
    missing = set(_COLUMNS) - set(batches.schema.names)
    if missing:
        names = ", ".join(sorted(missing))
        raise Error(f"the table has no column {names} (docs/reference/EXPORT.md)")
    integers = {"start_ns", "offset", "size", "duration_ns", "pid", "tid"}
    schema = pa.schema([(name, pa.int64() if name in integers else pa.string()) for name in _COLUMNS])
    command = [_program(), "import", "--from", "csv", "-", "-o", trace, *options]
    with tempfile.TemporaryFile() as said:
        try:
            with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=said) as importing:
                with csv.CSVWriter(importing.stdin, schema) as writer:
                    for batch in batches:
                        writer.write(pa.Table.from_batches([batch]).select(_COLUMNS).cast(schema))
        except BrokenPipeError:
            pass
        if importing.returncode:
            said.seek(0)
            raise Error(f"the table cannot be taken: {said.read().decode(errors='replace').strip()}")


def advise(trace: AnyTrace, *options: str) -> Answer:
    """The changes that are worth it (docs/reference/ADVISE.md)."""
    return _asked("advise", ["advise", _path(trace), "--json", *_split(options)])


def _split(options: Sequence[str]) -> list[str]:
    return [word for option in options for word in shlex.split(option)]
