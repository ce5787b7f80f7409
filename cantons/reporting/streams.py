"""The section of a report about streams: what examples cost before they were learned from, and the regret."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from cantons.reporting import figures
from cantons.reporting.collect import Group, has_number
from cantons.reporting.markup import element, figure, gallery

ONLINE = ("loss", "accuracy", "reward", "regret")


def online(groups: Sequence[Group]) -> str:
    """What streams of examples cost those who had not learned from them yet, if there are any."""
    titles = {f"online.personal.{metric}.mean": f"{metric.capitalize()} so far" for metric in ONLINE}
    drawn = [figure(title, partial(figures.curves, groups, key, f"mean online {title.lower()}", across="steps"))
             for key, title in titles.items() if has_number(groups, key)]
    if not drawn:
        return ""
    note = ("Clients are scored on new examples before they learn from them. Curves show means over clients of their "
            "averages so far.")
    if has_number(groups, "online.personal.regret.mean"):
        note += " Regret is what the best action of each step would have brought beyond the one that was chosen."
    if has_number(groups, "online.regret"):
        bounds = {"online.regret_bound": "Theorem 2"} if has_number(groups, "online.regret_bound") else {}
        drawn.append(figure("Regret so far", partial(figures.curves, groups, "online.regret", "average regret",
                                                     across="steps", bounds=bounds)))
        note += (" Regret is what an example cost on average beyond the best fixed pair of a shared and a private "
                 "model, which is found in hindsight for the examples met so far.")
        note += (" Dotted: what Theorem 2 of Agarwal, Langford and Wei (2020) promises FedRes.SGD with the step size "
                 "it names, whatever was run here. Its quantities are measured on these examples, and one constant "
                 "that the proof leaves open is 1.") if bounds else ""
    if has_number(groups, "online.collective_regret"):
        drawn += _collective(groups)
        note += (" Collective regret is a total: what every client's model cost on everybody's examples, beyond the "
                 "best fixed point of the set, which is found in hindsight for the examples met so far.")
        note += (" Dynamic regret is held against the best point of each step."
                 if has_number(groups, "online.dynamic_regret") else "")
        note += (" Dotted beside it: what the theorems of Mitra, Hassani and Pappas (2021) promise for the set, the map"
                 " and the step size of the run, with the steepest gradient measured on these examples."
                 if has_number(groups, "online.collective_bound") else "")
    return element("h2", "Online") + element("p", note, "note") + gallery(drawn)


def _collective(groups: Sequence[Group]) -> list[str]:
    """Regret by itself, where a logarithm in time is a straight line, and with a bound that may be far above it."""
    label, key, bound = "collective regret", "online.collective_regret", "online.collective_bound"
    drawn = [figure("Collective regret so far", partial(figures.curves, groups, key, label, across="steps",
                                                        log_across=True))]
    if has_number(groups, bound):
        drawn.append(figure("Collective regret and its bound", partial(
            figures.curves, groups, key, label, across="steps", bounds={bound: "bound"}, log_across=True)))
    if has_number(groups, "online.dynamic_regret"):
        drawn.append(figure("Dynamic regret so far", partial(
            figures.curves, groups, "online.dynamic_regret", "dynamic regret", across="steps")))
    return drawn
