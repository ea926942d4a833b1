"""Does a sample come from a distribution? Moments, Kolmogorov-Smirnov, chi-square.

Seeds are fixed, so a test that passes passes always; the bounds say how unlikely a worse sample of
a right sampler is: one in a million for each question.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy import stats

SIGMAS = 5.0
RARE = 1e-6


def fits(sample: torch.Tensor, law, grain: float = 0.0) -> None:
    """Asserts that ``sample`` comes from ``law``, a frozen distribution of scipy's.

    ``grain`` is the relative rounding of the sample's dtype: it may move the steps of the empirical
    distribution by that much.
    """
    values = sample.detach().cpu().double().numpy().ravel()
    assert np.isfinite(values).all()
    moments(values, law)
    if isinstance(law.dist, stats.rv_discrete):
        counts(values, law)
    else:
        distance, chance = stats.kstest(values, law.cdf)[:2]
        assert chance > RARE or distance < grain, f"distance {distance}, chance {chance}"


def moments(values: np.ndarray, law) -> None:
    """Mean and variance, where the law has them."""
    mean, variance, _, kurtosis = (float(m) for m in law.stats(moments="mvsk"))
    if not np.isfinite([mean, variance]).all():
        return
    allowed = SIGMAS * np.sqrt(variance / len(values)) + 1e-3 * abs(mean)
    assert abs(values.mean() - mean) <= allowed, f"mean {values.mean()}, not {mean}"
    if not np.isfinite(kurtosis) or kurtosis > 50:
        return
    allowed = SIGMAS * variance * np.sqrt((kurtosis + 2) / len(values)) + 1e-3 * variance
    assert abs(values.var() - variance) <= allowed, f"variance {values.var()}, not {variance}"


def counts(values: np.ndarray, law) -> None:
    """Chi-square over the values that are likely enough, the rest taken together."""
    assert np.array_equal(values, np.round(values))
    low, high = int(law.ppf(1e-9)), int(law.ppf(1 - 1e-9))
    assert low <= values.min()
    assert values.max() <= high
    places = np.arange(low, high + 1)
    expected = law.pmf(places) * len(values)
    seen = np.array([(values == place).sum() for place in places])
    likely = expected >= 5
    seen = np.append(seen[likely], seen[~likely].sum())
    expected = np.append(expected[likely], expected[~likely].sum())
    if expected[-1] < 5:
        merged = expected[:-1].argmin()
        seen[merged] += seen[-1]
        expected[merged] += expected[-1]
        seen, expected = seen[:-1], expected[:-1]
    if len(seen) < 2:
        return
    expected *= seen.sum() / expected.sum()
    chance = stats.chisquare(seen, expected).pvalue
    assert chance > RARE, f"chance {chance}"
