"""Options: defaults, checks and effects are ONNX Runtime's."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import sardonyx
from sardonyx import options as options_module
from sardonyx.compile_options import CompileOptions

Model = Callable[[str], str]
X = np.ones((3, 2), np.float32)


@pytest.mark.parametrize(
    "name",
    [
        "enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "enable_profiling", "inter_op_num_threads",
        "intra_op_num_threads", "log_severity_level", "log_verbosity_level", "logid", "optimized_model_filepath",
        "profile_file_prefix", "use_deterministic_compute", "use_per_session_threads", "execution_mode", "execution_order",
        "graph_optimization_level",
    ],
)  # fmt: skip
def test_session_defaults_are_the_same(name: str) -> None:
    import onnxruntime

    ours, theirs = getattr(sardonyx.SessionOptions(), name), getattr(onnxruntime.SessionOptions(), name)
    assert str(ours) == str(theirs)


@pytest.mark.parametrize(
    "name", ["log_severity_level", "log_verbosity_level", "logid", "only_execute_path_to_fetches", "terminate"]
)
def test_run_defaults_are_the_same(name: str) -> None:
    import onnxruntime

    assert getattr(sardonyx.RunOptions(), name) == getattr(onnxruntime.RunOptions(), name)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**70, 1.5])
@pytest.mark.parametrize("name", ["intra_op_num_threads", "inter_op_num_threads", "log_severity_level"])
def test_a_number_that_is_no_c_int_is_refused_as_it_is_there(name: str, value: float) -> None:
    import onnxruntime

    for options in (sardonyx.SessionOptions(), onnxruntime.SessionOptions()):
        with pytest.raises(TypeError):
            setattr(options, name, value)


@pytest.mark.parametrize("count", [-1, -5, -(2**31)])
def test_a_negative_number_of_threads_is_as_many_as_the_machine_gives(model: Model, count: int) -> None:
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = count
    assert options.thread_counts() == (0, 0)
    sessions = [sardonyx.InferenceSession(model("mul_1"), each) for each in (options, None)]
    np.testing.assert_array_equal(*(session.run(None, {"X": X})[0] for session in sessions))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("intra_op_num_threads", "a"),
        ("intra_op_num_threads", 1.5),
        ("graph_optimization_level", 99),
        ("execution_mode", "parallel"),
        ("enable_profiling", "yes"),
        ("logid", 3),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(ort: Any, name: str, value: Any) -> None:
    options = ort.SessionOptions()
    with pytest.raises(TypeError):
        setattr(options, name, value)


def test_an_attribute_that_is_not_there_cannot_be_set(ort: Any) -> None:
    for options in (ort.SessionOptions(), ort.RunOptions()):
        with pytest.raises(AttributeError):
            options.speed = 11


def test_a_refusal_names_the_attribute() -> None:
    with pytest.raises(TypeError, match=r"SessionOptions\.intra_op_num_threads: expected an int, got 'many'"):
        sardonyx.SessionOptions().intra_op_num_threads = "many"


def test_enumerations_print_and_compare_as_onnxruntimes(ort: Any) -> None:
    level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    assert str(level) == "GraphOptimizationLevel.ORT_ENABLE_EXTENDED"
    assert repr(level) == "<GraphOptimizationLevel.ORT_ENABLE_EXTENDED: 2>"
    assert (level.name, level.value, int(level), level == 2) == ("ORT_ENABLE_EXTENDED", 2, 2, True)
    assert pickle.loads(pickle.dumps(ort.ExecutionMode.ORT_PARALLEL)) == ort.ExecutionMode.ORT_PARALLEL


def test_all_enumerations_have_the_same_members() -> None:
    import onnxruntime

    for name in (
        "GraphOptimizationLevel", "ExecutionMode", "ExecutionOrder", "OrtAllocatorType", "OrtMemType", "OrtSparseFormat",
        "OrtDeviceMemoryType", "OrtHardwareDeviceType", "OrtMemoryInfoDeviceType", "OrtExecutionProviderDevicePolicy",
        "OrtCompileApiFlags",
    ):  # fmt: skip
        theirs = {key: int(value) for key, value in getattr(onnxruntime, name).__members__.items()}
        assert {key: int(value) for key, value in getattr(sardonyx, name).__members__.items()} == theirs, name


def test_configuration_entries(ort: Any) -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.use_ort_model_bytes_directly", "1")
    assert options.get_session_config_entry("session.use_ort_model_bytes_directly") == "1"
    with pytest.raises(RuntimeError, match="SessionOptions does not have configuration with key: none"):
        options.get_session_config_entry("none")
    run = ort.RunOptions()
    run.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    assert run.get_run_config_entry("memory.enable_memory_arena_shrinkage") == "cpu:0"
    with pytest.raises(RuntimeError, match="RunOptions does not have configuration with key: none"):
        run.get_run_config_entry("none")


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("", "1", "Config key is empty or longer than maximum length 1024"),
        ("k" * 1025, "1", "Config key is empty or longer than maximum length 1024"),
        ("k", "1" * 8193, "Config value is longer than maximum length: 8192"),
    ],
    ids=["empty", "long key", "long value"],
)
def test_configuration_entries_have_limits(ort: Any, key: str, value: str, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        ort.SessionOptions().add_session_config_entry(key, value)
    with pytest.raises(RuntimeError, match=text):
        ort.RunOptions().add_run_config_entry(key, value)


def test_configuration_entries_at_their_limits_are_taken(ort: Any) -> None:
    ort.SessionOptions().add_session_config_entry("k" * 1024, "v" * 8192)


def test_free_dimensions_are_fixed_by_name(ort: Any, model: Model) -> None:
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("Dim1", 4)
    options.add_free_dimension_override_by_name("Dim2", 6)
    session = ort.InferenceSession(model("abs_free_dimensions"), options)
    assert session.get_inputs()[0].shape == [4, 6, 5]
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument, match="Got: 3 Expected: 4"):
        session.run(None, {"x": np.ones((3, 6, 5), np.float32)})


def test_free_dimensions_are_fixed_by_denotation(ort: Any, model: Model) -> None:
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_denotation("DATA_BATCH", 3)
    options.add_free_dimension_override_by_denotation("DATA_CHANNEL", 5)
    assert ort.InferenceSession(model("abs_free_dimensions"), options).get_inputs()[0].shape == [3, 5, 5]


def test_an_initializer_can_be_replaced(model: Model) -> None:
    # onnxruntime 1.31.1 crashes on this model when the replaced initializer is folded, so it is not asked.
    options = sardonyx.SessionOptions()
    options.add_initializer("W", sardonyx.OrtValue.ortvalue_from_numpy(np.full((3, 2), 7, np.float32)))
    [y] = sardonyx.InferenceSession(model("mul_1"), options).run(None, {"X": X})
    assert (y == 7).all()


@pytest.mark.parametrize(
    ("name", "array", "text"),
    [
        ("W", np.ones((2, 2), np.float32), "'W' is f32\\[2, 2\\], the model has f32\\[3, 2\\]"),
        ("W", np.ones((3, 2)), "'W' is f64\\[3, 2\\], the model has f32\\[3, 2\\]"),
    ],
)
def test_an_initializer_that_does_not_fit_is_refused(model: Model, name: str, array: Any, text: str) -> None:
    options = sardonyx.SessionOptions()
    options.add_initializer(name, sardonyx.OrtValue.ortvalue_from_numpy(array))
    with pytest.raises(sardonyx.InvalidArgument, match=text):
        sardonyx.InferenceSession(model("mul_1"), options)


def test_an_initializer_the_model_does_not_have_is_ignored(ort: Any, model: Model) -> None:
    options = ort.SessionOptions()
    values = {name: ort.OrtValue.ortvalue_from_numpy(np.full((3, 2), 7, np.float32)) for name in ("W", "of_another_model")}
    for name, value in values.items():
        options.add_initializer(name, value)
    session = ort.InferenceSession(model("mul_1"), options, providers=["CPUExecutionProvider"])
    assert session.run(None, {"X": X})[0].tolist() == [[7, 7]] * 3


def test_an_external_initializer_the_model_does_not_have_is_an_error(model: Model) -> None:
    options = sardonyx.SessionOptions()
    options.add_external_initializers(["Q"], [sardonyx.OrtValue.ortvalue_from_numpy(X)])
    with pytest.raises(sardonyx.InvalidArgument, match="'Q': the model has no initializer of that name"):
        sardonyx.InferenceSession(model("mul_1"), options)


def test_an_initializer_must_be_an_ort_value(ort: Any) -> None:
    with pytest.raises(RuntimeError, match="The provided Python object must be an OrtValue"):
        ort.SessionOptions().add_initializer("W", X)
    with pytest.raises(RuntimeError, match="equal length"):
        ort.SessionOptions().add_external_initializers(["a", "b"], [])
    with pytest.raises(RuntimeError, match="equal length"):
        ort.SessionOptions().add_external_initializers_from_files_in_memory(["a"], [b"1"], [])


@pytest.fixture
def external(tmp_path: Path) -> Path:
    """A model whose weights lie in files that are not there."""
    tensors = []
    for index in range(2):
        weight = TensorProto(name=f"W{index}", data_type=TensorProto.FLOAT, dims=[2, 2], data_location=TensorProto.EXTERNAL)
        for key, value in (("location", "weights.bin"), ("offset", str(16 * index)), ("length", "16")):
            weight.external_data.add(key=key, value=value)
        tensors.append(weight)
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("Mul", ["X", "W0"], ["T"]), helper.make_node("Add", ["T", "W1"], ["Y"])]
    graph = helper.make_graph(nodes, "g", [info("X", TensorProto.FLOAT, [2, 2])], [info("Y", TensorProto.FLOAT, [2, 2])], tensors)
    path = tmp_path / "external.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString())
    return path


WEIGHTS = [np.array([[1, 2], [3, 4]], np.float32), np.array([[5, 6], [7, 8]], np.float32)]
PRODUCT = WEIGHTS[0] * 2 + WEIGHTS[1]


def test_external_initializers_are_given_as_values(ort: Any, external: Path) -> None:
    options = ort.SessionOptions()
    values = [ort.OrtValue.ortvalue_from_numpy(weight) for weight in WEIGHTS]
    options.add_external_initializers(["W0", "W1"], values)
    session = ort.InferenceSession(str(external), options)
    np.testing.assert_array_equal(session.run(None, {"X": np.full((2, 2), 2, np.float32)})[0], PRODUCT)


def test_external_initializers_are_read_from_files_in_memory(ort: Any, external: Path) -> None:
    options = ort.SessionOptions()
    content = b"".join(weight.tobytes() for weight in WEIGHTS)
    options.add_external_initializers_from_files_in_memory(["weights.bin"], [content], [len(content)])
    session = ort.InferenceSession(external.read_bytes(), options)
    np.testing.assert_array_equal(session.run(None, {"X": np.full((2, 2), 2, np.float32)})[0], PRODUCT)


def test_the_folder_of_external_data_can_be_named(ort: Any, external: Path, tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "weights.bin").write_bytes(b"".join(weight.tobytes() for weight in WEIGHTS))
    options = ort.SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(weights))
    session = ort.InferenceSession(external.read_bytes(), options)
    np.testing.assert_array_equal(session.run(None, {"X": np.full((2, 2), 2, np.float32)})[0], PRODUCT)


def test_a_file_in_memory_must_be_as_long_as_said() -> None:
    with pytest.raises(RuntimeError, match="file 'a' in memory: length is 5, the buffer has 3 bytes"):
        sardonyx.SessionOptions().add_external_initializers_from_files_in_memory(["a"], [b"abc"], [5])


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_options_out_of_the_model(ort: Any, model: Model, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if by == "environment":
        monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
        session = ort.InferenceSession(model("with_config"))
    elif ort is not sardonyx:
        pytest.skip("onnxruntime reads the environment variable even when the argument is given")
    else:
        session = ort.InferenceSession(model("with_config"), read_config_from_model=1)
    options = session.get_session_options()
    assert options.intra_op_num_threads == 2
    assert options.inter_op_num_threads == 5
    assert options.graph_optimization_level == ort.GraphOptimizationLevel.ORT_ENABLE_BASIC


def test_options_out_of_the_model_are_ignored_unless_asked_for(ort: Any, model: Model) -> None:
    assert ort.InferenceSession(model("with_config")).get_session_options().intra_op_num_threads == 0


def test_options_in_a_model_that_make_no_sense(model: Model) -> None:
    proto = onnx.load(model("with_config"))
    proto.metadata_props[0].value = '{"session_options": {"execution_mode": 9}}'
    with pytest.raises(sardonyx.Fail, match="'ort_config' cannot be used: ValueError: 9 is not a valid ExecutionMode"):
        sardonyx.InferenceSession(proto, read_config_from_model=1)


def test_the_session_keeps_its_own_options(ort: Any, model: Model) -> None:
    options = ort.SessionOptions()
    options.logid = "mine"
    session = ort.InferenceSession(model("mul_1"), options)
    options.logid = "changed"
    assert session.get_session_options().logid == "mine"


def test_options_copy_and_pickle() -> None:
    options = sardonyx.SessionOptions()
    options.graph_optimization_level = sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("key", "value")
    options.add_external_initializers_from_files_in_memory(["f"], [b"abc"], [2])
    for other in (copy.copy(options), pickle.loads(pickle.dumps(options))):
        assert other.graph_optimization_level is sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
        assert other.get_session_config_entry("key") == "value"
        assert other.external_files["f"] == b"ab"
        other.add_session_config_entry("key", "other")
        assert options.get_session_config_entry("key") == "value"
    assert "graph_optimization_level=<GraphOptimizationLevel.ORT_DISABLE_ALL: 0>" in repr(options)


def test_libraries_of_native_code_are_refused_with_a_reason(ort: Any) -> None:
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.Fail, match=r"Failed to load library .*nothing\.so"):
        ort.SessionOptions().register_custom_ops_library("/nothing.so")
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.Fail, match=r"Failed to load library .*nothing\.so"):
        ort.register_execution_provider_library("mine", "/nothing.so")
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.Fail, match="mine was not registered"):
        ort.unregister_execution_provider_library("mine")


def test_what_the_compiler_is_told() -> None:
    options = sardonyx.SessionOptions()
    assert CompileOptions.of(options) == CompileOptions()
    options.add_session_config_entry("optimization.disable_specified_optimizers", "A, B;C")
    options.add_free_dimension_override_by_name("N", 3)
    options.intra_op_num_threads = 4
    reported = CompileOptions.of(options, {"SardonyxReferenceExecutionProvider": {}, "CUDAExecutionProvider": {}}, ["D"])
    assert reported.disabled_optimizers == {"A", "B", "C", "D"}
    assert reported.free_dimension_overrides == {"N": 3}
    assert reported.providers == ("SardonyxReferenceExecutionProvider",)
    assert reported.intra_op_num_threads == 4


@pytest.fixture
def no_global_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test sets for the whole process is forgotten after it."""
    monkeypatch.setattr(options_module, "_global_threads", None)


@pytest.mark.usefixtures("no_global_pool")
def test_global_thread_counts_hold_for_sessions_without_their_own() -> None:
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = 4
    options.use_per_session_threads = False
    sardonyx.set_global_thread_pool_sizes(2, 1)
    reported = CompileOptions.of(options)
    assert (reported.intra_op_num_threads, reported.inter_op_num_threads) == (2, 1)
    assert sardonyx.InferenceSession(sardonyx.datasets.get_example("mul_1.onnx"), options).get_providers()


@pytest.mark.usefixtures("no_global_pool")
def test_with_a_global_pool_sessions_cannot_have_threads_of_their_own() -> None:
    sardonyx.set_global_thread_pool_sizes(2, 1)
    with pytest.raises(RuntimeError, match="use_per_session_threads must be false when using a global thread pool"):
        sardonyx.InferenceSession(sardonyx.datasets.get_example("mul_1.onnx"))
    with pytest.raises(sardonyx.Fail, match="Global thread pools have already been created, cannot replace them"):
        sardonyx.set_global_thread_pool_sizes(2, 1)


def test_verification_is_asked_for_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_VERIFY", "1")
    assert CompileOptions.of(sardonyx.SessionOptions()).verify
