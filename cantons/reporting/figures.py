"""The figures of a report, one function each: groups in, a matplotlib figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cantons.reporting.collect import Group
from cantons.reporting.labels import WIDTH, label_ends, make_room
from cantons.reporting.style import FAINT, colour, dashes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

WIDE, SQUARE = (5.3, 3.2), (2.75, 2.6)  # inches
MANY = 500  # points a curve needs at most; more dots than that are smaller as a picture than as their description


def curves(groups: Sequence[Group], key: str, label: str, same_axis: Sequence[str] = (), across: str = "rounds",
           bounds: Mapping[str, str] | None = None, log_across: bool = False) -> Figure:
    """One number against rounds: see `draw_curves`."""
    figure, axes = _blank(WIDE)
    draw_curves(axes, groups, key, label, same_axis, across, bounds, log_across)
    make_room(figure)
    return figure


def draw_curves(axes: Axes, groups: Sequence[Group], key: str, label: str, same_axis: Sequence[str] = (),
                across: str = "rounds", bounds: Mapping[str, str] | None = None, log_across: bool = False) -> None:
    """One number against rounds: the mean over seeds as a line, smallest to largest as a band.

    The vertical axis has room for the numbers in `same_axis` too, so that figures can be held side by side. `bounds`
    are {number: name}: dotted lines, drawn once where they are the same for all. `log_across` makes rounds logarithmic,
    from the first after which there is a number.
    """
    from matplotlib.ticker import MaxNLocator

    lines, names = [], []
    for place, group in enumerate(groups):
        values = group.curve(key)
        lines.append(_line(axes, place, group.rounds, values.mean(axis=0)))
        names.append(group.label)
        axes.fill_between(group.rounds, values.min(axis=0), values.max(axis=0), color=colour(place), alpha=0.16,
                          linewidth=0)
    everything = [group.curve(each).ravel() for group in groups for each in (key, *same_axis, *(bounds or {}))]
    axes.set(xlabel=across, ylabel=label, xlim=(0, max(1, *(group.rounds[-1] for group in groups))))
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
    _fit(axes, "y", np.concatenate(everything))
    there = np.concatenate([group.rounds[np.isfinite(group.curve(key)).any(axis=0)] for group in groups])
    if log_across and len(there) and there.max() > 2 * there[there > 0].min(initial=there.max()):
        axes.set(xlabel=f"{across} (log scale)", xscale="log", xlim=(there[there > 0].min(), there.max()))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
    for stage, end in stages_of(groups).items():
        axes.axvline(end, color=FAINT, linewidth=0.8, linestyle="dotted", zorder=1)
        axes.annotate(stage, (end, 0.5), xycoords=axes.get_xaxis_transform(), xytext=(-3, 0), color=FAINT, ha="right",
                      va="center", textcoords="offset points", rotation=90)
    for bound, name in (bounds or {}).items():
        drawn = _different(groups, bound)
        lines += [axes.plot(group.rounds, group.curve(bound).mean(axis=0), color=FAINT, linestyle="dotted")[0]
                  for group in drawn]
        names += [name] if len(drawn) == 1 else [f"{name}, {group.label}" for group in drawn]
    label_ends(axes, lines, names)


def stages_of(groups: Sequence[Group]) -> Mapping[str, int]:
    """The stages before the last, and after which round each ended; none where that is not the same for all."""
    found = [run.stages for group in groups for run in group.runs]
    return found[0] if all(one == found[0] for one in found) else {}


def _different(groups: Sequence[Group], key: str) -> list[Group]:
    """The groups that have this number, without those whose numbers another one has too."""
    found = {(group.rounds.tobytes(), group.curve(key).mean(axis=0).round(12).tobytes()): group
             for group in reversed(groups) if np.isfinite(group.curve(key)).any()}
    return list(reversed(found.values()))


def against_time(groups: Sequence[Group], key: str, label: str) -> Figure:
    """One number against virtual time, for the runs that have one: means over seeds, at their own mean times."""
    figure, axes = _blank(WIDE)
    timed = [(place, group) for place, group in enumerate(groups) if np.isfinite(group.curve("clock.time")).all()]
    lines = [_line(axes, place, group.curve("clock.time").mean(axis=0), group.curve(key).mean(axis=0))
             for place, group in timed]
    axes.set(xlabel="virtual time", ylabel=label)
    label_ends(axes, lines, [group.label for _, group in timed])
    make_room(figure)
    return figure


def traffic(groups: Sequence[Group], key: str, label: str) -> Figure:
    """One number against what a client has sent and received so far, on a logarithmic scale."""
    from matplotlib.ticker import LogLocator

    figure, axes = _blank(WIDE)
    lines = []
    for place, group in enumerate(groups):
        sent, values = group.curve("bytes_per_client").mean(axis=0), group.curve(key).mean(axis=0)
        lines.append(_line(axes, place, sent[sent > 0], values[sent > 0]))
    axes.set(xlabel="sent and received per client (log scale)", ylabel=label)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(LogLocator(base=2, numticks=6))
    axes.xaxis.set_major_formatter(lambda value, _: size(value))
    axes.xaxis.set_minor_formatter("")
    _fit(axes, "y", np.concatenate([line.get_ydata() for line in lines]))
    label_ends(axes, lines, [group.label for group in groups])
    make_room(figure)
    return figure


def ranked(groups: Sequence[Group], key: str, label: str, larger_is_better: bool) -> Figure:
    """Every client's score, from the client who fares worst to the one who fares best."""
    figure, axes = _blank(WIDE)
    lines = []
    for place, group in enumerate(groups):
        values = group.clients(key)
        values = np.sort(values[np.isfinite(values)])[:: 1 if larger_is_better else -1]
        ranks = np.arange(0, len(values), 1 + len(values) // MANY)
        lines.append(_line(axes, place, 100 * (ranks + 0.5) / max(1, len(values)), values[ranks]))
    axes.set(xlabel="clients, ranked for each method from worst to best (%)", ylabel=label, xlim=(0, 100))
    _fit(axes, "y", np.concatenate([line.get_ydata() for line in lines]))
    label_ends(axes, lines, [group.label for group in groups])
    make_room(figure)
    return figure


def against(before: np.ndarray, after: np.ndarray, place: int, labels: tuple[str, str], larger_is_better: bool,
            everything: np.ndarray) -> Figure:
    """A dot per client, larger where several coincide: its score by one model across, by the other upwards.

    The axes stand in the same place whatever their words are, and have room for `everything`, so that figures can be
    held side by side.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=SQUARE)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0.215, 0.175, 0.755, 0.755 * SQUARE[0] / SQUARE[1]))
    there = np.isfinite(before) & np.isfinite(after)
    spots, counts = np.unique(np.stack([before[there], after[there]]), axis=1, return_counts=True)
    area = np.clip(4000 / max(1, counts.sum()), 1.5, 14)  # of one client's dot
    axes.scatter(spots[0], spots[1], s=area * counts, color=colour(place), alpha=0.6, linewidth=0,
                 rasterized=len(counts) > MANY)
    axes.set(xlabel=_short(labels[0]), ylabel=_short(labels[1]), aspect="equal")
    axes.grid(visible=True, axis="both")
    axes.locator_params(nbins=4)
    for which in ("x", "y"):
        _fit(axes, which, everything)
    axes.plot(axes.get_xlim(), axes.get_xlim(), color=FAINT, linewidth=0.8, zorder=1)
    corners = ("better", "worse") if larger_is_better else ("worse", "better")
    axes.text(0.03, 0.97, corners[0], transform=axes.transAxes, va="top", color=FAINT)
    axes.text(0.97, 0.03, corners[1], transform=axes.transAxes, ha="right", color=FAINT)
    return figure


def _short(label: str) -> str:
    """One line below an axis; the title of the figure has all of it."""
    return label if len(label) <= WIDTH else f"{label[: WIDTH - 1]}…"


def size(value: float) -> str:
    """Bytes as people read them.

    >>> size(10), size(2048), size(10 * 2**20)
    ('10 B', '2 KiB', '10 MiB')
    """
    power = 0 if value < 1 else min(4, int(np.log2(value)) // 10)
    return f"{value / 1024**power:.3g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def _blank(inches: tuple[float, float]) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure  # not pyplot, which keeps every figure in a global list

    figure = Figure(figsize=inches)
    return figure, figure.add_subplot()


def _line(axes: Axes, place: int, across: np.ndarray, up: np.ndarray) -> Line2D:
    return axes.plot(across, up, color=colour(place), linestyle=dashes(place))[0]


def _fit(axes: Axes, which: str, values: np.ndarray) -> None:
    """Room for these values on the "x" or "y" axis, logarithmic if they span more than two powers of ten."""
    finite = values[np.isfinite(values)]
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 1.0)
    axis = axes.xaxis if which == "x" else axes.yaxis
    if low > 0 and high > 100 * low:
        room = (high / low) ** 0.05
        axes.set(**{f"{which}scale": "log", f"{which}lim": (low / room, high * room)})
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
        axis.set_label_text(f"{axis.get_label_text()} (log scale)")
    else:
        room = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
        axes.set(**{f"{which}lim": (low - room, high + room)})
