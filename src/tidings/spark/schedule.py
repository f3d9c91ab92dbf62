"""The schedule step: for every copy (one event on its way to one home broker) the MTEP figures, and in which order to send.

mtep, section 2.3: success of a pair, expected earning EE and penalty EP of a copy, what postponing it by one transmission costs
(PC), and priority = w*EE + (1-w)*(PC + EP). The paper computes this whenever a link is free; here it is computed once for the
micro-batch, at its recorded time. A pair is sent only while its chance exceeds epsilon (Definition 2): one whose dl has passed or
that has no chance, is expired; a copy that has no pair left is not sent at all, which is eq. 14. A home without a row in the
links table is here: no way to go, success 1.

Cost: a few passes over the pairs, and one sort of the copies.
"""

from typing import Any, NamedTuple

import numpy as np

from tidings.compiled import kernel
from tidings.scheduling.delay import chance

Array = np.ndarray[Any, np.dtype[Any]]


class Links(NamedTuple):
    """By home: the path from here to there."""

    mu: Array  # seconds per KB, mean
    sigma: Array  # and deviation
    hops: Array  # brokers on the way


class Parameters(NamedTuple):
    """By the paper's names."""

    weight: float = 0.4
    epsilon: float = 0.04
    pd_s: float = 0.002  # PD: one broker's matching
    sbd_s: float = 0.0  # SBD: from the last broker to the subscriber
    mean_size_kb: float = 0.0  # of events, for LMT; 0 = the mean of the batch


class Pairs(NamedTuple):
    """Matched pairs as columns."""

    event: Array  # row of the event
    home: Array  # number of the home
    left_s: Array  # until dl, from now; inf if there is none
    price: Array
    penalty: Array


class Figures(NamedTuple):
    """By pair: its copy, its success, whether it is worth sending; by copy: the sums and the priority."""

    copy: Array
    success: Array
    sent: Array
    expected_earning: Array
    expected_penalty: Array
    postponement_cost: Array
    priority: Array


@kernel("float64[::1](float64[::1], float64[::1], float64[::1], float64[::1], float64[::1])")
def success(left_s: Array, size_kb: Array, mu: Array, sigma: Array, fixed_s: Array) -> Array:
    """Phi((dl - pt - nodenum*PD - SBD - mu*size) / (size*sigma)) (eq. 6 and 7); exact where nothing varies."""
    result = np.empty(len(left_s))
    for at in range(len(left_s)):
        slack = left_s[at] - fixed_s[at] - mu[at] * size_kb[at]
        result[at] = chance(slack, sigma[at] * size_kb[at])
    return result


def figures(pairs: Pairs, size_kb: Array, links: Links, parameters: Parameters) -> Figures:
    """The MTEP figures of one batch of matched pairs; `size_kb` is by event."""
    w, epsilon, pd_s, sbd_s, mean_size_kb = parameters
    mu, sigma = links.mu[pairs.home], links.sigma[pairs.home]
    size = size_kb[pairs.event]
    fixed_s = links.hops[pairs.home] * pd_s + sbd_s
    now = success(pairs.left_s, size, mu, sigma, fixed_s)
    lmt_s = (mean_size_kb or (float(size_kb.mean()) if len(size_kb) else 0.0)) * mu  # one transmission later
    later = success(pairs.left_s - lmt_s, size, mu, sigma, fixed_s)

    key = pairs.event.astype(np.int64) * len(links.mu) + pairs.home
    copies, copy = np.unique(key, return_inverse=True)
    count = len(copies)
    passed = pairs.left_s < 0

    def by_copy(amounts: Array) -> Array:
        return np.bincount(copy, weights=amounts, minlength=count)

    ee, ep = by_copy(pairs.price * now), by_copy(pairs.penalty * (1 - now))
    ee_later, ep_later = by_copy(pairs.price * later), by_copy(pairs.penalty * (1 - later))
    pc = ee - ep - (ee_later - ep_later)
    return Figures(copy, now, (now > epsilon) & ~passed, ee, ep, pc, w * ee + (1 - w) * (pc + ep))


def order(pairs: Pairs, found: Figures, sent: Array) -> Array:
    """Positions of the pairs to send: home by home, dearest copy first, pairs of a copy together."""
    at = np.flatnonzero(sent)
    copy = found.copy[at]
    home = np.zeros(len(found.priority), np.int64)
    home[found.copy] = pairs.home
    ranked = np.empty(len(home), np.int64)
    ranked[np.lexsort((np.arange(len(home)), -found.priority, home))] = np.arange(len(home))
    return at[np.argsort(ranked[copy], kind="stable")]
