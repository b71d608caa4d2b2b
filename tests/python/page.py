"""The hex examples and the tables of protocol/wire.md."""

import pathlib
import re

PAGE = pathlib.Path(__file__).resolve().parents[2] / "protocol/wire.md"
TEXT = PAGE.read_text(encoding="utf-8")


def examples():
    found = {}
    for name, block in re.findall(r"^```hex (\S+)\n(.*?)^```", TEXT, re.M | re.S):
        assert name not in found, name
        found[name] = bytes.fromhex("".join(line.partition("#")[0] for line in block.splitlines()))
    return found


def rows(after):
    """The cells of the first table behind a line that begins so, without its two first lines."""
    table = re.search(r"^\|.*?\n(?!\|)", TEXT[TEXT.index("\n" + after) :], re.M | re.S)
    return [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table[0].splitlines()[2:]]


EXAMPLES = examples()
