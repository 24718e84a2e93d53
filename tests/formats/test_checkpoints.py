"""Checkpoints of training: written and read, read by ONNX Runtime's own classes, and damaged ones."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sardonyx import errors
from sardonyx.formats.ort.checkpoint import Checkpoint, OptimizerGroupState, load_checkpoint, save_checkpoint


def example() -> Checkpoint:
    random = np.random.default_rng(1)
    weight, bias = random.normal(size=(3, 4)).astype(np.float32), np.arange(4, dtype=np.float32)
    states = {"fc.weight": {"momentum0": weight * 2, "momentum1": weight * 3}}
    return Checkpoint(
        trainable={"fc.weight": weight, "fc.bias": bias},
        frozen={"scale": np.array(2.5), "steps": np.array([7], np.int64)},
        groups={"group0": OptimizerGroupState(5, 0.25, states)},
        properties={"epoch": 3, "loss": 0.5, "note": "häuser"},
    )


def assert_same(found: Checkpoint, expected: Checkpoint) -> None:
    for one, other in ((found.trainable, expected.trainable), (found.frozen, expected.frozen)):
        assert one.keys() == other.keys()
        for name, array in other.items():
            np.testing.assert_array_equal(one[name], array, strict=True)
            assert one[name].dtype == array.dtype
            assert one[name].flags.writeable
    assert found.properties == expected.properties
    assert found.groups.keys() == expected.groups.keys()
    for name, group in expected.groups.items():
        assert (found.groups[name].step, found.groups[name].initial_learning_rate) == (group.step, group.initial_learning_rate)
        for parameter, tensors in group.parameters.items():
            for kind, array in tensors.items():
                np.testing.assert_array_equal(found.groups[name].parameters[parameter][kind], array)


@pytest.mark.parametrize("inline", [1 << 40, 0])
def test_a_checkpoint_is_read_as_it_was_written(tmp_path: Path, inline: int) -> None:
    checkpoint = example()
    checkpoint.trainable["large"] = np.arange(100.0)
    save_checkpoint(checkpoint, tmp_path / "checkpoint", inline=inline)
    assert_same(load_checkpoint(tmp_path / "checkpoint"), checkpoint)
    assert (tmp_path / "checkpoint.data").exists() == (inline == 0)


def test_a_nominal_checkpoint_has_names_and_types(tmp_path: Path) -> None:
    checkpoint = example()
    checkpoint.is_nominal = True
    save_checkpoint(checkpoint, tmp_path / "nominal")
    found = load_checkpoint(tmp_path / "nominal")
    assert found.is_nominal
    assert list(found.trainable) == ["fc.bias", "fc.weight"]
    assert found.trainable["fc.weight"].shape == (0,)
    assert found.frozen["steps"].dtype == np.int64


def test_the_classes_of_onnxruntime_read_the_same(tmp_path: Path) -> None:
    tables: Any = pytest.importorskip("onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs.Checkpoint")
    save_checkpoint(example(), tmp_path / "checkpoint")
    content = (tmp_path / "checkpoint").read_bytes()
    assert tables.Checkpoint.CheckpointBufferHasIdentifier(content, 0)
    root = tables.Checkpoint.GetRootAs(content, 0)
    assert root.Version() == 2
    module = root.ModuleState()
    names = [module.RequiresGradParams(number).Name() for number in range(module.RequiresGradParamsLength())]
    assert names == [b"fc.bias", b"fc.weight"]
    weight = module.RequiresGradParams(1)
    assert weight.DimsAsNumpy().tolist() == [3, 4]
    np.testing.assert_array_equal(weight.RawDataAsNumpy().view(np.float32).reshape(3, 4), example().trainable["fc.weight"])
    group = root.OptimizerGroups(0)
    assert (group.GroupName(), group.Step(), group.InitialLearningRate()) == (b"group0", 5, 0.25)
    assert group.OptimizerStates(0).Momentums(1).Name() == b"momentum1"
    bag = root.PropertyBag()
    assert (bag.Ints(0).Value(), bag.Floats(0).Value(), bag.Strings(0).Value()) == (3, 0.5, "häuser".encode())


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "identifier ODTC"),
        (b"\x10\0\0\0ORTM" + bytes(40), "identifier ODTC"),
        (b"\xff\xff\0\0ODTC" + bytes(40), "a distance of 65535 leads nowhere"),
    ],
)
def test_what_is_no_checkpoint_is_refused(content: bytes, text: str) -> None:
    with pytest.raises(errors.Fail, match=re.escape(text)):
        load_checkpoint(content)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.NoSuchFile, match="there is no checkpoint file"):
        load_checkpoint(tmp_path / "nowhere")


def test_data_that_lies_elsewhere_must_be_there(tmp_path: Path) -> None:
    checkpoint = Checkpoint(trainable={"large": np.arange(100.0)})
    save_checkpoint(checkpoint, tmp_path / "checkpoint", inline=0)
    with pytest.raises(errors.Fail, match="its data lies in a file beside it"):
        load_checkpoint((tmp_path / "checkpoint").read_bytes())
    (tmp_path / "checkpoint.data").write_bytes(b"short")
    with pytest.raises(errors.Fail, match="needs 800 bytes"):
        load_checkpoint(tmp_path / "checkpoint")


def test_one_parameter_cannot_be_both(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidArgument, match="w cannot be both trainable and frozen"):
        save_checkpoint(Checkpoint(trainable={"w": np.ones(1)}, frozen={"w": np.ones(1)}), tmp_path / "checkpoint")


@given(st.integers(0, 1 << 30), st.binary(min_size=1, max_size=4))
def test_damaged_files_are_refused_or_read(position: int, damage: bytes) -> None:
    content = bytearray(CONTENT)
    start = position % len(content)
    content[start : start + len(damage)] = damage
    with contextlib.suppress(errors.SardonyxError):
        load_checkpoint(bytes(content))


def _content() -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(example(), Path(folder) / "checkpoint")
        return (Path(folder) / "checkpoint").read_bytes()


CONTENT = _content()
