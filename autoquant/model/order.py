"""The order of nodes."""

import heapq

import onnx

from autoquant.model.subgraphs import read_by

__all__ = ["sort_nodes"]


def sort_nodes(graph: onnx.GraphProto) -> None:
    """Put nodes behind those whose outputs they read, otherwise in the order that they have.

    ONNX wants that; onnxruntime opens files without it, as its own converter to float16 writes, but does not optimise
    them. Bodies must have it there too. A graph with a cycle is left as it is.
    """
    maker = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    awaited = [{maker[name] for name in read_by(node) if name in maker} for node in graph.node]
    if all(max(others, default=-1) < index for index, others in enumerate(awaited)):
        return
    readers: list[list[int]] = [[] for _ in awaited]
    for index, others in enumerate(awaited):
        for other in others:
            readers[other].append(index)
    n_awaited = [len(others) for others in awaited]
    ready = [index for index, n in enumerate(n_awaited) if n == 0]
    order: list[int] = []
    while ready:
        order.append(heapq.heappop(ready))
        for reader in readers[order[-1]]:
            n_awaited[reader] -= 1
            if n_awaited[reader] == 0:
                heapq.heappush(ready, reader)
    if len(order) == len(graph.node):
        nodes = list(graph.node)
        graph.ClearField("node")
        graph.node.extend(nodes[index] for index in order)
