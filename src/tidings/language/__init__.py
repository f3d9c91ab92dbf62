"""Filters as people write them: selector text, JSON patterns, and explanations."""

from tidings.language.explain import Explanation, explain
from tidings.language.pattern import from_pattern
from tidings.language.selector import parse

__all__ = ["Explanation", "explain", "from_pattern", "parse"]
