"""What all readers of one file share: the buffer, the external files, and the list of problems found so far."""

from __future__ import annotations

from collections.abc import Collection

from sardonyx.errors import InvalidGraph
from sardonyx.formats.onnx import schema
from sardonyx.formats.onnx.external import ExternalFiles
from sardonyx.formats.onnx.wire import MAX_DEPTH, Buffer, WireError

_MAX_PROBLEMS = 100  # a report longer than this helps nobody, and a hostile file could make it endless


class ReadContext:
    """One file being read."""

    __slots__ = (
        "buf",
        "empty_subgraphs",
        "external",
        "name",
        "notes",
        "problems",
        "refused",
        "replaced",
        "root",
        "tolerant",
        "view",
    )

    def __init__(
        self,
        buf: Buffer,
        name: str,
        external: ExternalFiles,
        root: str = "Model",
        replaced: Collection[str] = (),
    ) -> None:
        self.buf = buf
        self.view = memoryview(buf)  # slices of this share the file's memory
        self.name = name  # what messages call the file
        self.external = external
        self.root = root  # the message the file holds
        self.replaced = replaced  # external tensors that will get other data: their files may be missing
        self.tolerant = False  # whether a graph is wanted in spite of problems
        self.problems: list[str] = []
        self.empty_subgraphs = 0
        self.notes: list[str] = []  # what was put right
        self.refused: set[str] = set()  # names of initializers that are among the problems: that they are not there is none

    def problem(self, text: str) -> None:
        """Remember something that makes no sense; reading goes on, to find all of it."""
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(text)
        if len(self.problems) >= _MAX_PROBLEMS:
            self.raise_problems()

    def note(self, text: str) -> None:
        """Remember something doubtful that reading could put right."""
        if len(self.notes) < _MAX_PROBLEMS:
            self.notes.append(text)

    def count_empty_subgraph(self, offset: int) -> None:
        """A graph without nodes and outputs is a problem if its node does anything; so many of them are one in any case."""
        self.empty_subgraphs += 1
        if self.empty_subgraphs > _MAX_PROBLEMS:
            self.problems.append(f"{self.place(offset)}: more than {_MAX_PROBLEMS} empty subgraphs")
            self.tolerant = False
            self.raise_problems()

    def raise_problems(self) -> None:
        """InvalidGraph with all problems, if there are any and the caller does not want the graph in spite of them."""
        if not self.problems or self.tolerant:
            return
        problems = tuple(self.problems)
        if len(problems) == 1:
            raise InvalidGraph(f"{self.name}: {problems[0]}", problems=problems)
        count = f"{len(problems)} problems" if len(problems) < _MAX_PROBLEMS else f"{len(problems)} problems or more"
        raise InvalidGraph(f"{self.name}: {count}\n  " + "\n  ".join(problems), problems=problems)

    def place(self, offset: int) -> str:
        """Where a byte is, for messages: the path of fields and the offset."""
        path = schema.locate(self.buf, self.root, offset)
        return f"{path}, byte {offset}" if path else f"byte {offset}"

    def check_depth(self, depth: int, offset: int) -> None:
        """WireError if messages lie too deep inside each other."""
        if depth > MAX_DEPTH:
            raise WireError(f"messages nested more than {MAX_DEPTH} deep", offset)
