"""`python -m torch_tpu.cache`: look at the compiled programs on the disk, remove and move them.

    ls                          every program: last use, size, what compiling took
    stats                       how many there are, and for which compilers and machines
    prune --size 1G --age 30d   remove what 30 days did not use, then the oldest down to 1 GiB
    export FILE, import FILE    a tar archive of the programs, for other machines of the same kind

`--dir` names another directory than this environment's. Not here: the cache itself (program/).
"""

from __future__ import annotations

import argparse
import io
import math
import os
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from . import config
from .errors import ConfigError
from .program import entry
from .program.store import KEY, DiskStore, File

_AGES = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def parse_age(text: str) -> float:
    """Seconds from 90s, 30m, 12h, 30d or 2w."""
    number, unit = text[:-1], text[-1:]
    if unit not in _AGES or not number.replace(".", "", 1).isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: expected an age such as 90s, 30m, 12h or 30d")
    return float(number) * _AGES[unit]


def parse_size(text: str) -> int:
    """Bytes, with an optional suffix K, M, G or T."""
    try:
        return config.parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error


def size_text(size: float) -> str:
    for unit in ("B", "K", "M", "G"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} T"


def time_text(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def with_metadata(store: DiskStore) -> Iterator[tuple[File, dict | None]]:
    """Every file, the most recently used first, with its metadata if it has any."""
    for file in sorted(store.files(), key=lambda file: -file.used):
        try:
            with file.path.open("rb") as opened:
                yield file, entry.read_metadata(opened)
        except FileNotFoundError:
            continue  # removed meanwhile
        except (OSError, entry.CorruptEntry):
            yield file, None


def ls(store: DiskStore, options: argparse.Namespace) -> int:
    for file, metadata in with_metadata(store):
        took = f"{metadata['milliseconds']:.1f} ms" if metadata else ""
        name = metadata["name"] if metadata else "(unreadable)"
        used, size = time_text(file.used), size_text(file.size)
        print(f"{file.key[:16]}  {used}  {size:>8}  {took:>11}  {name}")
    return 0


def stats(store: DiskStore, options: argparse.Namespace) -> int:
    files = list(with_metadata(store))
    known = [metadata for _, metadata in files if metadata]
    total = sum(file.size for file, _ in files)
    rows = [
        ("directory", store.folder),
        ("programs", len(files)),
        ("size", f"{size_text(total)} of {size_text(store.limit)}"),
        ("compiling them took", f"{sum(m['milliseconds'] for m in known) / 1e3:.1f} s"),
    ]
    if files:
        rows.append(
            ("last used", f"{time_text(files[-1][0].used)} to {time_text(files[0][0].used)}")
        )
    if len(known) < len(files):
        rows.append(("unreadable", len(files) - len(known)))
    for name, value in rows:
        print(f"{name:20} {value}")
    for made_for, count in Counter(described(m["made_for"]) for m in known).most_common():
        print(f"{'  made for':20} {made_for}: {count}")
    return 0


def described(facts: dict) -> str:
    """What `identity.summary` says of a program, in a line."""
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def prune(store: DiskStore, options: argparse.Namespace) -> int:
    if options.all:
        removed = store.prune(before=math.inf).removed
    elif options.age is None:
        removed = store.prune(options.size or store.limit).removed
    else:
        removed = store.prune(options.size, time.time() - options.age).removed
    print(f"removed {len(removed)} programs, {size_text(sum(file.size for file in removed))}")
    return 0


def export(store: DiskStore, options: argparse.Namespace) -> int:
    count = 0
    with tarfile.open(options.file, "w") as archive:
        for file in store.files():
            try:
                data = file.path.read_bytes()
                entry.decode(data, file.key)
            except (FileNotFoundError, entry.CorruptEntry):
                continue  # evicted meanwhile, or of no use to anybody
            member = tarfile.TarInfo(file.key)
            member.size, member.mtime = len(data), int(file.used)
            archive.addfile(member, io.BytesIO(data))
            count += 1
    print(f"exported {count} programs to {options.file}")
    return 0


def import_(store: DiskStore, options: argparse.Namespace) -> int:
    """Only whole entries come in, under their own keys: names in an archive mean nothing here."""
    count = refused = 0
    with tarfile.open(options.file) as archive:
        for member in archive:
            opened = archive.extractfile(member) if KEY.fullmatch(member.name) else None
            try:
                if opened is None:
                    raise entry.CorruptEntry("not a file of the cache")
                data = opened.read()
                entry.decode(data, member.name)
            except entry.CorruptEntry as error:
                print(f"refused {member.name}: {error}", file=sys.stderr)
                refused += 1
                continue
            store.write(member.name, data)
            count += 1
    print(f"imported {count} programs" + (f", refused {refused}" if refused else ""))
    return 1 if refused else 0


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m torch_tpu.cache", description="Compiled programs kept on the disk."
    )
    top.add_argument("--dir", type=config.parse_directory, help="the cache's directory")
    commands = top.add_subparsers(required=True, metavar="command")

    def command(name: str, run, description: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=description, description=description)
        added.set_defaults(run=run)
        return added

    command("ls", ls, "list the programs, the most recently used first")
    command("stats", stats, "how many programs there are and what they were made for")
    removing = command("prune", prune, "remove programs; without options, what exceeds the bound")
    removing.add_argument("--size", type=parse_size, help="leave at most so many bytes")
    removing.add_argument("--age", type=parse_age, help="remove what was not used for so long")
    removing.add_argument("--all", action="store_true", help="remove everything")
    command("export", export, "write the programs to a tar archive").add_argument("file", type=Path)
    command("import", import_, "take in an archive").add_argument("file", type=Path)
    return top


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        folder = options.dir or config.cache_directory()
        if folder is None:
            raise ConfigError("this user has no home directory; use --dir or TORCH_TPU_CACHE_DIR")
        return options.run(DiskStore(folder, config.cache_size()), options)
    except BrokenPipeError:  # `... ls | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OSError, tarfile.TarError, ConfigError) as error:
        print(f"{parser().prog}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
