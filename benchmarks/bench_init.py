"""Accuracy of `netspec init` and `netspec train` on real datasets, next to scikit-learn on the same split.

For each dataset that `--folder` contains, this writes the files that a user would have (PNG files in class folders, a
table with a header, text files in class folders), runs `netspec init` and `netspec train` on them, and tests on images
or rows that neither has seen: the test data of the dataset, or every fifth sample. scikit-learn fits all training data,
of which netspec holds out a part to stop the training. The folder contains

    fashion_mnist/*.gz, cifar10/*.bin      the original files
    photos/train/CLASS/*.png, photos/test  images in class folders
    adult/adult.data, adult/adult.test     the original files, with a line of column names
    Boston.csv, ames.csv, diamonds.csv     prices of houses and diamonds (R packages MASS, modeldata, ggplot2)
    tweets.csv, reviews.csv                a table with the columns sentiment and text
    spam/CLASS/*.txt                       a text in each file
    AirPassengers.csv, sunspot.month.csv   monthly values, the columns time and value (R package datasets)

or some of them; Rdatasets has the data of R packages in this form. Errors are means of absolute differences. CPU
seconds include all threads. With `--quick`, images are trained for three epochs.

python -m benchmarks.bench_init --folder DATA [--quick] [--json] [--only adult,Boston]
"""

from __future__ import annotations

import csv
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import yaml

from benchmarks import report
from benchmarks.alternate import POOLS, ROOT, BenchmarkError
from benchmarks.results import Results

Array = np.ndarray[Any, Any]
Answers = Sequence[Any] | Array
Table = tuple[list[str], list[list[str]]]
Subjects = Iterator[tuple[str, Callable[[], float]]]
"""Names of netspec and of the baselines, each with a function that trains it and returns its result on test data."""

POINTS, SHARE = 0.02, 0.05
"""Goal: the largest loss of accuracy, and the largest relative increase of the error, against the best baseline."""
EVERY = 5
"""One of N samples becomes test data if a dataset has none."""
MISSING = ("", "?", "NA")


@dataclass(frozen=True)
class Case:
    """A dataset: how it is brought into the layout that a user has, and which baselines are fitted."""

    path: str
    """File or folder, relative to `--folder`."""
    kind: str
    """Key of `KINDS`."""
    target: str = ""
    """Column to predict."""
    goal: float = 0.0
    """Accuracy to reach, whatever the baseline reaches."""


CASES = {
    "fashion_mnist": Case("fashion_mnist", "images", goal=0.9),
    "cifar10": Case("cifar10", "images"),
    "photos": Case("photos", "images"),
    "adult": Case("adult/adult.data", "classes", "Y", goal=0.85),
    "boston": Case("Boston.csv", "numbers", "medv"),
    "ames": Case("ames.csv", "numbers", "Sale_Price"),
    "diamonds": Case("diamonds.csv", "numbers", "price"),
    "tweets": Case("tweets.csv", "sentences", "sentiment"),
    "reviews": Case("reviews.csv", "sentences", "sentiment"),
    "spam": Case("spam", "documents"),
    "passengers": Case("AirPassengers.csv", "series", "value"),
    "sunspots": Case("sunspot.month.csv", "series", "value"),
}


class View:
    """The files of a case in a folder of its own, and the commands of a user."""

    def __init__(self, name: str, case: Case, source: Path, folder: Path, *, quick: bool, threads: int) -> None:
        self.name, self.case, self.source, self.folder, self.quick = name, case, source, folder, quick
        self.run = folder / "run"
        self._environment = {**os.environ, **dict.fromkeys(POOLS, str(threads)), "PYTHONPATH": str(ROOT)}

    def netspec(self, *arguments: str | Path) -> str:
        """Return the standard output of a command. Raises `BenchmarkError` if it fails."""
        command = [sys.executable, "-m", "netspec", *map(str, arguments)]
        process = subprocess.run(
            command, cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False
        )
        if process.returncode:
            raise BenchmarkError(f"netspec {arguments[0]}: {process.stderr.strip()[-500:]}")
        return process.stdout

    def train(self, data: Path, *settings: str, options: Sequence[str] = ()) -> None:
        """Run `netspec init` and `netspec train`."""
        self.netspec("init", data, "--output", self.folder, *options)
        self.netspec("train", self.folder / "train.yaml", *settings, "--run-dir", self.run)

    def answers(self, data: Path) -> list[str]:
        """Return what `netspec predict` answers for a table, or for a folder of files sorted by path."""
        file = self.folder / "answers.csv"
        self.netspec("predict", self.run, "--input", data, "--output", file)
        _, rows = read_csv(file)
        return [row[1] for row in rows]


def processor_seconds() -> float:
    """Return the CPU time of this process and its children so far."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def read_csv(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns, and the rows, without row numbers."""
    with path.open(encoding="utf-8", newline="") as file:
        names, *rows = csv.reader(file, skipinitialspace=True)
    first = int(names[0] in ("", "rownames"))
    return names[first:], [row[first:] for row in rows if row]


def write_csv(path: Path, names: list[str], rows: Sequence[Sequence[str]]) -> Path:
    """Write a table with a header."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    return path


def divided(samples: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return samples for training and for test."""
    order = np.random.default_rng(1).permutation(len(samples))
    return [samples[index] for index in order if index % EVERY], [
        samples[index] for index in order if not index % EVERY
    ]


def accuracy(answers: Answers, truth: Answers) -> float:
    """Return the share of equal answers."""
    return float(np.mean(np.asarray(answers) == np.asarray(truth)))


def error(answers: Answers, truth: Answers) -> float:
    """Return the mean absolute error."""
    return float(np.mean(np.abs(np.asarray(answers, float) - np.asarray(truth, float))))


def images(view: View) -> Subjects:
    """Yield netspec and the baselines for images in class folders: a multilayer perceptron of their pixels."""
    from PIL import Image
    from sklearn.neural_network import MLPClassifier

    folder = view.source
    if not (folder / "train").is_dir():
        folder = view.folder / "images"
        view.netspec("data", "unpack", view.name, folder, "--path", view.source)

    def ours() -> float:
        view.train(folder, *["train.max_epochs=3"] * view.quick)
        return float(json.loads(view.netspec("test", view.run, "--json"))["metrics"]["accuracy"])

    def perceptron() -> float:
        parts = []
        for part in ("train", "test"):
            files = sorted((folder / part).glob("*/*.png"))
            parts.append((_pixels([Image.open(file) for file in files]), [file.parent.name for file in files]))
        (train, labels), (test, truth) = parts
        model = MLPClassifier((256,), early_stopping=True, max_iter=5 if view.quick else 30, random_state=0)
        return accuracy(model.fit(train, labels).predict(test), truth)

    yield "netspec", ours
    yield "perceptron", perceptron


def _pixels(images: Sequence[Any]) -> Array:
    """Return the pixels (N, P) of images from 0 to 1, all in the largest size, and in color if one is."""
    size = tuple(max(sizes) for sizes in zip(*(image.size for image in images), strict=True))
    mode = "L" if all(image.mode == "L" for image in images) else "RGB"
    return np.stack([np.asarray(image.convert(mode).resize(size), np.float32).ravel() / 255 for image in images])


def table(view: View) -> Subjects:
    """Yield netspec, gradient boosting, and a linear model of scaled numbers and one-hot categories."""
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, StandardScaler

    classes = view.case.kind == "classes"
    train, test = _table_parts(view)
    (inputs, labels), (test_inputs, truth) = (_columns(view, *part, numbers=not classes) for part in (train, test))
    numeric = [index for index, column in enumerate(inputs.T) if all(map(_is_number, column))]
    others = [index for index in range(inputs.shape[1]) if index not in numeric]
    for cells in (inputs, test_inputs):
        cells[:, numeric] = np.where(np.isin(cells[:, numeric], MISSING), "nan", cells[:, numeric])
    measure = accuracy if classes else error

    def ours() -> float:
        data = write_csv(view.folder / "train.csv", *train)
        view.train(data, "~data.train.split.test", options=["--target", view.case.target])
        return measure(view.answers(write_csv(view.folder / "test.csv", *test)), truth)

    def baseline(numbers: Any, categories: Any, model: Any) -> Callable[[], float]:
        columns = ColumnTransformer([("numbers", numbers, numeric), ("categories", categories, others)])
        return lambda: measure(make_pipeline(columns, model).fit(inputs, labels).predict(test_inputs), truth)

    ordinal = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan, max_categories=200)
    scaled = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    one_hot = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=5)
    boosting = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    categorical = list(range(len(numeric), inputs.shape[1]))
    linear = LogisticRegression(max_iter=2_000) if classes else RidgeCV(np.logspace(-2, 3, 11))
    floats = FunctionTransformer(np.ndarray.astype, kw_args={"dtype": float})
    yield "netspec", ours
    yield "boosting", baseline(floats, ordinal, boosting(categorical_features=categorical, random_state=0))
    yield "linear", baseline(make_pipeline(floats, scaled), one_hot, linear)


def _table_parts(view: View) -> tuple[Table, Table]:
    """Return names and rows for training and for test."""
    names, rows = read_csv(view.source)
    held_out = view.source.with_suffix(".test")
    train, test = (rows, read_csv(held_out)[1]) if held_out.exists() else divided(rows)
    if held_out.exists():  # labels in adult.test end with a dot
        test = [[cell.removesuffix(".") for cell in row] for row in test]
    return (names, train), (names, test)


def _columns(view: View, names: list[str], rows: list[list[str]], *, numbers: bool) -> tuple[Array, Array]:
    """Return the inputs and the target of a table."""
    target = names.index(view.case.target)
    cells = np.array(rows, object)
    labels = cells[:, target].astype(float if numbers else str)
    return np.delete(cells, target, axis=1), labels


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return cell in MISSING
    return True


def sentences(view: View) -> Subjects:
    """Yield netspec and TF-IDF with logistic regression for texts in a column of a table."""
    names, rows = read_csv(view.source)
    column, target = names.index("text"), names.index(view.case.target)
    train, test = (
        [[row[column], row[target]] for row in part if row[column].strip()] for part in divided(rows)
    )  # fmt: skip
    header = ["text", view.case.target]

    def ours() -> float:
        data = write_csv(view.folder / "train.csv", header, train)
        view.train(data, "~data.train.split.test", options=["--target", view.case.target, "--task", "text"])
        return accuracy(view.answers(write_csv(view.folder / "test.csv", header, test)), [label for _, label in test])

    yield "netspec", ours
    yield "tf-idf", tf_idf(*zip(*train, strict=True), *zip(*test, strict=True))


def documents(view: View) -> Subjects:
    """Yield netspec and TF-IDF with logistic regression for text files in class folders."""
    files = sorted(view.source.glob("*/*.txt"))
    train, test = divided(files)
    for part, part_files in (("reviews", train), ("test", test)):
        for file in part_files:
            copied = view.folder / part / file.parent.name / file.name
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copied)

    def ours() -> float:
        view.train(view.folder / "reviews", "~data.train.split.test")
        return accuracy(view.answers(view.folder / "test"), [file.parent.name for file in sorted(test)])

    read = [([file.read_text(encoding="utf-8") for file in part], [file.parent.name for file in part])
            for part in (train, test)]  # fmt: skip
    yield "netspec", ours
    yield "tf-idf", tf_idf(*read[0], *read[1])


def tf_idf(texts: Sequence[str], labels: Answers, test: Sequence[str], truth: Answers) -> Callable[[], float]:
    """Return a function that fits logistic regression on the TF-IDF of words and pairs of words."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True), LogisticRegression(C=10, max_iter=1_000)
    )
    return lambda: accuracy(model.fit(texts, labels).predict(test), truth)


def series(view: View) -> Subjects:
    """Yield netspec and a ridge regression on the same windows; the last windows in time are test data."""
    from sklearn.linear_model import RidgeCV

    names, rows = read_csv(view.source)
    time = names.index("time")
    for row in rows:
        months = round(float(row[time]) * 12)
        row[time] = f"{months // 12}-{months % 12 + 1:02}-01"
    data = write_csv(view.folder / "train.csv", names, rows)

    values = np.array([float(row[names.index(view.case.target)]) for row in rows])

    def ours() -> float:
        view.train(data, options=["--target", view.case.target, "--task", "forecast"])
        return float(json.loads(view.netspec("test", view.run, "--json"))["in_units"]["mae"])

    def ridge() -> float:
        (past, future), (test, truth) = _windows(view.folder / "train.yaml", values)
        return error(RidgeCV(np.logspace(-3, 3, 13)).fit(past, future).predict(test), truth)

    yield "netspec", ours
    yield "ridge", ridge


def _windows(spec: Path, values: Array) -> list[tuple[Array, Array]]:
    """Return the past and the future of the windows whose future is in the first rows, and of those for test."""
    train = yaml.safe_load(spec.read_text(encoding="utf-8"))["data"]["train"]
    length, horizon = train["windows"]["length"], train["windows"]["horizon"]
    first = len(values) - round(len(values) * train["split"]["test"])
    all_windows = np.lib.stride_tricks.sliding_window_view(values, length + horizon)
    ends = np.arange(length + horizon, len(values) + 1)
    parts = all_windows[ends <= first], all_windows[ends - horizon >= first]
    return [(part[:, :length], part[:, length:]) for part in parts]


KINDS: dict[str, Callable[[View], Subjects]] = {
    "images": images, "classes": table, "numbers": table, "sentences": sentences, "documents": documents,
    "series": series,
}  # fmt: skip


def verdict(case: Case, values: dict[str, float]) -> tuple[float, bool]:
    """Return the goal of a case, and whether netspec reaches it."""
    peers = [value for name, value in values.items() if name != "netspec"]
    if case.kind in ("numbers", "series"):
        most = min(peers) * (1 + SHARE)
        return most, values["netspec"] <= most
    least = case.goal or max(peers) - POINTS
    return least, values["netspec"] >= least


def main() -> int:
    """Run all cases whose data is in the folder."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--folder", type=Path, required=True, help="read the datasets in this folder")
    parser.add_argument("--only", help=f"run these, separated by commas: {', '.join(CASES)} [all]")
    options = report.parsed(parser)
    report.require("sklearn")
    names = options.only.split(",") if options.only else list(CASES)
    if unknown := set(names) - set(CASES):
        raise BenchmarkError(f"no such dataset: {', '.join(sorted(unknown))}")
    results = Results("init", options, "scikit-learn", "numpy")
    for name in names:
        source = options.folder.resolve() / CASES[name].path
        if not source.exists():
            report.say(f"{name}: skipped, {source} does not exist")
            continue
        measure = "error" if CASES[name].kind in ("numbers", "series") else "accuracy"
        result: dict[str, Any] = {"case": name, "measure": measure, "values": {}, "processor": {}}
        try:
            with tempfile.TemporaryDirectory() as folder:
                view = View(name, CASES[name], source, Path(folder), quick=options.quick, threads=options.threads)
                for subject, trained in KINDS[CASES[name].kind](view):
                    start, processor = perf_counter(), processor_seconds()
                    result["values"][subject] = trained()
                    result["processor"][subject] = processor_seconds() - processor
                    took = perf_counter() - start
                    report.say(f"{name}: {subject} {result['values'][subject]:.4f}, {took:.0f} s")
        except BenchmarkError as problem:
            results.fail(problem, case=name)
            continue
        result["goal"], result["reached"] = verdict(CASES[name], result["values"])
        results.add(result)
    return results.end()


if __name__ == "__main__":
    sys.exit(report.run(main))
