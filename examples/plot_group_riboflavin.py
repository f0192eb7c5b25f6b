"""
A few of 4088 genes
===================

Which of 4088 genes go with the production of riboflavin, from 71 samples.

No groups are given: each gene is a group of its own. Many genes carry nearly the same signal, so
probabilities are shared among them; this takes about a minute.
"""

from _group_comparison import compare

from sparsebayes.datasets import load_riboflavin

compare(load_riboflavin(), None, n_splits=5)
