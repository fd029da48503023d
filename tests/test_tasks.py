"""Every task of the tasks folder has every guarantee of the common interface."""

import re
from functools import cache

import pytest
import torch

from fastweights import InputError
from fastweights.registry import TASKS
from fastweights.tasks import Batch, Mean, MissingFile, combine
from fastweights.testing import checks_in, labelled_checks, task_checks

SIZES = (40, 30, 50)
SMALL = {
    "cifar-fs": {"test_size": 200},
    "fc100": {"test_size": 200},
    "mini-imagenet": {"test_size": 200, "side": 28},
    "omniglot": {"test_size": 200},
    "associative-recall": {"vocab_size": 32, "length": 24, "pairs": 5, "evaluation_size": 200},
    "associative-retrieval": {"sizes": (500, 100, 1000)},
    "code-execution": {"sizes": SIZES},
    "copying": {"copied": 12, "evaluation_size": 200},
    "in-context-regression": {"dimension": 3, "length": 12, "evaluation_size": 200},
    "selective-forgetting": {"pairs": 8, "evaluation_size": 200},
    "list-ops": {"depth": 4, "sizes": (200, 100, 1000)},
    # The image sizes of `mini-imagenet` and `omniglot`, so that images are read and scaled once for all three.
    "sequential-adaptation": {"shots": 3, "trim": 4, "side": 28, "test_size": 40, "validation_size": 20},
    "state-tracking": {"length": 40, "evaluation_size": 200},
    "multi30k": {"pieces": 500, "sentences": 300},
    "wmt14": {"pieces": 500, "sentences": 300},
    "letters": {"characters": 9000},
    "text": {"characters": 9000},
    "wikitext-103": {"lines": 300, "held_out": 40},
    "wikitext-2": {"lines": 300, "held_out": 40},
}
"""Options for quick checks. Other tasks have their defaults."""

VARIANTS = {
    "delayed characters": ("omniglot", {"labels": "delayed", "shots": 5, "test_size": 200}),
    "retrieval of updates": ("retrieval", {"setting": "updates"}),
    "retrieval of updates, implied length": ("retrieval", {"setting": "updates", "evaluation_length": "implied"}),
    "code of five variables": ("code-execution", {"variables": 5, "sizes": SIZES}),
    "corrected code": ("code-execution", {"rule": "corrected", "sizes": SIZES}),
    "recall of what was written twice": (
        "associative-recall",
        {"vocab_size": 32, "length": 40, "pairs": 5, "rewritten": 3, "evaluation_size": 200},
    ),
    "recall among distractors, in longer sequences": (
        "associative-recall",
        {"vocab_size": 32, "length": 40, "pairs": 5, "distractors": 9, "evaluation_length": 60, "evaluation_size": 200},
    ),
    "parity over longer sequences": (
        "state-tracking",
        {"length": 10, "evaluation_length": 40, "evaluation_size": 200},
    ),
    "deep lists": ("list-ops", {"depth": 15, "sizes": SIZES}),
    "shallow lists": ("list-ops", {"depth": 3, "sizes": (200, 100, 1000)}),
    "symmetric group": ("state-tracking", {"group": "s5", "length": 20, "evaluation_size": 200}),
    "expressions": ("face-glimpses", {"label": "expression"}),
    "letters and merged gaps": ("letters", {"characters": 9000, "merged": True}),
    "bytes of Wikipedia": ("wikitext-2", {"tokenizer": "bytes", "lines": 300, "held_out": 40}),
}
ALL = {name: (name, SMALL.get(name, {})) for name in TASKS.names()} | VARIANTS

GOLDEN = {
    "sequential-adaptation": "82341ff3da52c55f57682674d572da2baf1ccf42d16254330da091f13723c422",
    "mini-imagenet": "d3fdb21cdd1d286b19082b48d50faf055575d4e8546d443ee3013c0e46eec4cb",
    "gymnasium-environment": "7d71b459e73c25e74fdf41b8d349ecd72b078ed6145546894bd84e792f13aa6c",
    "atari": "62c51200895a65d7b744d96f31713de8b043bb0c9e77075888f74a4e2083c1a3",
    "catch": "ac057464ce9e4ebba41af4a849426f5141c692e50891254c7aa05be4c5129340",
    "t-maze": "62161d14d79979ddebef3ea39c5b153b6299665496fcf8225e3000b8765f463e",
    "delayed characters": "ba4d23c2ed435cf5cb35c199fcefb59bc65b11933e3fcc4a3b3e06f6927bf96f",
    "omniglot": "9ba93a5f594401d5524a42fe2d6ae1d612aa38948ea2bd80e0c96bd3ce540c70",
    "associative-recall": "694931e1e7701e50d7c076aecf4c98f3c536d6992f95b2ade5f2770f3bcde8da",
    "associative-retrieval": "e7c0484df8637edcf71dce9e88767b1bad5ca17cf626256d296d2fa49c01f8e0",
    "code-execution": "61014197dffb326f2c727c2c1079eba868d3bab0cade337a6be608f8ed1807f5",
    "face-glimpses": "de5d3608c8a85e80a151a15c84784ab1df2d0eacdadadafd0412f1fdc65a1886",
    "letters": "8cd0a9f446db831027d1088980a6d5f535a2bc29ac8025a1675c06624582acad",
    "letters and merged gaps": "287e59f5e201656de2611cdd5c20ca80772d66ee0058c19552ff840e2276f7c0",
    "list-ops": "5f237a20b249988b445b701dd67f718ac25fc45c796ba4360573f15631134847",
    "mnist-glimpses": "0d24e87540774d70d5fe840b47bc23139de32517b94cb83d4e7f6fe6b6d26d9a",
    "multi30k": "a11eaf26258043b032ab8574c99059171288d5f455ba8be6758e8c91ca5d1743",
    "retrieval": "c271445ff5653f0bee6bee74cf5219a79a0b668d0a12512f72f31c7f3f93732b",
    "state-tracking": "d6a111ffadeecd9a76973da08e67e745a0b0b90f9fc8c58dd642c9f5d69e18b2",
    "text": "fb3cb3c139b90a4654d703493526775ee7bc330d094c8f96e72d97ae8c5eb1a5",
    "wikitext-2": "66be406992374fc3ab974b7dad6d98eeee68236a3aa168b3404336c5402026b1",
    "wmt14": "88399e8a63f702af6ddc9d0b2c22a460320696d504f572fe7739cbbfb8757ffe",
    "retrieval of updates": "562131fb698335468a5b1c8e78c7506ba1c85114e23431d29f740b2ce627efaa",
    "retrieval of updates, implied length": "252975de7402e01fac2f848e6ab403643731d9760be29a7990c45f3691970c0f",
    "code of five variables": "f034e3006553c9043b83a478c8f2a5bf2c1653209920a79f3abecbb4a993643b",
    "corrected code": "7e26b6e4c11e0f70330967ebfa3c2d593274e4ca9b8e01ef2ff43c554b4cd87a",
    "deep lists": "ebd3912ec42132b5e8eb8fb514497594850018914db0b6b4819612203c69ff21",
    "shallow lists": "9830829651365ce301e6039a090ac9c41d6381421bdc1cf693a2c7c6dd6788ef",
    "symmetric group": "3e9edbd5482de1f86063ced1c9fdaa383239cc7aa706fa93152e09e65372902a",
    "bytes of Wikipedia": "87e2c2147e2f564ede897c0a6a584c14250fa2fbbc5e61a8ab3e30c8ca347544",
    "copying": "9d7ecc1aaa1aaa7d8a39e6c47735041c7ce809adaead64031f71a9dfec562fd1",
    "in-context-regression": "ff94519e2a680d484b3f4765af0ae9ac877db2c36c4aa435d884aec69b9aef81",
    "selective-forgetting": "cf80124aac4e5027d4b08e0f6b09e38f52f26d533e0aec622d0bb0b59696bde5",
    "recall of what was written twice": "d945c9c83c8067f6e9a9d6f5e137b74a62677509c7545ed69b8564752e4f14ce",
    "recall among distractors, in longer sequences": "1a5ee51da1943a469de7c36292e215dc8930c0bdd02da8c11f7fff5b208da324",
    "parity over longer sequences": "71f9926460b57702deeb2eb924dfa87bc224fa20cf0cbe0dcc279f43183f4195",
    "expressions": "f9269eec5ecf5ff41b1c51a9fe4c5bfe59ecf02a27e8d5e101072bf0591d2abf",
}


pytestmark = pytest.mark.usefixtures("real_data")


def maker(name):
    task, options = ALL[name]
    return lambda **changes: TASKS.load(task)(**(options | changes))


def skip_without_data(name):
    reason = missing(name)
    if reason:
        pytest.skip(reason)


@cache
def missing(name):
    """Error for missing data of a task, or an empty string. Cached, since reading data takes most of the time."""
    try:
        checks_of(name).fingerprints(maker(name)())
    except MissingFile as refusal:
        return str(refusal)
    return ""


def checks_of(name):
    """Checks of the kind of a task."""
    return task_checks(TASKS.load(ALL[name][0]))


@pytest.mark.parametrize(("name", "check"), [(name, check) for name in ALL for check in checks_in(checks_of(name))])
def test_guarantee(name, check):
    skip_without_data(name)
    checks_in(checks_of(name))[check](maker(name))


@pytest.mark.parametrize("name", ALL)
def test_data_has_its_committed_fingerprint(name):
    """Results are comparable for equal data only, so this test detects changes of generators."""
    skip_without_data(name)
    fingerprint = checks_of(name).fingerprints(maker(name)())
    if name not in GOLDEN:
        pytest.skip(f"no golden value; the current value is {fingerprint}")
    assert fingerprint == GOLDEN[name]


@pytest.mark.parametrize("name", TASKS.names())
def test_every_task_names_its_formula_and_source(name):
    docstring, source = TASKS.docstring(name), TASKS.describe(name).source
    assert "\n\nInput -> target: " in docstring
    assert re.search(r"\b(19|20)\d\d\b", source), "a source has a year"


def test_metrics_of_batches_are_weighted_by_their_sizes():
    whole = combine([{"accuracy": Mean(3.0, 4)}, {"accuracy": Mean(0.0, 2)}])
    assert whole == {"accuracy": Mean(3.0, 6)}
    assert torch.tensor(Mean(0.0, 0).value).isnan()


def broken(**methods):
    """Parity task with some replaced methods."""
    Parity = TASKS.load("state-tracking")
    kind = type("Broken", (Parity,), methods)
    return lambda **changes: kind(**({"length": 20, "evaluation_size": 60} | changes))


FAULTS = {
    "seeds_reproduce": {"_draw": lambda self, random, n: tokens(torch.randint(2, (n, 20)))},
    "seeds_differ": {"_draw": lambda self, random, n: tokens(torch.zeros(n, 20).long() + 1)},
    "splits_are_disjoint": {"_sequences": lambda self, random, n, length: tokens(torch.ones(n, 20).long())},
    "shapes_types_and_ranges": {"_draw": lambda self, random, n: tokens(torch.full((n, 20), 2))},
    "correct_answers_score_perfectly": {"perfect_outputs": lambda self, targets: self.baseline_outputs(targets)},
    "chance_level_is_the_score_of_a_guess": {
        "chance": property(lambda self: {"loss": self._uniform_loss, "accuracy": 0.9})
    },
    "metrics_do_not_depend_on_batches": {"loss": lambda self, outputs, targets: self._total_loss(outputs, targets)},
    "bad_options_are_refused": {"__post_init__": lambda self: None},
}


def tokens(inputs):
    return Batch(inputs, inputs.clone())


@pytest.mark.parametrize("check", FAULTS)
def test_checks_detect_faults(check):
    with pytest.raises(AssertionError):
        checks_in(labelled_checks)[check](broken(**FAULTS[check]))


def test_unknown_task_is_refused_with_the_nearest_name():
    with pytest.raises(InputError, match=r"task must be one of retrieval, .*Did you mean 'retrieval'"):
        TASKS.load("retreival")
