"""Owns: the whole vocabulary between problems, algorithms, engines and studies. May import: errors.

A problem says what is minimised, an algorithm says who moves what on which evidence, a clock says who takes part when,
a rule says how uploads become one, an engine says where all this runs, and a study puts them together. Problems,
algorithms, clocks and rules are values made of pure functions: what is not in the server's, the client's or the rule's
state does not exist, so saving, replaying, `jit`, `vmap` and `scan` come for free. One round, as every engine runs it:

    message = broadcast(key, server, central)
    for each client there is:     message = select(message, request(key, client, data)), by default all of it
    for each client that hears:   client = receive(message, receipt, client)
    for each client that acts:    upload, client = client_update(key, message, client, data)
    for each client that counts:  upload enters the aggregate (unless it is not finite)
    if anything arrived:          server = server_update(key, server, aggregate, central)

Online, a round is one step of time in which every client meets new examples. It is scored on them before it learns
from them, messages reach it late, its uploads arrive late, and it is told of each when a message first contains it.
"""

from __future__ import annotations

from cantons.protocol.aggregation import (
    Aggregator,
    Attack,
    Average,
    Averages,
    Report,
    Rule,
    Stack,
    StackRule,
    Sum,
    SumRule,
    TableRows,
    adds,
    stateless,
)
from cantons.protocol.algorithm import (
    Algorithm,
    Diagnostics,
    Needs,
    PersonalModel,
    Probe,
    Receipt,
    Recipe,
    Theory,
    begin_alike,
    everything,
    keep,
    no_advice,
    no_remarks,
    no_request,
    nothing_noted,
)
from cantons.protocol.clock import Asynchronous, Clock, Event, Job, Online, Plan
from cantons.protocol.engine import (
    Engine,
    Evaluation,
    EventCounts,
    Parts,
    Progress,
    Scores,
    Session,
    Snapshot,
    Start,
    State,
)
from cantons.protocol.examples import (
    Batch,
    CentralData,
    CentralExamples,
    Data,
    Datacenter,
    Examples,
    Federated,
    Groups,
    Population,
)
from cantons.protocol.problem import (
    CentralLoss,
    CentralTerm,
    Convex,
    Dense,
    GroupLoss,
    Problem,
    Residual,
    SetMetric,
    Tables,
)
from cantons.protocol.types import Aggregate, Array, Client, Key, Message, PyTree, Server, Upload

__all__ = [
    "Aggregate", "Aggregator", "Algorithm", "Array", "Asynchronous", "Attack", "Average", "Averages", "Batch",
    "CentralData", "CentralExamples", "CentralLoss", "CentralTerm", "Client", "Clock", "Convex", "Data",
    "Datacenter", "Dense", "Diagnostics", "Engine", "Evaluation", "Event", "EventCounts", "Examples", "Federated",
    "GroupLoss", "Groups", "Job", "Key", "Message", "Needs", "Online", "Parts", "PersonalModel", "Plan",
    "Population", "Probe", "Problem", "Progress", "PyTree", "Receipt", "Recipe", "Report", "Residual", "Rule",
    "Scores", "Server", "Session", "SetMetric", "Snapshot", "Stack", "StackRule", "Start", "State", "Sum", "SumRule",
    "TableRows", "Tables", "Theory", "Upload", "adds", "begin_alike", "everything", "keep", "no_advice", "no_remarks",
    "no_request", "nothing_noted", "stateless",
]
