"""A node judged: pairs, findings in dependency order, routes."""

from __future__ import annotations

import msgspec

from gdsctl.assess import engine
from gdsctl.assess.config import Config
from gdsctl.assess.engine import Findings
from gdsctl.assess.pairs import pairs
from gdsctl.assess.routes import routes
from gdsctl.assess.rules import rules
from gdsctl.assess.view import View
from gdsctl.model.judgement import Finding, Pair, Route
from gdsctl.model.node import Node
from gdsctl.record import Record


class Assessment(Record, frozen=True, kw_only=True):
    """`node` is the collected one with the merged configuration filled in."""

    node: Node
    config: Config
    pairs: tuple[Pair, ...]
    verdicts: Findings
    routes: tuple[Route, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(judged.finding for judged in self.verdicts.judged)


def assess(node: Node) -> Assessment:
    """All verdicts over one node. Pure: the same node gives the same assessment."""
    config = Config.of(node)
    merged = msgspec.structs.replace(node.gds.cufile_config, merged=config.merged, problems=config.problem_lines)
    node = msgspec.structs.replace(node, gds=msgspec.structs.replace(node.gds, cufile_config=merged))
    paired = pairs(node)
    view = View(node, config, paired)
    verdicts = engine.run(view, rules())
    return Assessment(node=node, config=config, pairs=paired, verdicts=verdicts, routes=routes(view, verdicts))
