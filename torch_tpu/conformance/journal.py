"""The file of a run: one record a line, so that an interrupted run goes on where it was.

The first line says what was asked (samples, mode, versions); a journal of another run is not
continued.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any


class Journal:
    """Records by unit, kept in ``path``.

    Raises ValueError if ``path`` belongs to a run with other settings.
    """

    def __init__(self, path: pathlib.Path, settings: dict[str, Any]):
        self.records: dict[str, dict] = {}
        if path.exists() and path.stat().st_size:
            self._read(path, settings)
            self._file = path.open("a")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("w")
            self._write({"settings": settings})

    def _read(self, path: pathlib.Path, settings: dict[str, Any]) -> None:
        lines = path.read_text().splitlines()
        found = json.loads(lines[0]).get("settings")
        if found != settings:
            raise ValueError(
                f"{path} is of a run with {found}, not {settings}; give another --output or --fresh"
            )
        if not path.read_text().endswith("\n"):
            # A run that was killed while writing: what was being written is run again.
            lines = lines[:-1]
            path.write_text("".join(line + "\n" for line in lines))
        for line in lines[1:]:
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue  # torn when a run was killed: its unit is run again
            self.records[record["unit"]] = record

    def _write(self, fields: dict) -> None:
        self._file.write(json.dumps(fields) + "\n")
        self._file.flush()

    def add(self, record: dict) -> None:
        """Keep a record."""
        self.records[record["unit"]] = record
        self._write(record)
