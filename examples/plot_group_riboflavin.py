"""
A few of 4088 genes
===================

Which of 4088 genes go with the production of riboflavin, from 71 samples.

No groups are given: each gene is a group of its own, and five are expected to be in. Many genes
carry nearly the same signal. No one of these is likely by itself, so a selection with an error
rate leaves them out; a credible set says that it is one of them, and how alike they are.
"""

from _group_comparison import compare

from sparsebayes.datasets import load_riboflavin

compare(load_riboflavin(), None, n_splits=2, inclusion_prior=5 / 4088, anneal=False)
