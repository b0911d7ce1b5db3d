from msgspec.structs import replace
from torch.utils.data import DataLoader

from gpudash.levers.offers import UNKNOWN
from tests.script.levers.scripts import Training, found, levers
from workloads.take_home import NO_LINES, recipe, recipes


def _known():
    training, data = Training().step(2), DataLoader(range(8), num_workers=1, batch_size=2)
    moved = training.levers()
    moved.update(
        found(training.root, optimizers=[training.optimizer], loader=data, iterator=iter(data))
    )
    return moved


def test_each_value_of_a_scripts_lever_has_a_recipe():
    for offer in (*levers().offers, *_known().offers):
        notes = {value: one.note for value, one in recipes(offer.name, offer.values).items()}
        notes.pop(UNKNOWN, None)
        assert not [note for note in notes.values() if note.startswith(NO_LINES)], offer.name


def test_a_lever_or_a_value_without_a_recipe_is_said_to_have_none():
    offer = replace(levers().offers[0], name="new_lever")
    assert recipe(offer.name).note.startswith(f"{NO_LINES} new_lever;")
    note = recipe("fused_optimizer", UNKNOWN).note
    assert note == f"{NO_LINES} fused_optimizer={UNKNOWN}."
