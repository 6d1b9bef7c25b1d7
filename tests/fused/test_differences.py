"""Compares our classes with Gaudi's. A difference fails the test unless the table in docs has a row for it.

`bridge_api.json` contains the public names and signatures of bridge 1.19, and the attributes of its objects.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from pathlib import Path

import pytest
import torch

from perftool import fused
from perftool.fused.porting.bridge import modules

FACTS = json.loads((Path(__file__).parent / "bridge_api.json").read_text(encoding="utf-8"))
PAGE = Path(__file__).parents[2] / "docs" / "fused" / "differences.md"


def parameters(signature):
    """Return the names and defaults of the parameters that a caller passes."""
    node = ast.parse(f"def {signature}: pass").body[0].args
    names = [each.arg for each in (*node.posonlyargs, *node.args)]
    defaults = [None] * (len(names) - len(node.defaults)) + [value(each) for each in node.defaults]
    pairs = [pair for pair in zip(names, defaults, strict=True) if pair[0] not in ("self", "ctx")]
    return pairs + ([(f"*{node.vararg.arg}", None)] if node.vararg else [])


def value(node):
    """Return a default as text, or None if it is `required`, which stands for a parameter without a default."""
    text = ast.unparse(node)
    return None if text == "required" else text


def own_parameters(function):
    found = []
    for name, each in inspect.signature(function).parameters.items():
        if name == "self":
            continue
        default = None if each.default is each.empty else ast.unparse(ast.parse(repr_of(each.default)))
        found.append((f"*{name}" if each.kind is each.VAR_POSITIONAL else name, default))
    return found


def repr_of(default):
    return str(default) if isinstance(default, type(fused.RotaryPosEmbeddingMode.BLOCKWISE)) else repr(default)


def same(theirs, ours):
    """Whether callers see no difference between two lists of parameters. The defaults 1e-3 and 0.001 are equal."""

    def read(text):
        try:
            return ast.literal_eval(text)
        except (ValueError, TypeError, SyntaxError):
            return text

    return [(name, read(text)) for name, text in theirs] == [(name, read(text)) for name, text in ours]


def ours_of(place, name):
    """Return our counterpart of a name, in the same module or in its parent, or None."""
    made = modules("cpu")
    for where in (place, place.rpartition(".")[0]):
        module = made.get(f"habana_frameworks.torch.{where}")
        if module is not None and name in vars(module):
            return vars(module)[name]
    return None


def differences_of_names():
    for place, entries in FACTS["modules"].items():
        short = place.removeprefix("hpex.").split(".")[0]
        prefix = "distributed." if ".distributed" in place else ("hpu." if short == "hpu" else "")
        for entry in entries:
            name = entry["class"] if isinstance(entry, dict) else entry.partition("(")[0]
            ours = ours_of(place, name)
            if ours is None:
                yield f"{prefix}{name}"
            elif isinstance(entry, dict):
                yield from differences_of_class(f"{prefix}{name}", entry, ours)
            elif not place.startswith("hpu") and not same(parameters(entry), own_parameters(ours)):
                yield f"{name}: parameters"


def differences_of_class(name, entry, ours):
    bases = [each.__name__ for each in inspect.getmro(ours)] if inspect.isclass(ours) else []
    if missing := [base for base in entry["bases"] if base.rpartition(".")[2] not in bases]:
        yield f"{name}: {missing[0]}"
    for method in entry["methods"]:
        called = method.partition("(")[0]
        if "torch.autograd.Function" in entry["bases"]:
            if called == "forward" and not same(parameters(method), own_parameters(ours.apply)):
                yield f"{name}.apply: parameters"
        elif not hasattr(ours, called):
            yield f"{name}.{called}"
        elif not same(parameters(method), own_parameters(getattr(ours, called))):
            yield f"{name}.{called}: parameters"


def made(name):
    """Return one of our objects after two steps, and its only parameter, or None if it has none."""
    param = torch.nn.Parameter(torch.ones(3, 2))
    if name == "FusedEMA":
        return fused.FusedEMA(torch.nn.Linear(2, 2)), None
    if name == "FusedClipNorm":
        return fused.FusedClipNorm([param], 1.0), None
    if name == "distributed.FusedAdamW":
        optimizer = fused.distributed.FusedAdamW([param])
        optimizer.step([torch.ones(3, 2)])
        return optimizer, param
    base = {"FusedSGD": {"lr": 0.1, "momentum": 0.9}, "FusedResourceApplyMomentum": {"lr": 0.1, "momentum": 0.9}}
    options = base.get(name, {"moments_dtype": torch.float8_e4m3fn} if name == "FusedAdamW" else {})
    if name == "FusedLars":
        optimizer = fused.FusedLars(made("FusedResourceApplyMomentum")[0], [1])
        param = optimizer.param_groups[0]["params"][0]
    else:
        optimizer = getattr(fused, name)([param], **options)
    for _ in range(2):
        param.grad = torch.ones(3, 2)
        optimizer.step()
    return optimizer, param


def differences_of_objects():
    for name, facts in FACTS["objects"].items():
        ours, param = made(name)
        yield from (f"{name}.{each}" for each in facts["attributes"] if not hasattr(ours, each))
        for each, shape in facts.get("shapes", {}).items():
            if list(getattr(ours, each).shape) != shape:
                yield f"{name}.{each}: shape"
        if "defaults" in facts:
            known = set(ours.defaults) - {"differentiable"}
            yield from (f"{name}.defaults: {each}" for each in sorted(known ^ set(facts["defaults"])))
        for part, found in (("group", getattr(ours, "param_groups", [{}])[0]), ("state", ours_state(ours, param))):
            for each, shape in facts.get(part, {}).items():
                if each not in found or not fits(found[each], shape, param):
                    yield f"{name} {part}: {each}"


def ours_state(ours, param):
    return {} if param is None else ours.state[param]


def fits(found, shape, param):
    if shape == "number":
        return isinstance(found, (int, float))
    if shape == "list":
        return isinstance(found, list)
    wanted = list(param.shape) if shape == "as the parameter" else shape
    return isinstance(found, torch.Tensor) and list(found.shape) == wanted


def rows():
    cells = re.findall(r"^\| (`[^|]*`) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


@pytest.fixture(scope="module")
def found():
    return {*differences_of_names(), *differences_of_objects()}


def test_every_difference_has_a_row(found):
    assert sorted(found - rows()) == []


def test_every_row_is_still_true(found):
    """Rows about a whole op concern its results, which other tests cover."""
    whole = set(fused.__all__)
    assert sorted(rows() - found - whole) == []


def test_a_difference_would_be_found():
    theirs = {"class": "FusedSGD", "bases": ["Optimizer"], "methods": ["step(self, closure=1)", "leap(self)"]}
    assert list(differences_of_class("FusedSGD", theirs, fused.FusedSGD)) == [
        "FusedSGD.step: parameters",
        "FusedSGD.leap",
    ]
