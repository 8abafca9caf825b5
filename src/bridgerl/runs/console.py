"""What is printed is read by any terminal."""

import io
import sys


def forgive_encodings() -> None:
    """Write what an encoding lacks as an escape: no result is lost over a letter."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
