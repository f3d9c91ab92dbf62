"""Filter text to filter: the SQL-92 conditional syntax of JMS selectors, with our words for strings, sets and dates.

The grammar (precedence climbing) turns the shape of a text, which is the text without the values of its constants, into a plan;
the plan makes the filter from the constants. Plans are kept by shape, so filters that differ only in their constants
pay for the second half alone. The cache never changes a meaning: the grammar sees nothing but the shape.

Precedence, weakest first: OR, AND, NOT, comparison, + and -, * and /, signs. Cost: linear in the text.
"""

import functools
from collections.abc import Callable
from typing import Any

from tidings.errors import FilterError, InvalidInput
from tidings.language import lexer, plan
from tidings.language.lexer import KINDS, Problem, is_plain
from tidings.language.plan import (
    AnyCondition,
    Condition,
    ConditionPlan,
    Constants,
    NamePlan,
    OperandPlan,
    Plan,
    SimplePlan,
    ValuePlan,
)
from tidings.model.filter import (
    COMPARISONS,
    EVERYTHING,
    MAX_CONDITIONS,
    MAX_DEPTH,
    NEGATION,
    And,
    Bool,
    Filter,
    Not,
    Op,
    Or,
    Predicate,
)
from tidings.model.value import BOOL, DATE, NUMBER, checked_name

MAX_LENGTH = 65_536  # characters of text
MAX_SHAPES = 4_096  # plans kept; the least recently used is dropped
MAX_KEPT_LENGTH = 512  # of a text whose plan is kept: bounds the memory of the cache

_OR, _AND, _COMPARE, _SUM, _PRODUCT, _SIGN = range(1, 7)
_COMPARE_OPS = {**{op.value: op for op in COMPARISONS}, "!=": Op.NE}
_WORD_OPS = "NOT IS BETWEEN IN LIKE STARTS ENDS CONTAINS SUBSET SUPERSET".split()
_RANKS = {
    "OR": _OR,
    "AND": _AND,
    **dict.fromkeys([*_COMPARE_OPS, *_WORD_OPS], _COMPARE),
    **dict.fromkeys("+-", _SUM),
    **dict.fromkeys("*/", _PRODUCT),
}
# What JMS reserves; our own words are names wherever an operand is expected.
_RESERVED = frozenset("AND OR NOT BETWEEN IN LIKE ESCAPE IS NULL TRUE FALSE".split())
_ENDS = frozenset(["", ")", "AND", "OR", "and", "or"])  # what ends a condition for certain


def parse(text: str) -> Filter:
    """The filter that a text describes, or FilterError with the column. Blank text matches everything."""
    if not isinstance(text, str):
        raise FilterError(f"expected the text of a filter, found {type(text).__name__}")
    if len(text) > MAX_LENGTH:
        raise FilterError(f"a filter has at most {MAX_LENGTH:,} characters, found {len(text):,}")
    try:
        # A name in double quotes may hold what looks like a constant.
        if len(text) <= MAX_KEPT_LENGTH and '"' not in text:
            try:
                shape, constants = lexer.split(text)
                return _kept(shape)(constants)
            except lexer.BadConstant:
                pass  # the slow way finds the place
        tokens, constants = lexer.scan(text)
        return _Grammar(tokens).filter()(constants)
    except Problem as problem:
        raise _error(problem, text) from None


@functools.lru_cache(maxsize=MAX_SHAPES)
def _kept(shape: tuple[Any, ...]) -> Callable[[Constants], Filter]:
    return _Grammar(lexer.shape_tokens(shape)).filter()


def _error(problem: Problem, text: str) -> FilterError:
    token, column = lexer.locate(text, problem.at)
    reason = problem.reason
    if problem.after and problem.at:
        reason += f" after {lexer.described(lexer.locate(text, problem.at - 1)[0])}"
    return FilterError(f"{reason}, found {lexer.described(token)}" if problem.found else reason, text, column)


class _Grammar:
    """One pass over the tokens of a shape."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.at = 0
        self.slots = 0
        self.depth = 0
        self.conditions = 0

    def filter(self) -> Callable[[Constants], Filter]:
        if self.tokens == [""]:
            return lambda constants: EVERYTHING
        node = self.expression(_OR)
        if self.tokens[self.at]:
            raise self.unfinished(node, "end of text")
        return self.condition(node).build

    def expression(self, least: int) -> Plan:
        """Whatever stands here, with all that operators of at least this rank join to it."""
        left: Plan | None = self.simple() if least <= _COMPARE else None
        if left is None:
            left = self.prefix(least)
        while True:
            token = self.tokens[self.at]
            rank = _RANKS.get(token)
            if rank is None:
                token = token.upper()
                rank = _RANKS.get(token, 0)
            if rank < least:
                return left
            if rank <= _AND:
                left = self.chain(left, token, rank)
            elif isinstance(left, Condition):
                raise self.unfinished(left, ")" if self.depth else "end of text")
            elif rank > _COMPARE:
                left = self.arithmetic(left, token, rank)
            elif token in _COMPARE_OPS:
                self.at += 1
                left = self.compared(left, _COMPARE_OPS[token], self.operand(_SUM))
            else:
                left = self.word(left, token)

    def simple(self) -> SimplePlan | None:
        """An attribute against a constant and nothing more: most conditions, so they have a short way."""
        tokens, at, slot = self.tokens, self.at, self.slots
        name = tokens[at]
        op = _COMPARE_OPS.get(tokens[at + 1]) if name else None
        if op is None or tokens[at + 2] not in KINDS or tokens[at + 3] not in _ENDS:
            return None
        if not is_plain(name) or name.upper() in _RESERVED:
            return None
        self.count()
        self.at = at + 3
        self.slots = slot + 1
        return SimplePlan(name, op, slot, at + 2)

    def prefix(self, least: int) -> Plan:
        at, token = self.at, self.tokens[self.at]
        self.at += 1
        if token in KINDS:
            return self.literal(at)
        word = token.upper()
        if lexer.is_name(token) and word not in _RESERVED:
            if word in plan.DATES and self.tokens[at + 1] == "''":
                return self.date(word)
            return NamePlan(self.name(token, at))
        if word in ("TRUE", "FALSE"):
            truth = word == "TRUE"
            return ValuePlan(BOOL, lambda constants: truth, at)
        if token == "(":
            return self.parenthesised()
        if token in ("-", "+"):
            return self.signed(token, at)
        if word == "NOT" and least <= _COMPARE:
            part = self.condition(self.nested(_COMPARE)).build
            return ConditionPlan(lambda constants: Not(part(constants)))
        raise Problem(
            at, f"expected {'a condition' if least <= _COMPARE else 'a constant or an attribute'}", after=True
        )

    def nested(self, least: int) -> Plan:
        """An expression one level deeper."""
        self.depth += 1
        self.check_depth(self.depth, self.at - 1)
        node = self.expression(least)
        self.depth -= 1
        return node

    def parenthesised(self) -> Plan:
        node = self.nested(_OR)
        if self.tokens[self.at] != ")":
            raise self.unfinished(node, ")")
        self.at += 1
        return node

    def literal(self, at: int) -> ValuePlan:
        slot = self.slots
        self.slots += 1
        return ValuePlan(KINDS[self.tokens[at]], lambda constants: plan.allowed(constants[slot], at), at, 0, slot)

    def date(self, word: str) -> ValuePlan:
        text = self.string(f"a string after {word}")
        return ValuePlan(DATE, lambda constants: plan.date(word, text.get(constants), text.at), text.at)

    def signed(self, sign: str, at: int) -> OperandPlan:
        node = self.as_operand(self.nested(_SIGN), at + 1)
        if isinstance(node, ValuePlan):
            self.check_number(node, sign)
            return plan.signed(sign, node, at)
        return node if sign == "+" else plan.negative(node)

    def chain(self, left: Plan, word: str, rank: int) -> ConditionPlan:
        """All parts of an AND or OR, those of nested ones included."""
        joint = And if rank == _AND else Or
        parts: list[AnyCondition] = []
        node = left
        while True:
            part = self.condition(node)
            if isinstance(part, ConditionPlan) and part.joint is joint:
                parts.extend(part.parts)
            else:
                parts.append(part)
            if self.tokens[self.at].upper() != word:
                return plan.joined(joint, parts)
            self.at += 1
            # Nothing that joins conditions binds tighter than AND: after it the short way needs no look ahead.
            simple = self.simple() if rank == _AND else None
            node = self.expression(rank + 1) if simple is None else simple

    def arithmetic(self, left: OperandPlan, op: str, rank: int) -> OperandPlan:
        at = self.at
        self.at += 1
        right = self.operand(rank + 1)
        if isinstance(left, ValuePlan) and isinstance(right, ValuePlan):
            self.check_number(left, op)
            self.check_number(right, op)
        result = plan.arithmetic(left, op, right, at)
        self.check_depth(result.depth, at)
        return result

    def compared(self, left: OperandPlan, op: Op, right: OperandPlan) -> AnyCondition:
        self.count()
        if op is not Op.EQ and op is not Op.NE:
            for node in (left, right):
                if isinstance(node, ValuePlan) and node.kind == BOOL:
                    raise Problem(node.at, f"{op} orders numbers, strings and dates")
        return plan.comparison(left, op, right)

    def word(self, left: OperandPlan, word: str) -> ConditionPlan:
        """A test that is spelt in words."""
        start = self.at
        negated = word == "NOT"
        if negated:
            self.at += 1
            word = self.tokens[self.at].upper()
        if word == "BETWEEN":
            self.at += 1
            return self.between(left, negated)
        if word not in _TESTS or (negated and word == "IS"):
            raise Problem(self.at, "expected BETWEEN, IN, LIKE, STARTS, ENDS, CONTAINS, SUBSET or SUPERSET after NOT")
        if not isinstance(left, NamePlan):
            raise Problem(start, f"expected an attribute before {word}, found an expression", found=False)
        self.count()
        self.at += 1
        op, second, rest = _TESTS[word]
        if second:
            self.keyword(second, word)
        return rest(self, left.name, NEGATION[op] if negated else op)

    def between(self, left: OperandPlan, negated: bool) -> ConditionPlan:
        self.check_depth(self.depth + 1, self.at - 1)  # its halves print in parentheses
        low_op, high_op, joint = (Op.LT, Op.GT, Or) if negated else (Op.GE, Op.LE, And)
        low = self.operand(_SUM)
        self.keyword("AND", "the lower bound of BETWEEN")
        high = self.operand(_SUM)
        return plan.joined(joint, [self.compared(left, low_op, low), self.compared(left, high_op, high)])

    def null(self, name: str, op: Op) -> ConditionPlan:
        if self.tokens[self.at].upper() == "NOT":
            self.at += 1
            op = Op.EXISTS
        self.keyword("NULL", "IS" if op is Op.MISSING else "IS NOT")
        return ConditionPlan(lambda constants: Predicate(name, op))

    def like(self, name: str, op: Op) -> ConditionPlan:
        pattern, escape = self.string("a string after LIKE"), None
        if self.tokens[self.at].upper() == "ESCAPE":
            self.at += 1
            escape = self.string("a string of one character after ESCAPE")
        return plan.like(name, op is Op.NOT_LIKE, pattern, escape)

    def text(self, name: str, op: Op) -> ConditionPlan:
        return plan.predicate(name, op, self.string(f"a string after {op}").get)

    def element(self, name: str, op: Op) -> ConditionPlan:
        return plan.predicate(name, op, self.member(op).get)

    def elements(self, name: str, op: Op) -> ConditionPlan:
        if self.tokens[self.at] != "(":
            raise Problem(self.at, f"expected ( after {op}")
        self.at += 1
        members: list[ValuePlan] = []
        while self.tokens[self.at] != ")" or members:
            members.append(self.member(op))
            if members[-1].kind != members[0].kind:
                raise Problem(members[-1].at, f"expected another {members[0].kind}: a list holds one kind")
            if self.tokens[self.at] == ")":
                break
            if self.tokens[self.at] != ",":
                raise Problem(self.at, f"expected , or ) in the list of {op}")
            self.at += 1
        self.at += 1
        getters = [member.get for member in members]
        return plan.predicate(name, op, lambda constants: frozenset([get(constants) for get in getters]))

    def member(self, op: Op) -> ValuePlan:
        """A string or a number, which may have a sign."""
        sign = self.tokens[self.at] if self.tokens[self.at] in ("-", "+") else ""
        at = self.at + len(sign)
        kind = KINDS.get(self.tokens[at])
        if kind is None or (sign and kind != NUMBER):
            raise Problem(at, f"expected {'a number' if sign else 'a string or a number'}", after=True)
        self.at = at + 1
        return plan.signed(sign, self.literal(at), at - 1) if sign else self.literal(at)

    def string(self, expected: str) -> ValuePlan:
        if self.tokens[self.at] != "''":
            raise Problem(self.at, f"expected {expected}")
        self.at += 1
        return self.literal(self.at - 1)

    def keyword(self, word: str, after: str) -> None:
        if self.tokens[self.at].upper() != word:
            raise Problem(self.at, f"expected {word} after {after}")
        self.at += 1

    def name(self, token: str, at: int) -> str:
        try:
            return checked_name(token[1:-1].replace('""', '"') if token[0] == '"' else token)
        except InvalidInput as error:
            raise Problem(at, str(error), found=False) from None

    def operand(self, least: int) -> OperandPlan:
        start = self.at
        return self.as_operand(self.expression(least), start)

    def as_operand(self, node: Plan, start: int) -> OperandPlan:
        if isinstance(node, Condition):
            raise Problem(start, "expected a constant or an attribute, found a condition", found=False)
        return node

    def condition(self, node: Plan) -> AnyCondition:
        """A condition as it is; an attribute, which shall be TRUE; the constants TRUE and FALSE."""
        if isinstance(node, Condition):
            return node
        if isinstance(node, NamePlan):
            self.count()
            return plan.predicate(node.name, Op.EQ, lambda constants: True)
        if isinstance(node, ValuePlan) and node.kind == BOOL:
            self.count()
            get = node.get
            return ConditionPlan(lambda constants: Bool(get(constants)))
        raise Problem(self.at, "expected a comparison such as = or <", after=True)

    def unfinished(self, node: Plan, end: str) -> Problem:
        if isinstance(node, Condition):
            return Problem(self.at, f"expected AND, OR or {end}")
        return Problem(self.at, f"expected an operator or {end}", after=True)

    def count(self) -> None:
        self.conditions += 1
        if self.conditions > MAX_CONDITIONS:
            reason = f"a filter has at most {MAX_CONDITIONS:,} conditions, found number {self.conditions:,}"
            raise Problem(self.at - 1, reason, found=False)

    def check_depth(self, depth: int, at: int) -> None:
        if depth > MAX_DEPTH:
            reason = f"a filter nests at most {MAX_DEPTH} levels deep, found level {depth}"
            raise Problem(at, reason, found=False)

    def check_number(self, node: ValuePlan, op: str) -> None:
        if node.kind != NUMBER:
            raise Problem(node.at, f"expected a number beside {op}")


# The word, its operator, the word that must follow, and what reads the rest.
_TESTS: dict[str, tuple[Op, str, Callable[[_Grammar, str, Op], ConditionPlan]]] = {
    "IS": (Op.MISSING, "", _Grammar.null),
    "IN": (Op.IN, "", _Grammar.elements),
    "LIKE": (Op.LIKE, "", _Grammar.like),
    "STARTS": (Op.PREFIX, "WITH", _Grammar.text),
    "ENDS": (Op.SUFFIX, "WITH", _Grammar.text),
    "CONTAINS": (Op.CONTAINS, "", _Grammar.element),
    "SUBSET": (Op.SUBSET, "OF", _Grammar.elements),
    "SUPERSET": (Op.SUPERSET, "OF", _Grammar.elements),
}
