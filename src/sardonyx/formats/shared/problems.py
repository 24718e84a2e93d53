"""What makes no sense in a model file, collected while it is read and reported in one error."""

from __future__ import annotations

from sardonyx.errors import InvalidGraph

MAX_PROBLEMS = 100  # a report longer than this helps nobody, and a hostile file could make it endless


class ProblemList:
    """The problems of one file. `name` is what messages call it."""

    __slots__ = ("name", "notes", "problems", "refused", "tolerant")

    def __init__(self, name: str) -> None:
        self.name = name
        self.tolerant = False  # whether a graph is wanted in spite of problems
        self.problems: list[str] = []
        self.notes: list[str] = []  # what was put right
        self.refused: set[str] = set()  # names of initializers that are among the problems: that they are not there is none

    def problem(self, text: str) -> None:
        """Remember something that makes no sense; reading goes on, to find all of it."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(text)
        if len(self.problems) >= MAX_PROBLEMS:
            self.raise_problems()

    def note(self, text: str) -> None:
        """Remember something doubtful that reading could put right."""
        if len(self.notes) < MAX_PROBLEMS:
            self.notes.append(text)

    def raise_problems(self) -> None:
        """InvalidGraph with all problems, if there are any and the caller does not want the graph in spite of them."""
        if not self.problems or self.tolerant:
            return
        problems = tuple(self.problems)
        if len(problems) == 1:
            raise InvalidGraph(f"{self.name}: {problems[0]}", problems=problems)
        count = f"{len(problems)} problems" if len(problems) < MAX_PROBLEMS else f"{len(problems)} problems or more"
        raise InvalidGraph(f"{self.name}: {count}\n  " + "\n  ".join(problems), problems=problems)
