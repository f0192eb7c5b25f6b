"""
Which attributes of the mother matter
=====================================

Which attributes of the mother go with the weight of a child at birth, for 189 births.

Age and weight of the mother come as cubic polynomials, race and the numbers of earlier labours
and visits as indicators: eight groups of one to three columns, each as likely in as out
beforehand. Two of them are all but certain; six can be named if one in ten may be wrong.
"""

from _group_comparison import compare

from sparsebayes.datasets import load_birthwt

data = load_birthwt()
compare(data, [data.group_names[g] for g in data.groups], inclusion_prior=0.5)
