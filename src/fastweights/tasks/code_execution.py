"""Code execution: tracking the values of variables through a hundred statements."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastweights.core.errors import require, require_name
from fastweights.tasks.kinds._random import TRAINING, random_stream
from fastweights.tasks.kinds.labelled import IGNORE, Batch, FixedTask, Mean, Metrics, Sets, require_sizes, split_sets

Rule = Literal["published", "corrected"]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NAMES = "xyzab"
LOWEST, HIGHEST = -8, 16
"""Range of the values, which `++` and `--` do not leave."""

NO_OUTPUT = 0
"""The class of every position without output; value n is class n - LOWEST + 1."""

COMMON = (*"0123456789", "=", ";", "++", "--", "print", "if", "<", ">", ":")
"""Tokens of every program; the variables follow them."""

ASSIGN, STEP, PRINT, CONDITIONAL = range(4)
EQUALS, SEMICOLON, PLUS, MINUS, PRINTS, IF, LESS, GREATER, COLON = range(10, 19)
FIRST_NAME = len(COMMON)

CONDITION_COLUMNS, STATEMENT_COLUMNS = 5, 4
COLUMNS = CONDITION_COLUMNS + STATEMENT_COLUMNS
ABSENT = 255


@dataclass(frozen=True)
class CodeExecution(FixedTask):
    """Code execution: predict the output of every print statement of a program.

    Input -> target: `x = 3 ; x ++ ; print x ;` -> `_ _ _ _ _ _ _ _ _ 4`: the output of a print at its `;`, if it is
    executed.

    A program is a sequence of statements of four kinds with equal probability:

    - an assignment, `v = n ;`, of 0 to 9 to any variable,
    - a step, `v ++ ;` or `v -- ;`; a step that would leave the range -8 to 16 becomes the opposite step,
    - `print v ;`,
    - a condition, `if v < n :` or `if v > n :`, before one of the other three.

    The first statement is an assignment, the last one a print. All statements but assignments use variables that are
    defined. A statement whose condition is false has no effect, and its print has no output.

    Args:
        variables: 3 (x, y, z) or 5 (also a, b).
        rule: Effect of an assignment under a true condition. "published": none if the variable is already defined, as
            in the generator of the published data, where that holds for about nine in ten of them. "corrected": it
            assigns.
        statements: Number of statements per program; the published data have 100.
        sizes: Programs for training, validation and test. The published files lack the last of each.
        data_seed: Seed of the programs.

    Source: Irie, Schlag, Csordas and Schmidhuber 2021, Sec. 4.2 and App. B.1, after Fan et al. 2020.
    """

    variables: int = 3
    rule: Rule = "published"
    statements: int = 100
    sizes: tuple[int, int, int] = (10_000, 1_000, 1_000)
    data_seed: int = 0

    def __post_init__(self) -> None:
        require(self.variables in (3, 5), "variables", "3 or 5", self.variables)
        require_name("rule", self.rule, get_args(Rule))
        require(self.statements >= 2, "statements", "at least 2: an assignment and a print", self.statements)
        require_sizes(self.sizes)
        require(self.data_seed >= 0, "data_seed", "at least 0", self.data_seed)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The words, of which token n is word n; 22 for 3 variables, 24 for 5. Padding is token 0, and not scored."""
        return (*COMMON, *NAMES[: self.variables])

    @property
    def input_size(self) -> int:
        return len(self.vocabulary)

    @property
    def output_size(self) -> int:
        """Number of classes: no output, or a value from -8 to 16."""
        return HIGHEST - LOWEST + 2

    @property
    def majority_class(self) -> int:
        """The class of 5, one of the two middle values of assignments, which are printed most often."""
        return 5 - LOWEST + 1

    @property
    def chance(self) -> dict[str, float]:
        """Scores of the constant output 5, whose share was counted in 100,000 programs of 100 statements."""
        return {"loss": self._uniform_loss, "accuracy": 0.0, "print_accuracy": 0.0998}

    def metrics(self, outputs: Tensor, targets: Tensor) -> Metrics:
        """Loss per token, the published accuracy (the share of programs without a mistake), and that of prints."""
        right = (outputs.argmax(-1) == targets) | (targets == IGNORE)
        prints = targets > NO_OUTPUT
        return {
            "loss": Mean(float(self._total_loss(outputs, targets)), int((targets != IGNORE).sum())),
            "accuracy": Mean(float(right.all(1).sum()), len(targets)),
            "print_accuracy": Mean(float((right & prints).sum()), int(prints.sum())),
        }

    def _make_sets(self) -> Sets:
        random, shape = random_stream(self.data_seed, TRAINING), (sum(self.sizes), self.statements, COLUMNS)
        programs = _Programs.begin(random, shape, self.variables, self.rule)
        for statement in range(self.statements):
            programs.write(statement)
        return split_sets(programs.packed(), self.sizes)


class _Inner(NamedTuple):
    """The next statement of each program without its condition; `runs` where the condition holds."""

    kind: Ints
    variable: Ints
    runs: Bools


@dataclass
class _Programs:
    """Programs that are written and run in lockstep, one statement at a time."""

    random: np.random.Generator
    rule: Rule
    values: Ints  # [n, variables]
    defined: Bools  # [n, variables]
    tokens: NDArray[np.uint8]  # [n, statements, columns], ABSENT where a statement is shorter
    targets: NDArray[np.int8]  # [n, statements, columns]

    @staticmethod
    def begin(random: np.random.Generator, shape: tuple[int, int, int], variables: int, rule: Rule) -> "_Programs":
        values = np.zeros((shape[0], variables), int)
        tokens, targets = np.full(shape, ABSENT, np.uint8), np.full(shape, NO_OUTPUT, np.int8)
        return _Programs(random, rule, values, np.zeros(values.shape, bool), tokens, targets)

    @property
    def rows(self) -> Ints:
        return np.arange(len(self.values))

    def write(self, statement: int) -> None:
        """Adds a statement to every program, and runs it."""
        kind = self._kinds(statement)
        runs = self._write_conditions(statement, kind == CONDITIONAL)
        inner = np.where(kind == CONDITIONAL, self._integers(CONDITIONAL), kind)
        any_variable, defined_variable = self._integers(self.values.shape[1]), self._some_defined()
        words = _Inner(inner, np.where(inner == ASSIGN, any_variable, defined_variable), runs)
        self._assign(statement, words, may=runs & self._may_assign(words, kind == CONDITIONAL))
        self._step(statement, words)
        self._print(statement, words)
        self.tokens[:, statement, -1] = SEMICOLON

    def _kinds(self, statement: int) -> Ints:
        fixed = {0: ASSIGN, self.tokens.shape[1] - 1: PRINT}
        drawn = self._integers(CONDITIONAL + 1)
        return np.full_like(drawn, fixed[statement]) if statement in fixed else drawn

    def _write_conditions(self, statement: int, conditional: Bools) -> Bools:
        """Writes conditions where `conditional`; returns where the inner statement runs."""
        variable, bound, less = self._some_defined(), self._integers(10), self._integers(2) == 1
        value = self.values[self.rows, variable]
        order = np.where(less, LESS, GREATER)
        words = [np.full_like(bound, IF), variable + FIRST_NAME, order, bound, np.full_like(bound, COLON)]
        self.tokens[conditional, statement, :CONDITION_COLUMNS] = np.stack(words, axis=1)[conditional]
        return ~conditional | np.where(less, value < bound, value > bound)

    def _may_assign(self, words: _Inner, conditional: Bools) -> Bools:
        if self.rule == "corrected":
            return np.ones_like(conditional)
        return ~(conditional & self.defined[self.rows, words.variable])

    def _assign(self, statement: int, words: _Inner, may: Bools) -> None:
        new = self._integers(10)
        chosen = words.kind == ASSIGN
        self._put(statement, chosen, words.variable + FIRST_NAME, np.full_like(new, EQUALS), new)
        changed = chosen & may
        self.values[changed, words.variable[changed]] = new[changed]
        self.defined[changed, words.variable[changed]] = True

    def _step(self, statement: int, words: _Inner) -> None:
        old = self.values[self.rows, words.variable]
        step = 2 * self._integers(2) - 1
        step = np.where((old + step < LOWEST) | (old + step > HIGHEST), -step, step)
        chosen = words.kind == STEP
        self._put(statement, chosen, words.variable + FIRST_NAME, np.where(step > 0, PLUS, MINUS))
        changed = chosen & words.runs
        self.values[changed, words.variable[changed]] += step[changed]

    def _print(self, statement: int, words: _Inner) -> None:
        chosen = words.kind == PRINT
        self._put(statement, chosen, np.full_like(words.variable, PRINTS), words.variable + FIRST_NAME)
        printed = chosen & words.runs
        values = self.values[printed, words.variable[printed]]
        self.targets[printed, statement, -1] = values - LOWEST + 1

    def _put(self, statement: int, chosen: Bools, *words: Ints) -> None:
        for column, word in enumerate(words, start=CONDITION_COLUMNS):
            self.tokens[chosen, statement, column] = word[chosen]

    def _integers(self, below: int) -> Ints:
        return self.random.integers(0, below, len(self.values))

    def _some_defined(self) -> Ints:
        """Draws a defined variable uniformly, or any variable if none is defined."""
        rank = self.random.integers(0, np.maximum(self.defined.sum(axis=1), 1))
        return (self.defined.cumsum(axis=1) > rank[:, None]).argmax(axis=1)

    def packed(self) -> Batch:
        """Returns the programs without their absent columns, padded at the end."""
        tokens, targets = (part.reshape(len(part), -1) for part in (self.tokens, self.targets))
        present = tokens != ABSENT
        lengths = present.sum(axis=1)
        filled = np.arange(lengths.max()) < lengths[:, None]
        packed, answers = np.zeros(filled.shape, np.uint8), np.full(filled.shape, IGNORE, np.int8)
        packed[filled], answers[filled] = tokens[present], targets[present]
        return Batch(torch.from_numpy(packed), torch.from_numpy(answers))
