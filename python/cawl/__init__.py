"""What each write and read of a program should cost, what it did cost, and why.

``read`` gives a trace as Arrow tables, ``Model`` is a modelled machine, and ``run``, ``explain``, ``whatif``
and ``advise`` ask the program cawl-cli. docs/reference/PYTHON.md is the guide.
"""

from ._cawl import Cost, Error, Table, __version__
from ._cli import Answer, advise, explain, run, whatif
from ._model import Level, Machine, Model
from ._trace import DamageWarning, Trace, read

__all__ = [
    "Answer",
    "Cost",
    "DamageWarning",
    "Error",
    "Level",
    "Machine",
    "Model",
    "Table",
    "Trace",
    "__version__",
    "advise",
    "explain",
    "read",
    "run",
    "whatif",
]
