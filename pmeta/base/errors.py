"""Errors whose message is for the user, and what is said of the installation."""

FILES = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)


class WorkerDiedError(Exception):
    """A worker process ended before its work was done."""


class DivergedError(ValueError):
    """Numbers of a training are no numbers any more; its last good checkpoint is the way back."""


def how_to_install(extra: str) -> str:
    """The command that brings what an option needs, with the versions that the tests run with."""
    return f"run pip install --constraint constraints.txt '.[{extra}]' in a checkout of pmeta"


def own_version() -> str:
    """The version that is installed; empty where pmeta runs from its sources."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("p-meta")
    except PackageNotFoundError:
        return ""


def for_user(error: BaseException) -> bool:
    """Whether its message is all that is shown: a file that is missing, forbidden or of another
    kind, or a ValueError raised in this package. Others are bugs."""
    if not isinstance(error, ValueError):
        return isinstance(error, (*FILES, WorkerDiedError))
    tb = error.__traceback__
    while tb is not None and tb.tb_next is not None:
        tb = tb.tb_next
    return (
        tb is not None
        and str(tb.tb_frame.f_globals.get("__name__", "")).partition(".")[0] == "pmeta"
    )
