"""How an optimizer's parameters fall into buckets, kept from step to step while nothing has changed."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from perftool.fused.bucket import MANY, SMALL_MEAN, Bucket
from perftool.fused.flat import find, is_dense
from perftool.fused.unchanged import same_objects

Group = dict[str, Any]
States = MutableMapping[Any, Any]

MOVES = 8
"""How often an optimizer tries to move parameters into a flat buffer before it stays with lists."""


@dataclass(frozen=True)
class StateRules:
    """What an optimizer keeps per parameter: the names for a group, and a tensor for (name, param, group)."""

    names: Callable[[Group], Sequence[str]]
    create: Callable[[str, Tensor, Group], Tensor]


@dataclass(frozen=True)
class Policy:
    """`flat`: whether to use flat buffers, None for many small tensors on the CPU; and an error text."""

    flat: bool | None
    sparse_error: str

    def wants_flat(self, params: Sequence[Tensor]) -> bool:
        """Whether these parameters, of one dtype and device, belong in a flat buffer."""
        if self.flat is not None or params[0].device.type != "cpu":
            return bool(self.flat) and len(params) > 1
        return len(params) >= MANY and sum(map(Tensor.numel, params)) < SMALL_MEAN * len(params)


class GroupPlan:
    """The buckets of one parameter group, and the parameters that have had no gradient yet."""

    def __init__(self, group: Group, states: States, rules: StateRules, policy: Policy, may_move: bool) -> None:
        self.group = group
        self.params: list[Tensor] = list(group["params"])
        self.names = tuple(rules.names(group))
        members = [param for param in self.params if param.grad is not None or param in states]
        known = set(map(id, members))
        self.dormant = [param for param in self.params if id(param) not in known]
        self.waits_for_flat = False
        self.moves = 0
        self.buckets: list[Bucket] = [
            self._bucket(alike, states, rules, policy, may_move) for alike in _alike(members).values()
        ]

    def _bucket(
        self, params: list[Tensor], states: States, rules: StateRules, policy: Policy, may_move: bool
    ) -> Bucket:
        entries = [self._entry(param, states, rules) for param in params]
        wanted = policy.wants_flat(params) and _fit_a_buffer(entries, self.names)
        in_place = find(params) is not None
        flatten = wanted and (may_move or in_place)
        bucket = Bucket(params, entries, self.names, flatten=flatten, sparse_error=policy.sparse_error)
        self.moves += flatten and not in_place
        self.waits_for_flat |= wanted and bucket.flat is None
        return bucket

    def _entry(self, param: Tensor, states: States, rules: StateRules) -> dict[str, Any]:
        """The state of a parameter, every tensor in the dtype and memory layout that the kernels need."""
        entry: dict[str, Any] = states[param] if self.names else states.get(param, {})
        for name in self.names:
            entry[name] = _fitting(entry.get(name), rules, name, param, self.group)
        return entry

    def is_current(self, rules: StateRules) -> bool:
        """Whether the group still has the parameters, and these the memory and states, that were planned."""
        return (
            same_objects(self.group["params"], self.params)
            and all(param.grad is None for param in self.dormant)
            and self.names == tuple(rules.names(self.group))
            and all(bucket.is_current() for bucket in self.buckets)
        )


class Plan:
    """The plans of all groups of an optimizer."""

    def __init__(
        self, groups: list[Group], states: States, rules: StateRules, policy: Policy, previous: Plan | None
    ) -> None:
        # The buffers of the previous plan stay alive until this one is made: it may take them over.
        for bucket in previous.buckets if previous else ():
            bucket.release()
        self.moves_left: int = previous.moves_left if previous else MOVES
        self.groups: list[GroupPlan] = []
        for group in groups:
            plan = GroupPlan(group, states, rules, policy, may_move=self.moves_left > 0)
            self.moves_left -= plan.moves
            self.groups.append(plan)
        self.buckets: list[Bucket] = [bucket for plan in self.groups for bucket in plan.buckets]
        self.dormant = [param for plan in self.groups for param in plan.dormant]
        self.states = states
        self.entries = list(states.values())

    def is_current(self, groups: list[Group], states: States, rules: StateRules) -> bool:
        """Whether every cached list and buffer is still what the user sees; else a new plan is needed."""
        if states is not self.states or len(groups) != len(self.groups):
            return False
        if self.moves_left > 0 and any(plan.waits_for_flat for plan in self.groups):
            return False
        return (
            same_objects(states.values(), self.entries)
            and all(plan.group is group for plan, group in zip(self.groups, groups, strict=True))
            and all(plan.is_current(rules) for plan in self.groups)
        )


def _fit_a_buffer(entries: list[dict[str, Any]], names: Sequence[str]) -> bool:
    """Whether each state has one dtype, wider than FP8, whose scales belong to single tensors."""
    dtypes = [{entry[name].dtype for entry in entries} for name in names]
    return all(len(each) == 1 and min(dtype.itemsize for dtype in each) > 1 for each in dtypes)


def _alike(params: Sequence[Tensor]) -> dict[Any, list[Tensor]]:
    """Parameters by device, dtype and whether they fill their memory; TypeError if not floating point."""
    alike: dict[Any, list[Tensor]] = {}
    for param in params:
        if not param.is_floating_point():
            raise TypeError(f"fused optimizers step floating-point parameters, not {param.dtype}")
        alike.setdefault((param.device, param.dtype, is_dense(param)), []).append(param)
    return alike


def _fitting(present: Any, rules: StateRules, name: str, param: Tensor, group: Group) -> Tensor:
    if not isinstance(present, Tensor):
        return rules.create(name, param, group)
    if present.shape == param.shape and present.stride() == param.stride() and present.device == param.device:
        wanted = rules.create(name, param.new_empty(0), group).dtype
        if present.dtype == wanted:
            return present
    return rules.create(name, param, group).copy_(present)
