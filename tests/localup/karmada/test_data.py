from tests.files import DATA, read_object
from tests.karmada_objects import build_objects


def test_data_files_equal_the_objects_of_the_stand_in():
    files = {file.stem: read_object(file) for file in DATA.glob("*.yaml")}
    assert files == build_objects(), "run python -m tests.karmada_objects"
