"""The evidence that a command's declaration gives when it was cut off: its probe, its outputs, `idempotent`, nothing.

`run.look` asks these functions after a crash and `acode check` asks them before the first start, so that the two cannot
disagree.
"""

from __future__ import annotations

from acode.events.definition import Run, Step
from acode.plan import Finding, Outcome
from acode.steps.interface import Prediction
from acode.steps.keeper_notes import how_it_was_lost

PROBE_NOT_APPLIED = 1


def by_declaration(step: Step, ended: str, *, lasting: str | None, rolls_back: bool) -> Finding:
    """Without a probe. `lasting`: describes the effects that cannot be rolled back; None: its only effects are outputs.

    `rolls_back`: of an unknown outcome, whether its outputs can be rolled back in spite of that.
    """
    if lasting is None:
        return Finding(
            outcome=Outcome.PARTIAL,
            evidence=f"{ended}; its only effects are its outputs, which can be restored",
            repeatable=True,
            rolls_back=True,
        )
    ended = f"{ended}{lasting}"
    if step.idempotent:
        return Finding(outcome=Outcome.UNKNOWN, evidence=f"{ended}; it is declared idempotent", repeatable=True)
    unknown = f"{ended}; nothing shows whether it took effect"
    return Finding(outcome=Outcome.UNKNOWN, evidence=unknown, rolls_back=rolls_back)


def by_probe_status(code: int, told: str, *, rolls_back: bool) -> Finding:
    """The outcome by the probe's exit status: 0 applied, 1 not applied, anything else unknown."""
    if code == 0:
        return Finding(outcome=Outcome.APPLIED, evidence=told)
    if code == PROBE_NOT_APPLIED:
        return Finding(outcome=Outcome.NOT_APPLIED, evidence=told, repeatable=True, rolls_back=rolls_back)
    return Finding(outcome=Outcome.UNKNOWN, evidence=f"{told}, which says nothing", rolls_back=rolls_back)


def predict_command(step: Step) -> Prediction:
    """The finding after a power failure, provided that the pre-images of its outputs could be kept and its probe says
    that it did not take effect."""
    assert isinstance(step.action, Run)
    ended, outputs = how_it_was_lost(None, None, same_boot=False), bool(step.action.outputs)
    if step.action.probe is not None:
        finding = by_probe_status(PROBE_NOT_APPLIED, f"{ended}; its probe will decide", rolls_back=outputs)
        return Prediction(
            finding=finding, reason="probe", because="unless its probe says it took effect; asked if it cannot say"
        )
    finding = by_declaration(step, ended, lasting=None if outputs else "", rolls_back=False)
    if outputs:
        return Prediction(finding=finding, reason="outputs", because="its outputs are its only effects")
    if step.idempotent:
        return Prediction(finding=finding, reason="idempotent", because="it is declared idempotent")
    return Prediction(finding=finding, reason="none", because="no idempotent, no outputs and no probe")
