"""The compiled module (python/module.cc)."""

from collections.abc import Callable

version: str

class Error(RuntimeError):
    """An input or the environment does not allow what was asked for."""

def open_session(arguments: str, report: Callable[[str, str, int, int, str], None]) -> object: ...
def run_session(
    session: object, command: str, arguments: str, report: Callable[[str, str, int, int, str], None]
) -> str: ...
def run(command: str, arguments: str, report: Callable[[str, str, int, int, str], None]) -> str: ...
def commands_module() -> str: ...
