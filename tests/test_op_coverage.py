"""Every operator with a signature has a meaning and a shape rule, or a reason why not stands here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx.defs

from sardonyx.ops import registry, signature

# (domain, name) -> why there is no definition.
WITHOUT_DEFINITION: dict[tuple[str, str], str] = {}

# (domain, name) -> why no shape rule says more than the signature does.
WITHOUT_SHAPE_RULE: dict[tuple[str, str], str] = {}

OLDEST_OPSET = 7  # of ai.onnx whose semantics are promised


def defined_names() -> set[tuple[str, str]]:
    return {(definition.domain, definition.name) for definition in registry.definitions()}


def signature_names() -> set[tuple[str, str]]:
    return {("" if domain == "ai.onnx" else domain, name) for domain in signature.DOMAINS for name in signature.names(domain)}


def test_every_signature_has_a_definition() -> None:
    assert sorted(signature_names() - defined_names() - set(WITHOUT_DEFINITION)) == []


def test_every_definition_has_a_signature() -> None:
    assert sorted(defined_names() - signature_names()) == []


def test_reasons_for_missing_definitions_are_still_true() -> None:
    assert sorted(set(WITHOUT_DEFINITION) & defined_names()) == []
    assert sorted(set(WITHOUT_DEFINITION) - signature_names()) == []


def test_every_definition_has_a_shape_rule() -> None:
    missing = {(each.domain, each.name) for each in registry.definitions() if each.infer is None}
    assert sorted(missing - set(WITHOUT_SHAPE_RULE)) == []


def test_reasons_for_missing_shape_rules_are_still_true() -> None:
    unruled = {(each.domain, each.name) for each in registry.definitions() if each.infer is None}
    assert sorted(set(WITHOUT_SHAPE_RULE) - unruled) == []


def test_every_definition_starts_no_later_than_it_must() -> None:
    """The meaning of an operator reaches back to the first opset we promise, or to the operator's own first version."""
    late = []
    for domain, name in sorted(signature_names() & defined_names()):
        floor = max(signature.versions(domain, name)[0], OLDEST_OPSET) if not domain else signature.versions(domain, name)[0]
        if registry.lookup(domain, name, floor) is None:
            late.append((domain, name, floor))
    assert late == []


def test_eval_names_only_attributes_that_exist() -> None:
    """A keyword-only parameter that no signature has would always be None: a misspelt name.

    Operators share functions, so an attribute need not belong to the operator itself.
    """
    known: set[str] = set()
    for domain, name in signature_names():
        for version in signature.versions(domain, name):
            found = signature.signature(domain, name, version)
            known.update(found.attributes if found is not None else ())
    unknown = {each.label: sorted(set(each.attr_names) - known) for each in registry.definitions()}
    assert {label: names for label, names in unknown.items() if names} == {}


def test_every_operator_of_the_standard_has_a_signature() -> None:
    standard = {(schema.domain, schema.name) for schema in onnx.defs.get_all_schemas_with_history()}
    assert sorted(standard - signature_names()) == []


def test_the_index_of_operators_is_up_to_date() -> None:
    tool = Path(__file__).parent.parent / "tools" / "generate_op_index.py"
    done = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
