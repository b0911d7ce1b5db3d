from msgspec.structs import replace
from torch.utils.data import DataLoader

from gpudash.diagnosis.effects import EFFECTS
from gpudash.levers.offers import UNKNOWN
from gpudash.workload_levers import levers_of
from tests.diagnosis.recorded import NAMES, recorded
from tests.script.levers.scripts import Training, levers
from workloads import CATALOGUE
from workloads.take_home import NO_LINES, recipe, recipes


def test_each_value_of_a_scripts_lever_has_a_recipe():
    training, data = Training().step(2), DataLoader(range(8), num_workers=1, batch_size=2)
    known = training.levers(loader=data, iterator=iter(data))
    for offer in (*levers().offers, *known.offers):
        notes = {value: one.note for value, one in recipes(offer.name, offer.values).items()}
        notes.pop(UNKNOWN, None)
        assert not [note for note in notes.values() if note.startswith(NO_LINES)], offer.name


def test_a_lever_or_a_value_without_a_recipe_is_said_to_have_none():
    offer = replace(levers().offers[0], name="new_lever")
    assert recipe(offer.name).note.startswith(f"{NO_LINES} new_lever;")
    note = recipe("fused_optimizer", UNKNOWN).note
    assert note == f"{NO_LINES} fused_optimizer={UNKNOWN}."


def test_each_lever_helps_in_a_known_way():
    offered = (one for name in NAMES for one in recorded(name).known.levers)
    of_workloads = (one for entry in CATALOGUE.values() for one in levers_of(entry.of_processes()))
    helps = (dict(one.helps) for one in (*offered, *of_workloads, *levers().offers))
    said = {word for words in helps for word in words.values()}
    in_frozen = {one for one in EFFECTS if one.endswith(" in frozen models")}
    assert said == EFFECTS.keys() - in_frozen
    assert {one.removesuffix(" in frozen models") for one in in_frozen} <= said
