"""Standard errors, confidence intervals and the bootstrap, in plain numpy.

These modules know nothing about tasks or models. `lm_eval.metrics.uncertainty` chooses which
function applies to which metric.
"""
