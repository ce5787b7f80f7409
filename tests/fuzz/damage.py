"""Damage: bytes cut, flipped, doubled or put in; JSON with other values; folders with files lost or exchanged."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

PIECES = [b"", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\n", b"\r", b"\n\n\n", b",", b",,,,", b"\t", b'"', b"'", b"{",
          b"[", b"]", b"}",
          b"null", b"nan", b"-inf", b"1e999", b"-1", b"0", b"99999999999999999999", b"9" * 5000, b"1e-320", b"[" * 3000,
          b"a:b", b"100000000:1", b"0:1", b"-1:1", b"\xc3\x28", "é²٣".encode(), b"=", b"#", b"::", b"true",
          b"x" * 3000,
          b"18446744073709551616", b"2147483648", b"0x10", b"1_000", b"inf", b"../../x"]
flips = st.sampled_from([1, 0x80, 0xFF])
JSON_VALUES: list[Any] = [None, True, False, 0, -1, 1, 2**31, 2**63, 10**400, 1.5, 1e308, float("nan"), float("inf"),
                          "", "x",
                          "\0", "nope", "os:system", "../../outside/x", "x" * 5000, "9" * 5000, [], [[]], [1], ["a"],
                          {},
                          {"name": "x"}, {"name": "os:system", "command": "touch ../outside/x"}, {"": {}}]


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """The bytes with one to three pieces of damage."""
    for _ in range(draw(st.sampled_from([1, 1, 2, 3]))):
        content = draw(_once(content))
    return content


@st.composite
def _once(draw: st.DrawFn, content: bytes) -> bytes:
    how = draw(st.integers(0, 8))
    start, length = draw(st.integers(0, len(content))), draw(st.sampled_from([1, 1, 2, 4, 16, 64]))
    end = min(len(content), start + length)
    if how == 0:
        return content[:start]
    if how == 1:
        return content[:start] + bytes(byte ^ draw(flips) for byte in content[start:end]) + content[end:]
    if how == 2:
        return content[:start] + content[end:]
    if how == 3:
        return content[:end] + content[start:]
    if how in (4, 5):
        return content[:start] + draw(st.sampled_from(PIECES)) + content[end if how == 5 else start:]
    lines = content.split(b"\n")
    place = draw(st.integers(0, len(lines) - 1))
    if how == 6:  # a line lost or doubled
        return b"\n".join(lines[:place] + lines[place:place + 1] * draw(st.sampled_from([0, 2])) + lines[place + 1:])
    cells = lines[place].replace(b"::", b",").replace(b" ", b",").split(b",")
    cell = cells[draw(st.integers(0, len(cells) - 1))]
    if how == 7 and cell:  # one cell of a table gets another value, everywhere if it is a name
        return content.replace(cell, draw(st.sampled_from(PIECES)), draw(st.sampled_from([1, 1, -1])))
    return draw(st.sampled_from([b"", b"\0" * 100, content * 2, b"\x89HDF\r\n\x1a\n" + content, b"PK\x03\x04" + content,
                                 content[::-1]]))


@st.composite
def damaged_json(draw: st.DrawFn, content: bytes) -> bytes:
    """JSON in which a value is another one, or a key is lost or new; anything else is damaged as bytes."""
    try:
        tree = json.loads(content)
    except ValueError:
        return draw(damaged(content))
    if draw(st.integers(0, 9)) == 0:
        return json.dumps(draw(st.sampled_from(JSON_VALUES))).encode()
    for _ in range(draw(st.sampled_from([1, 1, 2]))):
        parents = list(_parents(tree))
        if not parents:
            break
        parent = draw(st.sampled_from(parents))
        key = draw(st.sampled_from(sorted(parent) if isinstance(parent, dict) else range(len(parent))))
        how = draw(st.integers(0, 5))
        if how == 0:
            del parent[key]
        elif how == 1 and isinstance(parent, dict):
            parent[draw(st.sampled_from(["nope", "", "name"]))] = parent.pop(key)
        else:
            parent[key] = copy.deepcopy(draw(st.sampled_from(JSON_VALUES)))  # it may be damaged in turn
    return json.dumps(tree).encode()


def _parents(tree: Any) -> Any:
    """Every list and table that holds something."""
    if isinstance(tree, dict | list) and tree:
        yield tree
        for inner in tree.values() if isinstance(tree, dict) else tree:
            yield from _parents(inner)
