"""Few-shot networks: sizes, connections, and one image at a time."""

from itertools import pairwise

import pytest
import torch

from fastweights import InputError
from fastweights.models.few_shot_network import FewShotNetwork, OutputsAndFeatures
from fastweights.models.vision.conv_4 import Conv4
from fastweights.models.vision.res_12 import Res12
from fastweights.registry import VISION_ENCODERS
from fastweights.tasks.kinds._episode_batches import EpisodeInputs
from fastweights.tasks.kinds._prototypes import prototype_loss
from fastweights.testing.tolerance import error, tolerance

ONE, COLOURS = [[[0.0], [1.0]]], [[[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]], [[0.922] * 3, [0.084] * 3]]
MEMORIES = {
    "delta-net": {"layer": "delta-net"},
    "srwm": {"layer": "srwm", "norm": "raw-input"},
    "fake-srwm": {"layer": "fake-srwm", "norm": "raw-input"},
    "lstm": {"layer": "lstm", "memory": "layer"},
    "a layer without input size": {"layer": "delta-net", "memory": "layer"},
    "snail": {"memory": "snail"},
}
SMALL = {"d_model": 16, "num_heads": 2, "d_ff": 32, "vision_options": {"width": 8}}


def count(module):
    return sum(p.numel() for p in module.parameters())


def network(name, **changes):
    return FewShotNetwork(1, 28, 5, 6, ONE, **{**SMALL, **MEMORIES[name], **changes})


def episodes(n=3, steps=6, channels=1, side=28):
    images = torch.randint(256, (n, steps, channels, side, side), dtype=torch.uint8)
    return EpisodeInputs(images, torch.randint(6, (n, steps)), torch.zeros(n, steps, dtype=torch.long))


@pytest.mark.parametrize(
    ("channels", "side", "width", "features", "parameters"),
    [(1, 28, 64, 64, 111_936), (3, 84, 32, 800, 28_896), (3, 32, 32, 128, 28_896)],
)
def test_conv_4_has_the_features_of_the_paper(channels, side, width, features, parameters):
    """Irie et al. 2022, Appendix B: 64, 800 and 128 features for Omniglot, Mini-ImageNet and FC100.

    Computed by hand: 9 C W + W per convolution and 2 W per normalisation.
    """
    net = Conv4(channels, side, width)
    assert net.features == features
    assert count(net) == parameters == 9 * channels * width + 27 * width**2 + 12 * width
    assert net(torch.rand(2, channels, side, side)).shape == (2, features)


def test_res_12_has_the_channels_of_the_paper():
    """64, 96, 128 and 256 channels: 10 C W + 18 W^2 for the convolutions of a block, 8 W for its normalisations."""
    net = Res12(3, 84)
    widths = (3, 64, 96, 128, 256)
    expected = sum(10 * c * w + 18 * w**2 + 8 * w for c, w in pairwise(widths))
    assert count(net) == expected == 2_232_448
    assert net.features == 256
    assert net(torch.rand(2, 3, 84, 84)).shape == (2, 256)


@pytest.mark.parametrize("name", VISION_ENCODERS.names())
def test_images_are_independent_in_evaluation(name):
    net = VISION_ENCODERS.load(name)(3, 36).double().eval()
    images = torch.rand(4, 3, 36, 36, dtype=torch.float64)
    images_one_by_one = torch.cat([net(image[None]) for image in images])
    assert (net(images) - images_one_by_one).abs().max() < tolerance(torch.float64).forward


@pytest.mark.parametrize("name", MEMORIES)
def test_one_image_at_a_time_equals_the_whole_sequence(name):
    net = network(name).double().eval()
    episode = episodes()
    whole, state = net.classify(*episode[:2])
    assert (net(episode, 6) - whole).abs().max() < tolerance(torch.float64).forward
    outputs, carried = [], None
    for t in range(6):
        output, carried = net.classify(episode.images[:, t : t + 1], episode.labels[:, t : t + 1], carried)
        outputs.append(output)
    assert (torch.cat(outputs, dim=1) - whole).abs().max() < tolerance(torch.float64).forward
    from_carried, _ = net.classify(*episode[:2], carried)
    from_state, _ = net.classify(*episode[:2], state)
    assert (from_carried - from_state).abs().max() < tolerance(torch.float64).forward


@pytest.mark.parametrize("name", MEMORIES)
def test_outputs_depend_on_earlier_labels(name):
    net = network(name).double().eval()
    episode = episodes()
    assert (net(episode, 1) - net(episode, 6)[:, -1:]).abs().max() < tolerance(torch.float64).forward
    changed_labels = episode._replace(labels=(episode.labels + torch.eye(6, dtype=torch.long)[0]) % 6)
    change = (net(changed_labels, 6) - net(episode, 6)).abs().amax((0, 2))
    assert change[0] > 0
    assert (change[-1] > 0) == (name != "fake-srwm"), "only a network without memory ignores earlier labels"


def test_blocks_equal_the_code_of_the_authors():
    """[features, one-hot] -> D; DeltaNet after its LayerNorm; the SRWM parallel to it, on the raw input."""
    episode = episodes()
    net = network("srwm").double().eval()
    features = net.vision(episode.images.flatten(0, 1).double() / 255).unflatten(0, (3, 6))
    x = net.input_projection(torch.cat([features, torch.eye(6, dtype=torch.float64)[episode.labels]], dim=-1))
    for block in net.memory:
        x = block.layer_norm(x) + block.layer(x)[0]
        x = x + block.feed_forward(block.feed_forward_norm(x))
    assert (net.head(x) - net(episode, 6)).abs().max() < tolerance(torch.float64).forward
    assert (
        count(network("srwm", d_model=256, num_heads=16, d_ff=1024).memory[0].layer) == 16 * (3 * 16 + 4) * 16 + 256**2
    )


def test_pixels_have_the_normalisation_of_their_data_set():
    net = FewShotNetwork(3, 28, 5, 5, COLOURS, **{**SMALL, **MEMORIES["delta-net"]})
    images = torch.full((1, 2, 3, 28, 28), 255, dtype=torch.uint8)
    pixels = net._normalised(images, torch.tensor([[0, 1]]))[0, :, :, 0, 0]
    expected = torch.tensor([[(1 - m) / d for m, d in zip(*moments, strict=True)] for moments in COLOURS])
    assert (pixels - expected).abs().max() < 1e-5


def prototype_loss_by_loops(features, classes):
    """The loss of prototypes as loops: each image is compared with the means of the other images, class by class."""
    losses = []
    for f, labels in zip(features, classes.tolist(), strict=True):
        for t, label_of_image in enumerate(labels):
            others = {c: [f[s] for s, label in enumerate(labels) if label == c and s != t] for c in set(labels)}
            if others[label_of_image]:
                similarities = {c: -(f[t] - torch.stack(of).mean(0)).square().sum() for c, of in others.items() if of}
                losses.append(torch.stack([*similarities.values()]).logsumexp(0) - similarities[label_of_image])
    return sum(losses) / max(len(losses), 1)


@pytest.mark.parametrize("classes", [[[0, 1, 1, 0, 1], [2, 2, 2, 2, 0]], [[3, 3, 0, 1, 2], [0, 1, 2, 3, 4]]])
def test_loss_of_prototypes_equals_its_definition(classes):
    features = torch.randn(2, 5, 3, requires_grad=True)
    classes = torch.tensor(classes)
    loss, expected = prototype_loss(features, classes), prototype_loss_by_loops(features, classes)
    gradients = [torch.autograd.grad(value, features)[0] for value in (loss, expected)]
    assert error(loss, expected) < tolerance(torch.float32).forward
    assert error(*gradients) < tolerance(torch.float32).gradient


def test_loss_of_prototypes_is_zero_for_single_images():
    features = torch.randn(2, 4, 3, requires_grad=True)
    loss = prototype_loss(features, torch.arange(4).expand(2, -1))
    assert loss == 0
    assert not torch.autograd.grad(loss, features)[0].any()


def test_vision_encoder_has_an_additional_loss_in_training_only():
    net, episode = network("delta-net", vision_loss=0.5), episodes()
    result = net(episode, 4)
    assert isinstance(result, OutputsAndFeatures)
    assert (result.outputs.shape[:2], result.features.shape[:2], result.weight) == ((3, 4), (3, 6), 0.5)
    assert torch.equal(result.labels, episode.labels)
    assert net.eval()(episode, 4).shape == (3, 4, 5)
    assert isinstance(network("delta-net")(episode, 4), torch.Tensor)


def test_invalid_networks_are_rejected():
    with pytest.raises(InputError, match="memory must be one of blocks, layer, snail"):
        network("delta-net", memory="block")
    with pytest.raises(InputError, match=f"vision encoder must be one of {', '.join(VISION_ENCODERS.names())}"):
        network("delta-net", vision="conv-5")


def test_dqn_has_the_parameters_of_the_paper():
    """Mnih et al. 2015: four images of 84 x 84 pixels, 512 features."""
    net = VISION_ENCODERS.load("dqn")(4, 84, 512)
    assert count(net) == 8 * 8 * 4 * 32 + 32 + 4 * 4 * 32 * 64 + 64 + 3 * 3 * 64 * 64 + 64 + 7 * 7 * 64 * 512 + 512
    with pytest.raises(InputError, match="side must be at least 36, got 35"):
        VISION_ENCODERS.load("dqn")(4, 35)


def test_a3c_has_the_parameters_of_the_paper():
    """Mnih et al. 2016: four images of 84 x 84 pixels, 256 features."""
    net = VISION_ENCODERS.load("a3c")(4, 84)
    assert count(net) == 8 * 8 * 4 * 16 + 16 + 4 * 4 * 16 * 32 + 32 + 9 * 9 * 32 * 256 + 256
    with pytest.raises(InputError, match="side must be at least 20, got 19"):
        VISION_ENCODERS.load("a3c")(4, 19)
