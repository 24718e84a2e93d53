"""The text form: what was printed reads back, and what cannot be read says where and why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sardonyx import dtypes
from sardonyx.errors import InvalidGraph
from sardonyx.ir import dims, tensor
from sardonyx.ir.dims import Dim, symbol
from sardonyx.ir.graph import Attr, AttrKind, Function, Graph, Model, Node, SparseConstant, Value, walk
from sardonyx.ir.text import format_dim, format_graph, format_model, format_node, format_type, parse_graph, parse_model
from sardonyx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type
from sardonyx.ir.verify import verify

WHOLE = """model {
  ir_version = 10
  producer_name = "maker"
  producer_version = "1.2"
  domain = "here"
  model_version = 3
  doc = "two\\nlines"
  opset ai.onnx = 22
  opset com.microsoft = 1
  metadata "key" = "value"
  function my.own::f:second(a, b) -> (c) [doc = "a function", name = "body"] {
    attribute alpha
    attribute beta = 1.0
    opset ai.onnx = 22
    d = LeakyRelu(a) {alpha = @alpha: float} @22
    c = Add(d, b) @22
  }
  graph main(x: f32[N,3], w: f32[2], "cond 1": bool[]) -> (y: f32[N,3], x) [doc = "about it", "k" = "v"] {
    const w: f32[2] = [0.1, -inf]
    const zeros: i64[20] = base64 "%s"
    const large: f32[512,512] = <1048576 bytes, sha256 0123456789ab>
    const words: str[2] = ["a", "\\u00e9"]
    const sp: sparse(f32[3,4]) = sparse([3,4], f32[2] = [1.0, 2.0], i64[2] = [0, 5])
    a: f32[2*N + floordiv(M, 2) - 3,?4] ["note" = "of a value"] = Relu(x) @22
    y, _ = If("cond 1") {then_branch = graph then() -> (t: seq(f32[...])) {
      t = Foo(x, _, a) {axes = [1, 2], empty = []: floats, g = tensor(i4[3] = [1, -2, 3])} @22 "a name"
    }, else_branch = graph () -> (a) {
    }} @22 "choose" [doc = "why", priority = 3, "k" = "v"]
    "quoted name" = com.microsoft::Gelu(y) @1
    () = "odd op"(_, y) {t = type map(i64, f32[]), s = "text", l = ["x", "y"], f = [1.0, nan], z = @b: int} @1
  }
}
""" % ("A" * 214 + "==")  # 160 zero bytes

NAMES = st.one_of(
    st.sampled_from(
        ["x", "y", "a/b.c", "_", "graph", "const", "onnx::Add_1", "1", "", "é", 'q"uote', "a b", "type", "?3", "\ud800"]
    ),
    st.text(max_size=4),
)


def dimensions() -> st.SearchStrategy[Dim]:
    symbols = st.sampled_from(["N", "seq len", "?7", "max", "past.x", "0"]).map(symbol)
    return st.recursive(
        st.one_of(st.integers(0, 9), symbols),
        lambda inner: st.builds(
            lambda function, a, b: function(a, b),
            st.sampled_from([dims.floordiv, dims.mod, dims.dim_max, dims.dim_min, _add, _subtract, _multiply]),
            inner,
            inner,
        ),
        max_leaves=4,
    )


def _add(a: Dim, b: Dim) -> Dim:
    return a + b


def _subtract(a: Dim, b: Dim) -> Dim:
    return a - b


def _multiply(a: Dim, b: Dim) -> Dim:
    return a * b


def types() -> st.SearchStrategy[Type]:
    shape = st.one_of(st.none(), st.lists(dimensions(), max_size=3).map(tuple))
    dtype = st.sampled_from(dtypes.ALL)
    flat: st.SearchStrategy[Type] = st.one_of(st.builds(TensorType, dtype, shape), st.builds(SparseTensorType, dtype, shape))
    return st.recursive(
        flat,
        lambda inner: st.one_of(
            inner.map(SequenceType),
            inner.map(OptionalType),
            st.builds(MapType, st.sampled_from([dtypes.INT64, dtypes.STRING]), inner),
        ),
        max_leaves=2,
    )


@st.composite
def constants(draw: st.DrawFn) -> tensor.Tensor:
    dtype = draw(st.sampled_from(dtypes.ALL))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=5))
    count = int(np.prod(shape))
    if dtype is dtypes.STRING:
        texts = draw(st.lists(st.text(max_size=3), min_size=count, max_size=count))
        array = np.empty(count, object)
        array[:] = texts
        return tensor.from_numpy(array.reshape(shape))
    size = dtype.nbytes(count)
    raw = draw(st.binary(min_size=size, max_size=size))
    if dtype is dtypes.BOOL:
        raw = bytes(byte & 1 for byte in raw)
    return tensor.Tensor(dtype, shape, lambda: raw)


FLOATS = st.floats(width=32)
INTS = st.integers(-(1 << 63), (1 << 63) - 1)
SPARSE = st.builds(
    SparseConstant,
    constants(),
    st.just(tensor.from_numpy(np.zeros(2, np.int64))),
    st.lists(st.integers(0, 4), max_size=2).map(tuple),
)
PLAIN: dict[AttrKind, st.SearchStrategy[Any]] = {
    AttrKind.FLOAT: FLOATS,
    AttrKind.INT: INTS,
    AttrKind.STRING: st.text(max_size=4),
    AttrKind.TENSOR: constants(),
    AttrKind.FLOATS: st.lists(FLOATS, max_size=3).map(tuple),
    AttrKind.INTS: st.lists(INTS, max_size=3).map(tuple),
    AttrKind.STRINGS: st.lists(st.text(max_size=4), max_size=3).map(tuple),
    AttrKind.TENSORS: st.lists(constants(), max_size=2).map(tuple),
    AttrKind.SPARSE_TENSOR: SPARSE,
    AttrKind.SPARSE_TENSORS: st.lists(SPARSE, max_size=2).map(tuple),
    AttrKind.TYPE_PROTO: types(),
    AttrKind.TYPE_PROTOS: st.lists(types(), max_size=2).map(tuple),
}


@st.composite
def attributes(draw: st.DrawFn, scope: list[Value], depth: int) -> Attr:
    kind = draw(st.sampled_from([*PLAIN, AttrKind.GRAPH, AttrKind.GRAPHS] if depth else list(PLAIN)))
    name, doc = draw(NAMES), draw(st.sampled_from(["", "", "doc"]))
    if draw(st.integers(0, 9)) == 0:
        return Attr(name, kind, None, draw(st.text(min_size=1, max_size=3)), doc)
    if kind is AttrKind.GRAPH:
        return Attr(name, kind, draw(graphs(scope, depth - 1)), doc=doc)
    if kind is AttrKind.GRAPHS:
        return Attr(name, kind, tuple(draw(graphs(scope, depth - 1)) for _ in range(draw(st.integers(0, 2)))), doc=doc)
    return Attr(name, kind, draw(PLAIN[kind]), doc=doc)


@st.composite
def graphs(draw: st.DrawFn, outer: list[Value], depth: int = 1) -> Graph:
    graph = Graph(draw(NAMES))
    graph.doc = draw(st.sampled_from(["", "", "a doc"]))
    scope = list(outer)
    for _ in range(draw(st.integers(0, 2))):
        value = Value(draw(NAMES), draw(st.one_of(st.none(), types())))
        graph.inputs.append(value)
        scope.append(value)
    for _ in range(draw(st.integers(0, 2))):
        data = draw(constants())
        value = Value(draw(NAMES.filter(bool)), TensorType(data.dtype, data.shape), data)
        if value.name not in graph.initializers:
            graph.initializers[value.name] = value
            scope.append(value)
    for _ in range(draw(st.integers(0, 3))):
        inputs = draw(st.lists(st.sampled_from([None, *scope]), max_size=3))
        attrs = {attr.name: attr for attr in draw(st.lists(attributes(scope, depth), max_size=2))}
        outputs = [Value(draw(NAMES), draw(st.one_of(st.none(), types()))) for _ in range(draw(st.integers(0, 2)))]
        node = Node(
            draw(NAMES), inputs, outputs, attrs.values(), domain=draw(NAMES), version=draw(st.integers(0, 30)), name=draw(NAMES)
        )
        node.overload, node.priority, node.metadata = (
            draw(NAMES),
            draw(st.integers(-2, 2)),
            draw(st.dictionaries(NAMES, NAMES, max_size=1)),
        )
        graph.append(node)
        scope.extend(outputs)
    named = [value for value in scope if value.name or value.uses]
    graph.outputs = draw(st.lists(st.sampled_from(named), max_size=3)) if named else []
    return graph


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(graphs([]), st.booleans())
def test_any_graph_reads_back_as_it_was_printed(graph: Graph, elide: bool) -> None:
    text = format_graph(graph, elide=elide)
    again = parse_graph(text)
    assert format_graph(again, elide=elide) == text
    assert verify(again) == []
    assert [node.op_type for node in walk(again)] == [node.op_type for node in walk(graph)]
    assert len(again.inputs) == len(graph.inputs)
    assert len(again.outputs) == len(graph.outputs)


@given(constants())
def test_constants_keep_every_bit(data: tensor.Tensor) -> None:
    graph = Graph()
    graph.initializers["w"] = Value("w", TensorType(data.dtype, data.shape), data)
    back = parse_graph(format_graph(graph)).initializers["w"].constant
    assert isinstance(back, tensor.Tensor)
    assert (back.dtype, back.shape) == (data.dtype, data.shape)
    if data.dtype is dtypes.STRING:
        assert back.numpy().tolist() == data.numpy().tolist()
    else:
        assert back.numpy().tobytes() == data.numpy().tobytes()


@pytest.mark.parametrize("bits", [0x7D00, 0x7E01, 0xFE00])
def test_a_nan_that_is_not_the_usual_one_is_written_as_bytes(bits: int) -> None:
    graph = Graph()
    graph.add_initializer("w", tensor.from_numpy(np.array([bits], np.uint16).view(np.float16)))
    text = format_graph(graph)
    assert "base64" in text
    back = parse_graph(text).initializers["w"].constant
    assert isinstance(back, tensor.Tensor)
    assert back.numpy().view(np.uint16).tolist() == [bits]


@given(types())
def test_types_keep_their_meaning(type_: Type) -> None:
    graph = Graph()
    graph.inputs = [Value("x", type_)]
    assert parse_graph(format_graph(graph)).inputs[0].type == type_


def test_a_whole_model_prints_as_it_was_written() -> None:
    model = parse_model(WHOLE)
    assert format_model(model) == WHOLE
    assert verify(model) == []


def test_every_field_of_a_model_is_read() -> None:
    model = parse_model(WHOLE)
    assert (model.ir_version, model.producer_name, model.model_version, model.doc) == (10, "maker", 3, "two\nlines")
    assert model.opset_imports == {"": 22, "com.microsoft": 1}
    assert model.metadata == {"key": "value"}
    function = model.functions["my.own", "f", "second"]
    assert function.attributes == ("alpha",)
    assert function.attribute_defaults == (Attr("beta", AttrKind.FLOAT, 1.0),)
    assert function.graph.name == "body"
    assert next(function.graph.nodes).attrs["alpha"].ref == "alpha"
    graph = model.graph
    assert graph.metadata == {"k": "v"}
    assert graph.inputs[1] is graph.initializers["w"]
    assert graph.outputs[1] is graph.inputs[0]
    nodes = list(graph.nodes)
    assert nodes[1].priority == 3
    assert nodes[1].metadata == {"k": "v"}
    assert nodes[1].outputs[1].name == ""
    then, otherwise = nodes[1].subgraphs()
    assert next(then.nodes).inputs == (graph.inputs[0], None, nodes[0].outputs[0])
    assert otherwise.outputs == [nodes[0].outputs[0]]
    assert nodes[2].domain == "com.microsoft"


def test_elided_data_reads_back_as_a_constant_that_says_it_has_none() -> None:
    large = parse_model(WHOLE).graph.initializers["large"].constant
    assert isinstance(large, tensor.Tensor)
    assert large.shape == (512, 512)
    with pytest.raises(ValueError, match="the text form left out the data of 'large' <1048576 bytes"):
        large.numpy()


def test_display_leaves_out_large_data_only() -> None:
    graph = Graph()
    graph.add_initializer("few", tensor.from_numpy(np.arange(16)))
    graph.add_initializer("many", tensor.from_numpy(np.arange(17)))
    shown = format_graph(graph, elide=True)
    assert "const few: i64[16] = [0, 1," in shown
    assert "const many: i64[17] = <136 bytes, sha256 " in shown
    assert "base64" in format_graph(graph)


def test_values_of_one_name_in_sight_of_each_other_get_numbers() -> None:
    graph = Graph()
    first, second = Value("x"), Value("x")
    graph.inputs = [first, second]
    graph.append(Node("Sub", [second, first], [Value("x")], version=13))
    assert "x_2 = Sub(x_1, x) @13" in format_graph(graph)


def test_sibling_subgraphs_may_use_the_same_names() -> None:
    text = """graph () -> () {
  a = If() {then_branch = graph t() -> (v) {
    v = One() @1
  }, else_branch = graph e() -> (v) {
    v = Two() @1
  }} @1
}
"""
    assert format_graph(parse_graph(text)) == text


def test_a_graph_may_read_values_that_are_handed_in() -> None:
    outer = Value("outer")
    graph = parse_graph("graph () -> (y) {\n  y = Neg(outer) @13\n}\n", {"outer": outer})
    assert next(graph.nodes).inputs == (outer,)
    assert "Neg(outer)" in format_graph(graph)


def test_a_single_node_prints_on_one_line() -> None:
    node = Node("Conv", [Value("x"), Value("w"), None], [Value("y")], [Attr("group", AttrKind.INT, 2)], version=11, name="c1")
    assert format_node(node) == 'y = Conv(x, w, _) {group = 2} @11 "c1"'


def test_odd_dimension_names_stand_in_quotes() -> None:
    assert format_dim(symbol("past + 1") + 2) == '"past + 1" + 2'
    assert format_type(TensorType(dtypes.FLOAT32, (symbol("max"), symbol("?3")))) == 'f32["max",?3]'


def test_comments_are_skipped() -> None:
    assert len(parse_graph("graph () -> () { # nothing here\n a = Op() @1 # one\n}\n")) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: expected 'graph', found the end of the text"),
        ("graph (x: f33[2]) -> () {}", "line 1, column 11: expected a type \\(f32, .*\\), found 'f33'"),
        ("graph (x: f32[2) -> () {}", "line 1, column 16: expected ',' or '\\]' after a dimension, found '\\)'"),
        ("graph (x, x) -> () {}", "line 1, column 11: there is a value 'x' already"),
        ("graph (x) -> (y) {}", "line 1, column 15: nothing in the graph defines the output 'y'"),
        ("graph (x) -> (y) {\n  y = Relu(z) @1\n}", "line 2, column 12: no value 'z' is defined before this"),
        ("graph (x) -> () {\n  y = Relu(x)\n}", "line 3, column 1: expected '@' and the version, found '}'"),
        ("graph (x) -> () {\n  x = Relu(x) @1\n}", "line 2, column 3: there is a value 'x' already"),
        ("graph () -> () { y = A() {a = [1, 2.0]} @1 }", "expected items of one kind in 'a'"),
        ("graph () -> () { y = A() {a = @b: thing} @1 }", "expected a kind of attribute \\(float, int"),
        ("graph () -> () { y = A() {a = } @1 }", "line 1, column 31: expected an attribute's value, found '}'"),
        ("graph () -> () { y = A() {a = []} @1 }", "expected ':' and the kind of the attribute, found '}'"),
        ("graph () -> () { const a: i4[1] = [9] }", "line 1, column 35: 9 does not fit i4: it holds -8 to 7"),
        ("graph () -> () { const a: u8[1] = [256] }", "line 1, column 35: .*256.*"),
        ("graph () -> () { const a: f32[3] = [9] }", "line 1, column 36: f32\\[3\\] has 3 elements, not 1"),
        ("graph () -> () { const a: bool[] = 1 }", "expected true or false, found '1'"),
        ('graph () -> () { const a: i64[1] = base64 "AA==" }', "i64\\[1\\] has 8 bytes, not 1"),
        ('graph () -> () { const a: i64[1] = base64 "?" }', "the data is not base64"),
        ("graph () -> () { const a: i64[N] = [1] }", "expected a dimension in numbers, found 'N'"),
        ('graph () -> () { a = "\\x"() @1 }', "line 1, column 22: Invalid \\\\escape"),
        ("graph () -> () { a = Op() @1 [what = 1] }", "expected doc, name, priority or a key in quotes, found 'what'"),
        ("graph () -> () { $ }", "line 1, column 18: '\\$' starts nothing that can stand here"),
        ("graph () -> () {} more", "line 1, column 19: expected the end of the text, found 'more'"),
        ("graph () -> () { " + "a = A() {g = graph () -> () { " * 70, "graphs are nested more than 60 deep"),
    ],
)
def test_text_that_cannot_be_read_says_where_and_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(InvalidGraph, match=message):
        parse_graph(text)


def test_a_model_without_a_graph_says_what_may_stand_there() -> None:
    with pytest.raises(InvalidGraph, match="expected graph, function, opset, metadata, producer_name"):
        parse_model("model { ir_version = 8 }")


def test_functions_without_extras_print_plainly() -> None:
    body = Graph("f")
    body.inputs = [Value("a")]
    body.outputs = [body.append(Node("Neg", body.inputs, [Value("b")], version=13)).outputs[0]]
    model = Model(Graph("main"), functions={("d", "f", ""): Function("d", "f", "", body)})
    text = format_model(model)
    assert "  function d::f(a) -> (b) {\n    b = Neg(a) @13\n  }\n" in text
    assert format_model(parse_model(text)) == text
