"""The data sets that come as files: what they hold, where they are from, and their checksums."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DataFile:
    name: str
    sha256: str


@dataclass(frozen=True)
class DataSet:
    """One data set; `file` has the rows, `side_file` a table beside it with the same rows."""

    name: str
    file: DataFile
    n_samples: int
    n_features: int
    target: str
    about: str
    origin: str
    terms: str
    side_file: DataFile | None = None

    @property
    def loader(self) -> str:
        return f"load_{self.name}"

    @property
    def description(self) -> str:
        return (
            f"{self.about}\n\n"
            f"Rows: {self.n_samples}. Inputs: {self.n_features}. Target: {self.target}.\n"
            f"Origin: {self.origin}\n"
            f"Terms: {self.terms}\n"
        )


_SETS = (
    DataSet(
        name="boston",
        file=DataFile(
            "boston.csv",
            "d0a8dba1d66346fb31288ad7f629f78c7a9709e5d8a2b0eff718aa352bad1b48",
        ),
        n_samples=506,
        n_features=13,
        target="MEDV, median value of homes in 1000 dollars, cut off at 50",
        about=(
            "Housing in the census tracts of Boston around 1970. The input B was made from the "
            "share of Black residents: use the set to compare methods, never to draw conclusions "
            "about housing."
        ),
        origin="Harrison and Rubinfeld (1978), through StatLib and UCI.",
        terms="public, without an explicit licence.",
    ),
    DataSet(
        name="abalone",
        file=DataFile(
            "abalone.csv",
            "a2daaed9c48ef860360f6438a224a2fde2576f1ebcf4f821ffe23645c229b23e",
        ),
        n_samples=4177,
        n_features=8,
        target="rings, which give the age of the shell",
        about=(
            "Size and weight of abalone shells. Sex (male, female, infant) is text in the file and "
            "becomes three indicator columns or one column of codes. Two rows have height 0, as in "
            "the original."
        ),
        origin="Nash et al. (1994), through UCI.",
        terms="CC BY 4.0 (UCI).",
    ),
    DataSet(
        name="california",
        file=DataFile(
            "california.csv.gz",
            "7b69e82f71b79a2d9608a2fe85450929667e4bec277a7a573250f499a6cc568a",
        ),
        n_samples=20640,
        n_features=8,
        target="median_house_value in dollars, cut off at 500001",
        about=(
            "Block groups of the 1990 census of California, as totals per block. These are not the "
            "per-household ratios of scikit-learn's fetch_california_housing."
        ),
        origin="Pace and Barry (1997), through StatLib.",
        terms="public, without an explicit licence.",
    ),
    DataSet(
        name="ozone",
        file=DataFile(
            "ozone.csv",
            "a0283b3e088e4c325ad668e729bcb9c16d4da44701fc7b930b9e65cc41eef04b",
        ),
        n_samples=330,
        n_features=9,
        target="O3, highest hourly ozone of the day",
        about=(
            "Ozone at Upland, California, in 1976, from the weather. The rows are in the order of "
            "the days, so split them at random. Papers with 8 inputs most likely leave out the "
            "last one, the day of the year."
        ),
        origin="Breiman and Friedman (1985); as ozone in the R package faraway.",
        terms="data public, the package GPL.",
    ),
    DataSet(
        name="cpu",
        file=DataFile(
            "cpu.csv",
            "51172e5b53b1b89adfd9416bc269256996aac46a469353b045d8304418b524d4",
        ),
        side_file=DataFile(
            "cpu_extra.csv",
            "fe430ccb03056e5649116897ed8518f0bba97c80e0d0feb71c4272f9ca962504",
        ),
        n_samples=209,
        n_features=6,
        target="PRP, published relative performance",
        about=(
            "Performance of computers from cycle time, memory, cache and channels. Papers with 7 "
            "inputs may count the code of the vendor: ask for it with vendor=True."
        ),
        origin="Ein-Dor and Feldmesser (1987), through UCI (Computer Hardware).",
        terms="CC BY 4.0 (UCI).",
    ),
    DataSet(
        name="bardet",
        file=DataFile(
            "bardet.csv",
            "a669236fa34b5b591308febed0ef151c84cb8a17e1af7e8861d0fc78faff90f6",
        ),
        n_samples=120,
        n_features=100,
        target="trim32, expression of the gene TRIM32",
        about=(
            "Gene expression in the eyes of rats: 20 genes, each spread over 5 B-spline functions. "
            "The five columns of a gene are a group."
        ),
        origin="Scheetz et al. (2006); as bardet in the R package gglasso.",
        terms="package GPL-2.",
    ),
    DataSet(
        name="birthwt",
        file=DataFile(
            "birthwt.csv",
            "3868294f10cfd78ae8b442aa10dfda46383f6c2bfc1f4ccd37de5f96c7f766b6",
        ),
        n_samples=189,
        n_features=16,
        target="bwt, weight at birth in kg",
        about=(
            "Weight at birth and facts about the mother, Baystate Medical Center, 1986. The "
            "columns fall into 8 groups: age and weight of the mother as cubic polynomials, the "
            "others as indicators."
        ),
        origin="Hosmer and Lemeshow (1989); as Birthwt in the R package grpreg.",
        terms="package GPL-3.",
    ),
    DataSet(
        name="riboflavin",
        file=DataFile(
            "riboflavin.csv.gz",
            "2bc6be5b7feffc64496240181e8c7e8dc342727e4c8c74dfa7e4b3a0cdfeab08",
        ),
        n_samples=71,
        n_features=4088,
        target="y, logarithm of the production rate of riboflavin",
        about="Production of vitamin B2 by Bacillus subtilis from the log expression of its genes.",
        origin="DSM; Bühlmann, Kalisch and Meier (2014); as in the R package hdi.",
        terms="package GPL.",
    ),
    DataSet(
        name="mnist",
        file=DataFile(
            "mnist_3000.npz",
            "2a4d2a960cc7e7c4e9ff3a374b1bea6959df1f4a52b2570ee23d209485b222bd",
        ),
        n_samples=3000,
        n_features=784,
        target="the digit, 0 to 9",
        about=(
            "Handwritten digits: 300 of each from the MNIST test set, 28 x 28 pixels from 0 to "
            "255. The bunch has also `index`, the place of each image in that test set."
        ),
        origin="LeCun, Cortes and Burges.",
        terms="CC BY-SA 3.0.",
    ),
    DataSet(
        name="sentiment",
        file=DataFile(
            "sentiment.npz",
            "31e02ee076df28eb8ff9145a7e112870b6aac6f3fd80446485fc24628f37ecdf",
        ),
        n_samples=8000,
        n_features=4434,
        target="stars given: 1, 2, 4 or 5 (none of the reviews has 3)",
        about=(
            "Reviews of products in four domains, 2000 each, as counts of words and pairs of words "
            "that occur in at least 40 reviews. This is the labelled part, not the larger set with "
            "5000 reviews per domain, so compare with published figures with care."
        ),
        origin="Blitzer, Dredze and Pereira (2007), Multi-Domain Sentiment.",
        terms="no explicit licence; for research, citing the paper.",
    ),
    DataSet(
        name="silverbox",
        file=DataFile(
            "silverbox.csv.gz",
            "43d7fd52b930f35acf7213ac610aa5f5dddf9c8c3355fe942db8895616150101",
        ),
        n_samples=131072,
        n_features=1,
        target="V2, volts",
        about=(
            "One record of an electronic circuit that behaves as a mass on a hardening spring "
            "(a Duffing oscillator), measured at 610.35 Hz. The usual use: fit on the first three "
            "quarters of the multisine, simulate the rest of it and the arrow, whose end lies "
            "beyond all amplitudes fitted."
        ),
        origin="Wigren and Schoukens (2013), nonlinear benchmark.",
        terms="free for benchmarking, citing the paper.",
    ),
    DataSet(
        name="cascaded_tanks",
        file=DataFile(
            "cascaded_tanks.csv",
            "c39e7206b7a0eb11e7dba8fd40e5407307dc5f3be47f171674e32e369f8ab24c",
        ),
        n_samples=1024,
        n_features=1,
        target="yEst, volts: level of the lower tank",
        about=(
            "Two water tanks, the upper one fed by a pump and both able to overflow: two records "
            "at 4 s, one to fit and one to test. The levels at the start are not measured."
        ),
        origin="Schoukens, Mattson, Wigren and Noël (2016), nonlinear benchmark.",
        terms="free for benchmarking, citing the paper.",
    ),
)

DATASETS = {entry.name: entry for entry in _SETS}
