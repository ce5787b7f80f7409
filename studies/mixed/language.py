"""The language model of "Mixed Federated Learning" (Augenstein et al., 2022, sections 5.2 and C.2.2).

    python studies/mixed/language.py [--quick | --small] [--figure 1 | 4 | 10 | 11] [--methods NAME ...]
                                     [--rate ETA] [--minutes M] [--data DIR] [--out DIR] [--draw]

Clients are authors of blogs (blogs_by_author.npz) and the datacenter has articles of an encyclopedia (wikitext2.npz),
in place of the paper's Stack Overflow and Wikipedia. A GRU reads 100 characters and predicts the next at every place.
Its accuracy is measured on other authors, on other articles, and on as many rows of either together.

All methods of a figure take turns, some rounds each, until their rounds are done or the next turn would not end within
--minutes, compiling included: so all have equally many rounds. After every turn, all curves are written to
DIR/figureN.json; methods that are in it already, with the same settings, stay. --draw makes the figure and the table
from that file and runs nothing; otherwise they are made at the end, if matplotlib is there.

    figure 1   Figures 1b, 2b and 5: only federated, the three ways to mix, and the oracle with all text in one place
    figure 4   G~² and B~² by the protocol of C.1: one step a round, five runs, the largest of every fifth round
    figure 10  larger steps traded for fewer of them
    figure 11  larger steps for the two methods that stand them

The paper's network and cohorts want an accelerator; --small has a network for two cores. Without the files, and with a
network still smaller, --quick takes made-up text.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import cantons as ct
from cantons.data import ASCII, NaturalDivision, Ragged, from_sizes, from_table, from_texts, read_authors, sequences
from cantons.protocol import Batch, Problem, PyTree, Recipe
from cantons.study.resolve import resolve

sys.path.insert(0, str(Path(__file__).parents[1]))
import kit

BLOGS, ARTICLES = "blogs_by_author.npz", "wikitext2.npz"
SETS = {"inference": "both", "federated": "blogs (clients)", "central": "articles (datacenter)"}
WEIGHTS = (0.73, 0.27)  # w_f and w_c of Table 9
SCORED = 256  # rows scored at once
FEW = 40  # authors, where there are many evaluations
GROUP = 5  # authors that are evaluated at once: each with all its rows


class Settings(NamedTuple):
    """Those of the paper, where it has them: C.2.2 and Tables 8 and 9."""

    width: int = 256  # of a character's vector
    units: int = 1024
    length: int = 100  # characters in an example
    cohort: int = 100  # S
    batch_size: int = 8  # |B_i|
    steps: int = 16  # K
    rate: float = 2.0  # eta; half of it for 2-way transfer as printed
    rounds: int = 2000
    every: int = 5  # rounds in a turn
    authors: int | None = None  # of the blogs; all if None
    characters: int | None = None  # of the articles, for training
    other_authors: float = 0.1  # whose blogs are for testing
    test_rows: int = 2048  # of the blogs, and of the articles
    methods: tuple[str, ...] | None = None  # all of the figure's if None
    seed: int = 0


SMALL = Settings(width=16, units=64, length=50, cohort=10, rounds=200, every=10, authors=300, test_rows=512)
QUICK = Settings(width=8, units=24, length=20, cohort=4, batch_size=4, steps=4, rounds=100, every=20, authors=12,
                 characters=20_000, other_authors=0.25, test_rows=64, methods=("only federated", "parallel", "2-way"))


# The data


def language_data(folder: Path, settings: Settings) -> ct.Federation:
    """Authors, the datacenter's articles, and three test sets; "inference" has as many rows of either."""
    if (folder / BLOGS).exists() and (folder / ARTICLES).exists():
        authors, articles, others = read_authors(folder / BLOGS), *read_articles(folder / ARTICLES)
    else:
        authors, articles, others = make_texts()
    if settings.authors is not None:
        authors = dict(itertools.islice(authors.items(), settings.authors))
    blogs = from_texts(authors, length=settings.length, alphabet=ASCII, name="blogs",
                       division=NaturalDivision(test=0.0, new=settings.other_authors))
    table = sequences({"train": articles[: settings.characters], "test": others}, "characters", settings.length, ASCII)
    assert table.clients is not None and blogs.new is not None
    centre = from_table(table._replace(test=table.clients == "test", clients=np.zeros(len(table.inputs), int)),
                        NaturalDivision(), name="articles")
    federated, central = (drawn_rows(rows, settings.test_rows) for rows in (blogs.new.train, centre.test))
    both = min(federated.longest, central.longest)
    inference = from_sizes(*(np.concatenate(pair) for pair in zip(
        *((rows.inputs[:both], rows.targets[:both]) for rows in (federated, central)), strict=True)),
        np.array([2 * both]))
    return replace(ct.with_central(blogs, centre), new=None,
                   sets={"federated": federated, "central": central, "inference": inference})


def drawn_rows(rows: Ragged, most: int) -> Ragged:
    """Some rows at random, whoever has them, as those of one owner."""
    chosen = np.random.default_rng(0).permutation(len(rows.inputs))[:most]
    return from_sizes(rows.inputs[chosen], rows.targets[chosen], np.array([len(chosen)]))


def read_articles(path: Path) -> tuple[str, str]:
    """WikiText-2 as prose: what its training and its test part say."""
    with np.load(path, allow_pickle=False) as file:
        words = file["vocab"].tolist()
        return tuple(as_prose(words[number] for number in file[part].tolist())  # type: ignore[return-value]
                     for part in ("train", "test"))


ENDS = {".", "!", "?"}
GOES_ON = ENDS | {",", ";", ":", ")", "]", "'s"}
UNWRITTEN = ("<unk>", "<formula>")  # what stands for words that the file does not have
# WikiText sets every sign apart and marks those inside a word. In this order:
JOINED = [(re.compile(pattern), by) for pattern, by in [
    (r" @([-,.])@ ", r"\1"), (r'" (.*?) "', r'"\1"'), (r"(?<=\d) ([–-]) (?=\d)", r"\1"), (r" ?(/) ?", r"\1"),
    (r" ([,.;:!?%)\]]|\.\.\.)(?= |$|[\"'])", r"\1"), (r"([(\[$£€#]) ", r"\1"), (r" ('\w*)(?= |$|\W)", r"\1")]]


def as_prose(tokens: Any) -> str:
    """Tokens of WikiText as somebody would write them: a line for each paragraph or title.

    A sentence with a word that the file has left out is left out as a whole: cut at that word, it would teach a model
    that sentences break off. Titles lose the signs around them.
    """
    lines = []
    for ends, line in itertools.groupby(tokens, lambda token: token == "<eos>"):
        words = [token for token in line if token != "="]
        whole = [sentence for sentence in sentences(words) if not any(token in UNWRITTEN for token in sentence)]
        if not ends and whole:
            lines.append(" ".join(joined(sentence) for sentence in whole))
    return "\n".join(lines) + "\n"


def sentences(tokens: list[str]) -> Iterator[list[str]]:
    """A quotation belongs to the sentence in which it begins, and what goes on in small letters to the one before."""
    current: list[str] = []
    quoted = False
    for before, token, after in zip(["", *tokens], tokens, [*tokens[1:], ""], strict=False):
        current.append(token)
        quoted ^= token == '"'
        ends = not quoted and (token in ENDS or (token == '"' and before in ENDS))
        if ends and not after[:1].islower() and after not in GOES_ON:
            yield current
            current = []
    if current:
        yield current


def joined(tokens: list[str]) -> str:
    text = " ".join(tokens)
    for pattern, by in JOINED:
        text = pattern.sub(by, text)
    return text


def make_texts() -> tuple[dict[str, str], str, str]:
    """In place of the files: authors with favourite words, and articles with words of their own and numbers."""
    random = np.random.default_rng(0)

    def made_words(letters: str, count: int) -> list[str]:
        return ["".join(random.choice(list(letters), random.integers(2, 7))) for _ in range(count)]

    ours, theirs = made_words("aeionstrlm", 60), made_words("bcdfghkpuvwy", 60)

    def written(words: list[str], count: int, liking: np.ndarray) -> str:
        return " ".join(np.where(random.random(count) < 0.1, ".", random.choice(words, count, p=liking)).tolist())

    authors = {f"author{number:02}": written(ours, 500, random.dirichlet(np.full(60, 0.5))) for number in range(16)}
    liking = random.dirichlet(np.full(60, 2.0))
    articles = [*theirs[:-10], *(str(year) for year in range(1990, 2000))]
    return authors, written(articles, 4000, liking), written(articles, 1000, liking)


# The methods


class Method(NamedTuple):
    recipe: Recipe
    mixed: bool = True  # does the problem have the datacenter's loss?


def methods(figure: int, settings: Settings) -> dict[str, Method]:
    eta = settings.rate
    if figure == 11:
        return {"parallel": mixing("parallel", settings, 1.5 * eta), "1-way": mixing("1-way", settings, 1.5 * eta),
                "2-way": mixing("2-way", settings, eta / 2)}
    if figure == 10:
        choices = [settings._replace(steps=max(1, round(settings.steps * factor))) for factor in (0.5, 1, 2)]
        return {f"{name}, K = {each.steps}": mixing(name, each, rate * settings.steps / each.steps)
                for name, rate in (("parallel", eta), ("1-way", eta), ("2-way", eta / 2)) for each in choices}
    local = {"steps": settings.steps, "step_size": eta}
    return {
        "only federated": Method(ct.fedavg(**local, batch_size=settings.batch_size, weighting="uniform"), mixed=False),
        "parallel": mixing("parallel", settings, eta),
        "1-way": mixing("1-way", settings, eta),
        "2-way": mixing("2-way", settings, eta / 2),
        # Each of its branches follows both losses. With half the sum, it stands the steps of the others.
        "2-way, merge 1/2": mixing("2-way", settings, eta, merge_step_size=0.5),
        "oracle": Method(ct.central(**local, batch_size=settings.cohort * settings.batch_size)),
    }


def mixing(name: str, settings: Settings, rate: float, **options: float) -> Method:
    """|B_c| = S |B_i|; for 1-way transfer half of K S |B_i|, as in Table 9."""
    rows = settings.cohort * settings.batch_size
    local = {"steps": settings.steps, "step_size": rate, "batch_size": settings.batch_size}
    if name == "1-way":
        return Method(ct.one_way_transfer(**local, central_batch_size=max(1, settings.steps * rows // 2), **options))
    build: Callable[..., Recipe] = {"parallel": ct.parallel_training, "2-way": ct.two_way_transfer}[name]
    return Method(build(**local, central_steps=settings.steps, central_step_size=rate, central_batch_size=rows,
                        **options))


# The runs


class Run:
    """One method on its way; `curve` has what is measured between its turns."""

    def __init__(self, method: Method, plain: Problem, data: ct.Federation, settings: Settings):
        self.problem = ct.with_central_loss(plain, "same", WEIGHTS) if method.mixed else plain
        # On an accelerator all clients at once: they make equally many steps, however many examples they have.
        engine = ct.Local() if jax.default_backend() == "cpu" else ct.Local(group=settings.cohort)
        parts = resolve(self.problem, data, method.recipe, rounds=settings.rounds, cohort=settings.cohort,
                        seed=settings.seed, engine=engine).parts
        self.session = engine.start([parts])
        self.state = self.session.begin()
        self.options = {name: value for name, value in method.recipe.options.items() if value is not None}
        self.curve: dict[str, Any] = {"round": [], "seconds_per_round": [], **{
            name: {"loss": [], "accuracy": []} for name in SETS}}

    def prepare(self) -> None:
        self.session.prepare(self.state)

    def advance(self, until: int) -> None:
        began = time.perf_counter()
        self.state = self.session.advance(self.state, until)
        self.curve["seconds_per_round"].append((time.perf_counter() - began) / (until - self.curve["round"][-1]))

    def measure(self, done: int, score: Callable[..., Any]) -> None:
        self.curve["round"].append(done)
        snapshot = self.session.whole(self.state)[0]
        for name, numbers in score(snapshot.state.server.shared, snapshot.start_private).items():
            for metric, value in numbers.items():
                self.curve[name][metric].append(float(value))


def scorer(problem: Problem, sets: Mapping[str, Ragged]) -> Callable[[PyTree, PyTree], dict[str, dict[str, Any]]]:
    """Loss and accuracy of a model on the test sets, as means over all characters.

    An evaluation by the engine has the same numbers in its `sets`, but scores every client on its training rows too: at
    full size that is as much work as a turn.
    """

    @jax.jit
    def total(shared: PyTree, private: PyTree, batch: Batch) -> PyTree:
        return jax.tree.map(lambda values: (values * batch.mask).sum(), problem.score(shared, private, batch))

    batches = {name: jax.device_put([Batch(
        rows.inputs[start : start + SCORED], rows.targets[start : start + SCORED],
        np.ones(len(rows.inputs[start : start + SCORED]), np.float32))
        for start in range(0, rows.longest, SCORED)]) for name, rows in sets.items()}

    def score(shared: PyTree, private: PyTree) -> dict[str, dict[str, Any]]:
        shared = jax.device_put(shared)
        sums = {name: [total(shared, private, batch) for batch in own] for name, own in batches.items()}
        return {name: {metric: sum(float(one[metric]) for one in own) / sets[name].longest for metric in own[0]}
                for name, own in sums.items()}

    return score


def play(given: Any, figure: int, settings: Settings, path: Path) -> dict[str, Any]:
    """Run the methods in turns, and write what is known after each."""
    watch = kit.Watch()
    data = language_data(given.data, settings)
    assert data.central is not None and data.classes is not None
    about = {"figure": figure, "settings": json.loads(json.dumps(settings._asdict())), "data": data.describe(),
             "device": str(jax.devices()[0].device_kind)}
    watch(data.describe().splitlines()[0])
    plain = ct.classification(data, ct.gru(data.classes, width=settings.width, units=settings.units))
    known = methods(figure, settings)
    wanted = given.methods or [name for name in known if figure != 1 or name in (settings.methods or known)]
    if missing := [name for name in wanted if name not in known]:
        raise SystemExit(f"figure {figure} has no method {missing[0]!r}; it has: {', '.join(known)}.")
    runs = {name: Run(known[name], plain, data, settings) for name in wanted}
    with ThreadPoolExecutor() as pool:  # programs are compiled side by side
        list(pool.map(Run.prepare, runs.values()))
    watch("compiled")
    score = scorer(plain, data.sets)
    found = read_numbers(path, about)
    done, longest = 0, 0.0
    for run in runs.values():
        run.measure(0, score)
    while done < settings.rounds and not (given.minutes and watch.seconds + longest > 60 * given.minutes):
        began, done = watch.seconds, min(done + settings.every, settings.rounds)
        for name, run in runs.items():
            run.advance(done)
            run.measure(done, score)
            found["methods"][name] = {"options": run.options, "curve": run.curve}
        longest = max(longest, watch.seconds - began)
        found["methods"] = {name: found["methods"][name] for name in known if name in found["methods"]}
        kit.save_numbers(path, {**found, "seconds": watch.seconds})
        watch(f"round {done}: " + ", ".join(f"{name} {run.curve['inference']['accuracy'][-1]:.3f}"
                                            for name, run in runs.items()))
    if not done:
        raise SystemExit(f"{given.minutes} minutes are too few: they ended before the first round.")
    return json.loads(path.read_text())


def read_numbers(path: Path, about: dict[str, Any]) -> dict[str, Any]:
    """The curves of an earlier call, if it had the same settings."""
    if path.exists():
        before = json.loads(path.read_text())
        if all(before.get(key) == about[key] for key in ("figure", "settings", "data")):
            return {**before, **about}
    return {**about, "methods": {}}


def dissimilarity(given: Any, settings: Settings, path: Path) -> str:
    """Figure 4 and the second column of Table 2; each look is an evaluation, so there are few authors."""
    few = max(FEW, 5 * settings.cohort // 4)
    data = language_data(given.data, settings._replace(authors=min(settings.authors or few, few)))
    assert data.classes is not None
    problem = ct.with_central_loss(ct.classification(data, ct.gru(
        data.classes, width=settings.width, units=settings.units)), "same", WEIGHTS)
    recipe = mixing("parallel", settings._replace(steps=1), settings.rate).recipe
    rounds = min(100, settings.rounds)
    histories = ct.rollouts(problem, data, recipe, rounds=rounds, clock=ct.rounds(cohort=settings.cohort),
                            seed=list(range(5)), evaluate_every=5, engine=ct.Local(group=GROUP))
    found = {name: np.max([[row[f"server.dissimilarity_{name}"] for row in history] for history in histories], axis=0)
             for name in ("G2", "B2")}
    kit.save_numbers(path, {name: values.tolist() for name, values in found.items()})
    late = np.array([row["round"] for row in histories[0]]) >= min(10, rounds)
    return kit.table(["", "max G~², rounds 10 to 100", "max B~²"], [
        [f"{data.population} authors, eta = {settings.rate:g}", *(f"{found[name][late].max():.4g}"
                                                                  for name in ("G2", "B2"))],
        ["Table 2", "0.03", "1.34"]], numbers=True) + "\n"


# What is drawn


def draw(found: Mapping[str, Any], path: Path) -> None:
    from matplotlib import pyplot

    panels = {10: panels_by_method, 1: panels_by_set, 11: panels_by_set}[found["figure"]](found["methods"])
    picture, places = pyplot.subplots(1, len(panels), figsize=(4 * len(panels), 3.6), layout="constrained",
                                      squeeze=False)
    for (title, curves), axes in zip(panels.items(), places[0], strict=True):
        colours = itertools.cycle(kit.COLOURS)
        for (name, (rounds, values)), line in zip(curves.items(), itertools.cycle(("-", "--", "-.", ":", "-", "--")),
                                                  strict=False):
            axes.plot(rounds, values, line, color=next(colours), linewidth=1.5, label=name)
        axes.set_title(title, fontsize=10)
        axes.set(xlabel="round", ylabel=title.split(",")[0])
        axes.grid(alpha=0.25)
    if found["figure"] == 10:
        for axes in places[0]:
            axes.legend(frameon=False, fontsize=8)
    else:
        picture.legend(*places[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False,
                       fontsize=8)
    kit.save_figure(picture, path, shades=64)


Curves = dict[str, dict[str, tuple[list[int], list[float]]]]  # panel -> line -> (rounds, values)


def panels_by_set(methods: Mapping[str, Any]) -> Curves:
    panels = {f"accuracy, {words}": ("accuracy", name) for name, words in SETS.items()}
    panels["loss, both"] = "loss", "inference"
    # Round 0 is left out of the loss: it would be most of the panel.
    return {title: {label: (one["curve"]["round"][metric == "loss":], one["curve"][name][metric][metric == "loss":])
                    for label, one in methods.items()} for title, (metric, name) in panels.items()}


def panels_by_method(methods: Mapping[str, Any]) -> Curves:
    panels: Curves = {}
    for label, one in methods.items():
        name, choice = label.split(", ")
        line = f"{choice}, eta = {one['options']['step_size']:g}"
        panels.setdefault(f"accuracy, {name}", {})[line] = one["curve"]["round"], one["curve"]["inference"]["accuracy"]
    return panels


def table(found: Mapping[str, Any]) -> str:
    """After the last round that all methods have."""
    ends = [one["curve"]["round"][-1] for one in found["methods"].values()]
    rows = []
    for label, one in found["methods"].items():
        curve, place = one["curve"], one["curve"]["round"].index(min(ends))
        rows.append([label, f"{one['options']['step_size']:g}", str(one["options"]["steps"]),
                     *(f"{100 * curve[name]['accuracy'][place]:.1f}" for name in ("federated", "central", "inference")),
                     f"{curve['inference']['loss'][place]:.3f}", f"{np.median(curve['seconds_per_round']):.2f}"])
    head = ["method", "eta", "K", "accuracy: blogs", "articles", "both", "loss: both", "seconds per round"]
    return (f"**After {min(ends)} rounds** ({found['device']}, {found['seconds']:.0f} s in all for the last call). "
            f"{found['data'].splitlines()[0]}.\n\n{kit.table(head, rows, numbers=False)}\n")


def main(arguments: list[str] | None = None) -> None:
    given = kit.read_arguments(
        __doc__, "results/mixed_language", arguments, data=kit.FILES,
        small={"action": "store_true", "help": "a small network, for two cores"},
        figure={"type": int, "choices": (1, 4, 10, 11), "default": 1, "help": "of the paper; 1 is 1b, 2b and 5"},
        methods={"nargs": "+", "help": "some of the figure's methods, by name; all if left out"},
        minutes={"type": float, "help": "when to end; after all rounds if left out"},
        rounds={"type": int, "help": "in place of the usual number"},
        every={"type": int, "help": "rounds in a turn, between two measurements"},
        rate={"type": float, "help": "eta, in place of Table 8's"},
        seed={"type": int, "default": 0, "help": "of starting point, cohorts and batches"},
        draw={"action": "store_true", "help": "the figure and the table of an earlier call, and no more"})
    settings = (QUICK if given.quick else SMALL if given.small else Settings())._replace(
        seed=given.seed, **{name: getattr(given, name) for name in ("rounds", "every", "rate") if getattr(given, name)})
    path = given.out / f"figure{given.figure}.json"
    if given.figure == 4:
        text = dissimilarity(given, settings, path)
        path.with_suffix(".md").write_text(text)
        return print(text)
    if given.draw and not path.exists():
        raise SystemExit(f"{path} is not there; run without --draw first.")
    found = json.loads(path.read_text()) if given.draw else play(given, given.figure, settings, path)
    text = table(found)
    path.with_suffix(".md").write_text(text)
    print(text)
    if given.draw or find_spec("matplotlib"):
        draw(found, path.with_suffix(".png"))


if __name__ == "__main__":
    main()
