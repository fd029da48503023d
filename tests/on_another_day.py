"""Script that `test_saving.py` runs in another process, to load parts that this process did not create."""

import sys

import torch
from torch.utils._pytree import tree_leaves

import fastweights


def main(folder):
    # Programs first, while the process has imported nothing but `fastweights`.
    layer, model = (torch.export.load(f"{folder}/{name}.pt2").module() for name in ("layer", "model"))
    x, tokens = torch.load(f"{folder}/inputs.pt")
    want = torch.load(f"{folder}/outputs.pt")

    state = fastweights.make_layer("delta-net", 8, num_heads=2).initial_state(2)
    assert torch.equal(layer(x, state)[0], want["layer"])
    print("program-of-a-layer")

    flat, nested = torch.load(f"{folder}/states.pt", weights_only=True)
    assert type(flat).__name__ == "MemoryState"
    assert type(nested).__name__ == "StackState"
    print("states-are-read-with-weights_only")

    try:
        model(tokens, nested)
    except fastweights.InputError as error:
        print("program-names-what-to-import" if "Import my_memories first." in str(error) else error)

    from my_memories import fading

    assert torch.equal(model(tokens, nested)[0], want["continued"])
    print("program-of-a-model")

    layers = torch.load(f"{folder}/layers.pt", weights_only=False)
    assert all(
        torch.equal(layer_of_user(x[:, :6])[0], y) for layer_of_user, y in zip(layers, want["layers"], strict=True)
    )
    print("layers")

    net = fastweights.LanguageModel(5, ["gated-delta", fading], 8, num_layers=3, num_heads=2).eval()
    net.load_state_dict(torch.load(f"{folder}/model.pt"))
    loaded = net.initial_state(1).load(f"{folder}/nested.safetensors")
    assert all(map(torch.equal, tree_leaves(loaded), tree_leaves(nested)))
    assert torch.equal(net(tokens, loaded)[0], want["continued"])
    print("state-continues")


if __name__ == "__main__":
    main(sys.argv[1])
