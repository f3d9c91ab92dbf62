"""Filters as text: the printer. What it prints, the parser reads back to the same filter.

Precedence, weakest first: OR, AND, NOT, comparison, + and -, * and /, unary minus.
"""

import datetime
import math
import re
from typing import Any

from tidings.model import filter as f

KEYWORDS = frozenset(
    "AND OR NOT BETWEEN IN LIKE ESCAPE IS NULL TRUE FALSE STARTS ENDS WITH CONTAINS SUBSET SUPERSET OF DATE TIMESTAMP".split()
)
_PLAIN_NAME = re.compile(r"[^\W\d][\w$.]*|\$[\w$.]*")
_OR, _AND, _NOT, _LEAF = range(4)
_SUM, _PRODUCT, _UNARY = range(3)


def render(node: Any) -> str:
    """The text of a filter or of an operand."""
    return _operand(node, _SUM) if isinstance(node, f.Operand) else _filter(node, _OR)


def _filter(node: f.Filter, outer: int) -> str:
    match node:
        case f.Or():
            return _parenthesised(" OR ".join(_filter(part, _AND) for part in node.parts), outer > _OR)
        case f.And():
            return _parenthesised(" AND ".join(_filter(part, _NOT) for part in node.parts), outer > _AND)
        case f.Not():
            return f"NOT {_filter(node.part, _LEAF)}"
        case f.Bool():
            return "TRUE" if node.value else "FALSE"
        case f.Comparison():
            return f"{_operand(node.left, _SUM)} {node.op} {_operand(node.right, _SUM)}"
        case f.Predicate():
            return _predicate(node)


def _predicate(predicate: f.Predicate) -> str:
    attribute = name(predicate.attribute)
    if predicate.op in f.NULL_OPS:
        return f"{attribute} {predicate.op}"
    text = f"{attribute} {predicate.op} {literal(predicate.value)}"
    escapes = predicate.op in (f.Op.LIKE, f.Op.NOT_LIKE) and "\\" in predicate.value
    return text + " ESCAPE '\\'" if escapes else text


def _operand(operand: f.Operand, outer: int) -> str:
    match operand:
        case f.Attribute():
            return name(operand.name)
        case f.Constant():
            return literal(operand.value)
        case f.Negative():
            inner = _operand(operand.operand, _SUM)
            # Parentheses only where the text needed them: what fits the parser's depth must fit it again.
            match operand.operand:
                case f.Attribute():
                    return f"-{inner}"
                case f.Negative():
                    return f"- {inner}"
            return f"-({inner})"
        case f.Arithmetic():
            level = _SUM if operand.op in "+-" else _PRODUCT
            text = f"{_operand(operand.left, level)} {operand.op} {_operand(operand.right, level + 1)}"
            return _parenthesised(text, outer > level)


def _parenthesised(text: str, needed: bool) -> str:
    return f"({text})" if needed else text


def name(attribute: str) -> str:
    """An attribute name as it stands in a filter: in double quotes unless it is a plain identifier."""
    if _PLAIN_NAME.fullmatch(attribute) and attribute.upper() not in KEYWORDS:
        return attribute
    return '"' + attribute.replace('"', '""') + '"'


def literal(value: Any) -> str:
    """A constant as it stands in a filter."""
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case float() if math.isinf(value):
            return "1e999" if value > 0 else "-1e999"
        case int() | float():
            return repr(value)
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime.datetime():
            return f"TIMESTAMP '{value.isoformat()}'"
        case frozenset():
            return "(" + ", ".join(literal(element) for element in sorted(value)) + ")"
    raise TypeError(f"no literal for {value!r}")
