"""What the gate decided, in the words of ``fumehood tools check --json``."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Mapping


@dataclass(frozen=True)
class Reason:
    """One thing that made a decision what it is."""

    id: str
    rule: str
    what: str
    why: str
    instead: str
    decision: str = "deny"
    where: str | None = None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Reason:
        text = {name: str(data.get(name) or "") for name in ("id", "rule", "what", "why", "instead")}
        return cls(**text, decision=str(data.get("decision") or "deny"), where=data.get("where"))


@dataclass(frozen=True)
class Verdict:
    """The decision about one call."""

    decision: str
    rule: str
    reasons: tuple[Reason, ...]
    instead: str
    args: Any
    hash: str | None
    data: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def allowed(self) -> bool:
        """Whether it may be called as it is, without asking anybody."""
        return self.decision == "allow"

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Verdict:
        return cls(
            decision=str(data.get("decision") or "deny"),
            rule=str(data.get("rule") or ""),
            reasons=tuple(Reason.of(reason) for reason in data.get("reasons") or ()),
            instead=str(data.get("instead") or ""),
            args=data.get("args"),
            hash=data.get("hash"),
            data=dict(data),
        )

    @classmethod
    def of_problem(cls, problem: Mapping[str, Any]) -> Verdict:
        """A call that could not even be judged is denied, for the reason that the gate names."""
        reason = {**problem, "instead": problem.get("fix"), "rule": ""}
        return cls.of({"decision": "deny", "reasons": [reason], "instead": problem.get("fix")})


class Denied(Exception):
    """The gate, or a person that it asked, denied the call; the function did not run.

    ``str()`` is meant for the model: what is wrong, why, and what would be allowed.
    """

    def __init__(self, tool: str, verdict: Verdict) -> None:
        self.tool = tool
        self.verdict = verdict
        super().__init__(tool, verdict)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """All that made it so."""
        return self.verdict.reasons

    @property
    def instead(self) -> str:
        """What would be allowed; empty where nothing would."""
        return self.verdict.instead

    @property
    def id(self) -> str:
        """The id of the first reason, which ``fumehood explain`` knows."""
        return self.reasons[0].id if self.reasons else "tools.entry/none"

    def _against(self) -> list[Reason]:
        """Without what would have allowed it: a model that reads "the policy allows it" tries again."""
        return [reason for reason in self.reasons if reason.decision != "allow"]

    def __str__(self) -> str:
        lines = [f"denied: {self.tool}"]
        for reason in self._against():
            lines.append(f"- {reason.what}: {reason.why}" if reason.why else f"- {reason.what}")
        if self.instead:
            lines.append(f"instead: {self.instead}")
        return "\n".join(lines)

    def to_json(self) -> str:
        """For a model that is answered in JSON."""
        reasons = [{"id": r.id, "what": r.what, "why": r.why, "instead": r.instead} for r in self._against()]
        return json.dumps({"denied": True, "tool": self.tool, "reasons": reasons, "instead": self.instead})
