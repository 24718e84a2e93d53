"""What all readers of one file share: the buffer, the external files, and the list of problems found so far."""

from __future__ import annotations

from collections.abc import Collection

from sardonyx.formats.onnx import schema
from sardonyx.formats.onnx.external import ExternalFiles
from sardonyx.formats.onnx.wire import MAX_DEPTH, WireError
from sardonyx.formats.shared.problems import MAX_PROBLEMS, ProblemList
from sardonyx.formats.shared.source import Buffer


class ReadContext(ProblemList):
    """One file being read."""

    __slots__ = ("buf", "empty_subgraphs", "external", "replaced", "root", "view")

    def __init__(
        self,
        buf: Buffer,
        name: str,
        external: ExternalFiles,
        root: str = "Model",
        replaced: Collection[str] = (),
    ) -> None:
        super().__init__(name)
        self.buf = buf
        self.view = memoryview(buf)  # slices of this share the file's memory
        self.external = external
        self.root = root  # the message the file holds
        self.replaced = replaced  # external tensors that will get other data: their files may be missing
        self.empty_subgraphs = 0

    def count_empty_subgraph(self, offset: int) -> None:
        """A graph without nodes and outputs is a problem if its node does anything; so many of them are one in any case."""
        self.empty_subgraphs += 1
        if self.empty_subgraphs > MAX_PROBLEMS:
            self.problems.append(f"{self.location(offset)}: more than {MAX_PROBLEMS} empty subgraphs")
            self.tolerant = False
            self.raise_problems()

    def location(self, offset: int) -> str:
        """Where a byte is, for messages: the path of fields and the offset."""
        path = schema.locate(self.buf, self.root, offset)
        return f"{path}, byte {offset}" if path else f"byte {offset}"

    def check_depth(self, depth: int, offset: int) -> None:
        """WireError if messages lie too deep inside each other."""
        if depth > MAX_DEPTH:
            raise WireError(f"messages nested more than {MAX_DEPTH} deep", offset)
