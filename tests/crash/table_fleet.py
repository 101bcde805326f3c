"""The cases of a fleet: what is submitted, worked on, handed back, taken over and answered."""

from __future__ import annotations

from tests.crash import grounds_fleet
from tests.crash.case import ACT, DONE_BEFORE, Case

FLEET = (
    Case(
        name="submit",
        ground=grounds_fleet.fleet,
        words=("submit", "../fleet.yml", *ACT),
        once=("work.last",),
        shows=grounds_fleet.number_of_sessions,
        leaves=grounds_fleet.in_the_fleet,
        afterwards=grounds_fleet.to_the_end,
        outside="database",
        lively=True,
        only_for_real=True,
    ),
    *(
        Case(
            name=name,
            ground=ground,
            program=program,
            once=("work.last",),
            leaves=grounds_fleet.in_the_fleet,
            outside="database",
            lively=True,
            waits=True,
            only_for_real=True,
        )
        for name, ground, program in (
            ("worker", grounds_fleet.submitted, grounds_fleet.one_session),
            ("worker drained", grounds_fleet.slow, grounds_fleet.drained),
        )
    ),
    Case(
        name="take over from the fleet",
        ground=grounds_fleet.of_a_dead_worker,
        words=("resume", "{there}", "--take-over", "--yes", *ACT),
        repeated=(0, 15),
        once=("work.last",),
        leaves=grounds_fleet.in_the_fleet,
        outside="database",
        lively=True,
        only_for_real=True,
    ),
    *(
        Case(
            name=f"{name} in the fleet",
            ground=ground,
            words=("session", *words, *ACT),
            repeated=DONE_BEFORE,
            once=("work.last",),
            leaves=grounds_fleet.in_the_fleet,
            afterwards=grounds_fleet.to_the_end,
            outside="database",
            lively=True,
            only_for_real=True,
        )
        for name, ground, words in (
            ("approve", grounds_fleet.waits_for_a_yes, ("approve", "{there}")),
            ("resolve", grounds_fleet.waits_for_an_outcome, ("resolve", "{there}", "work.fails", "--applied")),
        )
    ),
)
