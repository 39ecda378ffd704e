"""From a graph module to an ONNX graph with the declared inputs and outputs."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator

import onnx_ir as ir
import torch
from onnx_ir.passes.common import ClearMetadataAndDocStringPass, RemoveUnusedNodesPass
from onnxscript.optimizer import optimize_ir

from hamburger_edge.export.graphs.modules import Graph

OPSET = 23  # fused: RMSNormalization is one operator from here on

STORED_FORMS = ("Cast", "DequantizeLinear")  # folding one would store the weight in float32


def trace(graph: Graph, opset: int = OPSET) -> ir.Model:
    io = graph.io
    with quiet(), torch.no_grad():
        program = torch.onnx.export(
            _captured(graph, decomposed=opset == OPSET),
            (),
            input_names=[spec.name for spec in io.inputs],
            output_names=[spec.name for spec in io.outputs],
            opset_version=opset,
            dynamo=True,
            optimize=False,
            verbose=False,
        )
        assert program is not None
        optimize_ir(program.model, should_fold=_should_fold)
        ClearMetadataAndDocStringPass()(program.model)  # stack traces with this machine's paths
        for value in program.model.graph.initializers.values():
            value.metadata_props.clear()  # unused, and a quarter of the file
    if opset == OPSET:
        _norm_sums(program.model.graph)
        _packed_attention(program.model.graph)
    RemoveUnusedNodesPass()(program.model)  # ONNX Runtime complains about each unused constant
    _move_into_branches(program.model)
    io.name_axes(program.model)
    return program.model


def _should_fold(node: ir.Node) -> bool | None:
    """False: it stays a node, which ONNX Runtime folds while loading. None: as the optimizer likes."""
    if node.op_type == "Transpose":  # of a head that shares its bytes with the embeddings
        weight = node.inputs[0]
        return False if weight is not None and weight.dtype == ir.DataType.INT8 else None
    return False if node.op_type in STORED_FORMS else None


def _captured(graph: Graph, *, decomposed: bool) -> torch.export.ExportedProgram:
    """Capture a graph for PyTorch's exporter.

    The exporter decomposes operators by tracing all of the graph anew, which takes longer than everything
    else. In fused graphs every operator has an ONNX form once casts are plain: they count as `decomposed`.
    """
    io = graph.io
    program = torch.export.export(
        graph.eval(), io.examples(), dynamic_shapes=(io.dynamic_axes,), strict=False
    )
    if decomposed:
        _plain_casts(program)
        program.run_decompositions = lambda *_: program
    return program


def _plain_casts(program: torch.export.ExportedProgram) -> None:
    """Remove casts to the type that a value has; `aten.to` has no ONNX form, so replace the others."""
    for module in program.graph_module.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        for node in list(module.graph.nodes):
            if node.target is not torch.ops.aten.to.dtype:
                continue
            value, dtype = node.args
            if value.meta["val"].dtype == dtype:
                node.replace_all_uses_with(value)
                module.graph.erase_node(node)
            else:
                node.target, node.args = torch.ops.aten._to_copy.default, (value,)
                node.kwargs = {"dtype": dtype}
        module.recompile()


def _norm_sums(graph: ir.Graph) -> None:
    """Replace a sum and its norm by one operator that returns both, with the same bits."""
    for norm in [node for node in graph if node.op_type == "RMSNormalization"]:
        summed, weight = norm.inputs
        add = summed.producer() if summed is not None else None
        if add is None or add.op_type != "Add" or weight is None or weight.producer() is not None:
            continue
        left, right = (None if value is None else value.shape for value in add.inputs)
        if left is None or left != right:  # the operator does not broadcast
            continue
        both = ir.node(
            "SkipSimplifiedLayerNormalization",
            [*add.inputs, weight],
            {"epsilon": norm.attributes["epsilon"].as_float()},
            domain="com.microsoft",
            num_outputs=4,  # the norm, two that only training needs, the sum
            version=1,
        )
        for old, new in (norm.outputs[0], both.outputs[0]), (add.outputs[0], both.outputs[3]):
            new.name, new.shape, new.type = old.name, old.shape, old.type
            ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        for unused in both.outputs[1:3]:
            unused.name = ""
        graph.insert_before(add, both)
        graph.remove([norm, add], safe=True)


def _packed_attention(graph: ir.Graph) -> None:
    """Give attention the uncut product of queries, keys and values: the operator cuts it itself."""
    for node in [node for node in graph if node.op_type == "GroupQueryAttention"]:
        query, key, value = node.inputs[:3]
        split = query.producer() if query is not None else None
        if split is not None and split.op_type == "Split" and split.outputs == (query, key, value):
            for index, operand in enumerate((split.inputs[0], None, None)):
                node.replace_input_with(index, operand)
            graph.remove(split, safe=True)


def _move_into_branches(model: ir.Model) -> None:
    """Move a constant that one branch uses into it: ONNX Runtime fuses dequantization only there.

    int8 columns need no dequantization: they stay in the main graph, whose weights have a file.
    """
    main = model.graph
    for value in list(main.initializers.values()):
        if value.dtype == ir.DataType.INT8:
            continue
        users = {id(node.graph): node.graph for node, _ in value.uses()}
        if len(users) == 1 and value not in main.outputs and id(main) not in users:
            [branch] = users.values()
            if isinstance(branch, ir.Graph) and value.name:
                del main.initializers[value.name]
                branch.register_initializer(value)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the exporter's messages about missing packages and deprecations."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
