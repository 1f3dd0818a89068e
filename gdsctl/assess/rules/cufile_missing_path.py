from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.lint_findings import ALL_ROUTES, told
from gdsctl.assess.rule import Cannot, Rule, Verdict, some
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy
from gdsctl.model.shell import quoted


def check(view: View) -> Iterator[Verdict]:
    yield from told(view, "cufile.missing-path")
    if unseen := view.config.unseen:
        one = len(unseen) == 1
        yield Cannot(
            subject="cufile.json",
            fact=f"whether {some(unseen)}, which cufile.json names, {'is' if one else 'are'} there is not known; where "
            f"{'it is' if one else 'one is'} not, libcufile refuses the file",
            settle_with=f"ls -d -- {' '.join(map(quoted, unseen))}",
            blocks=ALL_ROUTES,
        )


RULE = Rule(
    id="cufile.missing-path",
    severity="critical",
    otherwise={
        "error": "where a folder is there and nothing is mounted on it",
        "warning": "for a static routing or configuration file, without which the library looks for itself",
    },
    problem="a path in cufile.json does not exist",
    why="A mount_table entry, denylist path or log folder that is missing makes the load fail for every cuFile process of the node. A folder that is only not mounted passes, and then binds its addresses to the file system above.",
    look_at=("gdsctl lint", "cat /etc/cufile.json"),
    remedy=Remedy(text="Remove the entry, or create the path; name only stable mount points."),
    source="libcufile 1.11 to 1.20, observed; NVIDIA GDS Configuration Guide",
    check=check,
)
