"""External data: found, shared, written aligned; and never outside of the model's folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sardonyx import dtypes
from sardonyx.errors import Fail, InvalidArgument, InvalidGraph, NoSuchFile
from sardonyx.formats.onnx import load, save, to_bytes
from sardonyx.ir.graph import Graph, Model, Node, Value
from sardonyx.ir.tensor import Tensor, from_numpy


def external_tensor(name: str, location: str, shape: list[int], *, dtype: int = TensorProto.FLOAT, **entries: Any) -> TensorProto:
    tensor = TensorProto(name=name, dims=shape, data_type=dtype, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def model_of(*tensors: TensorProto) -> ModelProto:
    outputs = [helper.make_tensor_value_info(tensor.name, tensor.data_type, None) for tensor in tensors]
    return helper.make_model(helper.make_graph([], "g", [], outputs, list(tensors)))


def constant(model: Model, name: str) -> Tensor:
    found = model.graph.initializers[name].constant
    assert isinstance(found, Tensor)
    return found


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A folder with a data file of the floats 0 to 99."""
    (tmp_path / "w.bin").write_bytes(np.arange(100, dtype=np.float32).tobytes())
    return tmp_path


def test_tensors_in_many_files_are_found(weights: Path) -> None:
    (weights / "sub").mkdir()
    (weights / "sub" / "more.bin").write_bytes(np.arange(5, dtype=np.float32).tobytes())
    proto = model_of(
        external_tensor("a", "w.bin", [2, 2], offset=8, length=16),
        external_tensor("b", "w.bin", [100]),
        external_tensor("c", "sub/more.bin", [5], length=20, checksum="da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        external_tensor("d", "./w.bin", [1], offset=396),
    )
    (weights / "m.onnx").write_bytes(proto.SerializeToString())
    model = load(weights / "m.onnx")
    assert constant(model, "a").numpy().tolist() == [[2, 3], [4, 5]]
    assert constant(model, "b").numpy().tolist() == list(range(100))
    assert constant(model, "c").numpy().tolist() == [0, 1, 2, 3, 4]
    assert constant(model, "d").numpy().tolist() == [99]
    assert constant(model, "a").external is not None
    assert constant(model, "a").external.location == "w.bin"  # type: ignore[union-attr]


def test_tensors_of_one_file_share_one_mapping(tmp_path: Path) -> None:
    (tmp_path / "big.bin").write_bytes(bytes(1 << 17))
    proto = model_of(external_tensor("a", "big.bin", [100]), external_tensor("b", "./big.bin", [100], offset=400))
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    model = load(tmp_path / "m.onnx")
    a, b = constant(model, "a"), constant(model, "b")
    assert a.raw().obj is b.raw().obj
    assert a.numpy().ctypes.data + 400 == b.numpy().ctypes.data
    assert not a.numpy().flags.writeable


def test_bytes_need_a_folder_or_the_data_itself(weights: Path) -> None:
    data = model_of(external_tensor("a", "w.bin", [2], offset=8)).SerializeToString()
    assert constant(load(data, base_dir=weights), "a").numpy().tolist() == [2, 3]
    given = {"./w.bin": bytearray(np.arange(10, 20, dtype=np.float32).tobytes())}
    assert constant(load(data, external_files=given), "a").numpy().tolist() == [12, 13]
    with pytest.raises(NoSuchFile, match=r"tensor 'a' has its data in 'w\.bin', and a model given as bytes(.|\n)*base_dir"):
        load(data)


def test_a_missing_file_is_named_with_its_tensor(weights: Path) -> None:
    with pytest.raises(NoSuchFile, match=r"tensor 'a' has its data in '.*gone\.bin', which cannot be read: No such file"):
        load(model_of(external_tensor("a", "gone.bin", [2])).SerializeToString(), base_dir=weights)


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (external_tensor("a", "/etc/passwd", [2]), "the location '/etc/passwd' is absolute"),
        (external_tensor("a", "C:\\data\\w.bin", [2]), "is absolute"),
        (external_tensor("a", "\\\\host\\share\\w.bin", [2]), "is absolute"),
        (external_tensor("a", "../w.bin", [2]), r"the location '\.\./w\.bin' contains '\.\.'"),
        (external_tensor("a", "sub/../../w.bin", [2]), r"contains '\.\.'"),
        (external_tensor("a", "..\\w.bin", [2]), r"contains '\.\.'"),
        (external_tensor("a", "", [2]), "the location of its external data is missing"),
        (external_tensor("a", ".", [2]), "outside of the model's folder"),
        (external_tensor("a", "w.bin\0.txt", [2]), "contains a zero byte"),
        (external_tensor("a", "*/_ORT_MEM_ADDR_/*", [2]), "an address in the memory of the process that wrote the model"),
        (external_tensor("a", "folder", [2]), "'.*folder' is not a regular file"),
        (external_tensor("a", "pipe", [2]), "'.*pipe' is not a regular file"),
        (external_tensor("a", "out", [2]), "'out' leads to '.*', outside of the model's folder"),
        (external_tensor("a", "outdir/secret", [2]), "outside of the model's folder"),
        (external_tensor("a", "w.bin", [101]), r"bytes 0 to 404 of 'w\.bin', which has 400"),
        (external_tensor("a", "w.bin", [1], offset=400), r"bytes 400 to 404 of 'w\.bin', which has 400"),
        (external_tensor("a", "w.bin", [1], offset=(1 << 63) - 1), r"which has 400"),
        (external_tensor("a", "w.bin", [1], offset=-4), "the offset of its external data is '-4', expected a number"),
        (external_tensor("a", "w.bin", [1], offset="1e3"), "the offset of its external data is '1e3'"),
        (external_tensor("a", "w.bin", [1], offset="9" * 40), "the offset of its external data is '999"),
        (external_tensor("a", "w.bin", [2], length=400), r"f32\[2\] needs 8 bytes, its external data has length 400"),
        (external_tensor("a", "w.bin", [2], length=-1), "the length of its external data is '-1'"),
        (external_tensor("a", "w.bin", [1 << 40, 1 << 40]), "larger than any memory"),
        (external_tensor("a", "w.bin", [2], dtype=TensorProto.STRING), "a string tensor with external data"),
    ],
)
def test_what_a_model_may_not_name_is_refused(weights: Path, tensor: TensorProto, text: str) -> None:
    folder = weights / "model"
    folder.mkdir()
    (folder / "w.bin").write_bytes((weights / "w.bin").read_bytes())
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    (weights / "secret").write_bytes(bytes(100))
    (folder / "out").symlink_to(weights / "secret")
    (folder / "outdir").symlink_to(weights)
    path = folder / "m.onnx"
    path.write_bytes(model_of(tensor).SerializeToString())
    with pytest.raises(InvalidGraph, match=text) as caught:
        load(path)
    assert "tensor 'a' (graph.initializer[0], byte " in str(caught.value)


def test_a_file_and_a_folder_whose_name_begins_like_the_models_folder_are_outside(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model-secret").write_bytes(bytes(8))
    (tmp_path / "model" / "link").symlink_to(tmp_path / "model-secret")
    path = tmp_path / "model" / "m.onnx"
    path.write_bytes(model_of(external_tensor("a", "link", [2])).SerializeToString())
    with pytest.raises(InvalidGraph, match="outside of the model's folder"):
        load(path)


def test_links_inside_the_folder_are_followed(weights: Path) -> None:
    (weights / "sub").mkdir()
    (weights / "sub" / "link.bin").symlink_to("../w.bin")
    (weights / "m.onnx").write_bytes(model_of(external_tensor("a", "sub/link.bin", [2])).SerializeToString())
    assert constant(load(weights / "m.onnx"), "a").numpy().tolist() == [0, 1]


@pytest.mark.parametrize("folder", ["snapshots/abc", "snapshots/abc/onnx"])
def test_a_download_cache_of_links_into_a_folder_of_blobs_works(tmp_path: Path, folder: str) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / folder
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    (blobs / "1111").write_bytes(model_of(external_tensor("a", "model.onnx_data", [2], offset=4)).SerializeToString())
    (blobs / "2222").write_bytes(np.arange(3, dtype=np.float32).tobytes())
    (snapshot / "model.onnx").symlink_to(os.path.relpath(blobs / "1111", snapshot))
    (snapshot / "model.onnx_data").symlink_to(os.path.relpath(blobs / "2222", snapshot))
    assert constant(load(snapshot / "model.onnx"), "a").numpy().tolist() == [1, 2]
    (tmp_path / "secret").write_bytes(bytes(100))
    (snapshot / "model.onnx_data").unlink()
    (snapshot / "model.onnx_data").symlink_to(tmp_path / "secret")
    with pytest.raises(InvalidGraph, match="outside of the model's folder"):
        load(snapshot / "model.onnx")


def test_a_link_to_the_model_alone_finds_the_data_beside_the_real_file(weights: Path) -> None:
    (weights / "m.onnx").write_bytes(model_of(external_tensor("a", "w.bin", [2])).SerializeToString())
    (weights / "elsewhere").mkdir()
    (weights / "elsewhere" / "link.onnx").symlink_to(weights / "m.onnx")
    assert constant(load(weights / "elsewhere" / "link.onnx"), "a").numpy().tolist() == [0, 1]


def test_a_file_that_changes_after_the_model_was_read_is_refused(weights: Path) -> None:
    (weights / "m.onnx").write_bytes(model_of(external_tensor("a", "w.bin", [2])).SerializeToString())
    model = load(weights / "m.onnx")
    os.rename(weights / "w.bin", weights / "old.bin")
    with pytest.raises(NoSuchFile, match="can no longer be opened"):
        constant(model, "a").numpy()
    (weights / "w.bin").write_bytes(bytes(400))
    with pytest.raises(Fail, match="has changed since the model was read"):
        constant(model, "a").numpy()


def sample(*arrays: np.ndarray[Any, Any]) -> Model:
    """A model that returns its weights, one of them from inside a branch."""
    graph = Graph("g")
    for index, array in enumerate(arrays):
        value = graph.add_initializer(f"w{index}", from_numpy(array))
        graph.outputs.append(graph.append(Node("Identity", [value], [Value(f"y{index}", value.type)], version=21)).outputs[0])
    return Model(graph, opset_imports={"": 21})


def test_a_model_saved_with_external_data_is_read_by_onnx_and_by_us(tmp_path: Path) -> None:
    arrays: list[np.ndarray[Any, Any]] = [
        np.arange(2000, dtype=np.float32),
        np.arange(3),
        np.ones((7, 300), np.float16),
        np.array(["text"] * 500, dtype=object),
    ]
    save(sample(*arrays), tmp_path / "m.onnx", external_data="m.data")
    assert sorted(os.listdir(tmp_path)) == ["m.data", "m.onnx"]
    for index, array in enumerate(arrays):
        np.testing.assert_array_equal(constant(load(tmp_path / "m.onnx"), f"w{index}").numpy(), array)
    proto = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    places = [{entry.key: entry.value for entry in tensor.external_data} for tensor in proto.graph.initializer]
    assert places == [
        {"location": "m.data", "offset": "0", "length": "8000"},
        {},
        {"location": "m.data", "offset": "8192", "length": "4200"},
        {},
    ]
    full = onnx.load(tmp_path / "m.onnx")
    np.testing.assert_array_equal(numpy_helper.to_array(full.graph.initializer[2]), arrays[2])
    onnx.checker.check_model(str(tmp_path / "m.onnx"))


def test_threshold_and_alignment_are_honoured(tmp_path: Path) -> None:
    model = sample(*(np.full(10, index, np.uint8) for index in range(3)))
    save(model, tmp_path / "m.onnx", external_data="m.data", external_threshold=1, alignment=16)
    assert (tmp_path / "m.data").read_bytes() == bytes(10) + bytes(6) + b"\1" * 10 + bytes(6) + b"\2" * 10
    save(model, tmp_path / "n.onnx", external_data="n.data", external_threshold=11)
    assert not (tmp_path / "n.data").exists()


def test_a_tensor_used_twice_is_stored_once(tmp_path: Path) -> None:
    model = sample(np.zeros(1000, np.float32))
    model.graph.initializers["again"] = Value("again", None, constant(model, "w0"))
    save(model, tmp_path / "m.onnx", external_data="m.data")
    assert (tmp_path / "m.data").stat().st_size == 4000
    assert constant(load(tmp_path / "m.onnx"), "again").external == constant(load(tmp_path / "m.onnx"), "w0").external


def test_a_model_may_be_saved_over_itself(tmp_path: Path) -> None:
    array = np.arange(50_000, dtype=np.float32)
    save(sample(array), tmp_path / "m.onnx", external_data="m.data")
    model = load(tmp_path / "m.onnx")
    np.testing.assert_array_equal(constant(model, "w0").numpy(), array)
    save(model, tmp_path / "m.onnx", external_data="m.data")
    np.testing.assert_array_equal(constant(load(tmp_path / "m.onnx"), "w0").numpy(), array)
    save(load(tmp_path / "m.onnx"), tmp_path / "m.onnx")
    (tmp_path / "m.data").unlink()
    np.testing.assert_array_equal(constant(load(tmp_path / "m.onnx"), "w0").numpy(), array)


def test_a_model_with_external_data_becomes_bytes_with_all_inside(weights: Path) -> None:
    data = to_bytes(load(model_of(external_tensor("a", "w.bin", [2], offset=8)).SerializeToString(), base_dir=weights))
    assert constant(load(data), "a").numpy().tolist() == [2, 3]


def test_bad_places_to_save_are_refused(tmp_path: Path) -> None:
    model = sample(np.zeros(1000, np.float32))
    for location, text in [("../x", "contains '..'"), ("/x", "is absolute"), ("m.onnx", "the name of the model file itself")]:
        with pytest.raises(InvalidArgument, match="external_data") as caught:
            save(model, tmp_path / "m.onnx", external_data=location)
        assert text in str(caught.value)
    with pytest.raises(InvalidArgument, match="alignment is 0, expected 1 or more"):
        save(model, tmp_path / "m.onnx", external_data="m.data", alignment=0)
    with pytest.raises(Fail, match="cannot be written: "):
        save(model, tmp_path / "missing" / "m.onnx")
    assert os.listdir(tmp_path) == []


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    save(sample(np.zeros(10, np.float32)), tmp_path / "m.onnx")
    before = (tmp_path / "m.onnx").read_bytes()
    broken = sample(np.zeros(10, np.float32))

    def fail() -> memoryview:
        raise RuntimeError("the disk is on fire")

    broken.graph.add_initializer("bad", Tensor(dtypes.UINT8, (5000,), fail))
    with pytest.raises(RuntimeError, match="on fire"):
        save(broken, tmp_path / "m.onnx", external_data="m.data")
    assert os.listdir(tmp_path) == ["m.onnx"]
    assert (tmp_path / "m.onnx").read_bytes() == before


_OPEN_AND_MEASURE = """
import resource, sys
import numpy
from sardonyx.formats.onnx import load
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model = load(sys.argv[1])
values = [value.constant.numpy() for value in model.graph.initializers.values()]
assert values[-1][-1] == 0 and sum(value.nbytes for value in values) == 2 << 30
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="measures memory as Linux reports it")
def test_two_gigabytes_of_external_data_open_without_being_read(tmp_path: Path) -> None:
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(2 << 30)
    count = 64
    size = (2 << 30) // count
    tensors = [external_tensor(f"w{i}", "w.bin", [size // 4], offset=i * size, length=size) for i in range(count)]
    (tmp_path / "m.onnx").write_bytes(model_of(*tensors).SerializeToString())
    command = [sys.executable, "-c", _OPEN_AND_MEASURE, str(tmp_path / "m.onnx")]
    grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert grown < 100 * 1024  # kB
