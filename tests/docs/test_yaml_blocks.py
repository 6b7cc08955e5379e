"""YAML blocks of the documents are valid: objects can be used with `-f`, values of the chart are a configuration."""

import re

import pytest
import yaml

from controller.api.configuration import API_VERSION, KIND, check_configuration
from controller.cli.input.manifests import read
from controller.cli.input.objects import validate_objects
from docs import generate

BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES = [*generate.ROOT.glob("*.md"), *sorted((generate.ROOT / "docs").rglob("*.md"))]
BLOCKS = {
    f"{page.relative_to(generate.ROOT)}-{number}": text
    for page in PAGES
    for number, text in enumerate(BLOCK.findall(page.read_text()), start=1)
}
VALUES = [name for name, text in BLOCKS.items() if "apiVersion:" not in text.splitlines()[0]]


@pytest.mark.parametrize("name", [name for name in BLOCKS if name not in VALUES])
def test_yaml_block_can_be_used_with_f(name, tmp_path):
    path = tmp_path / "block.yaml"
    path.write_text(BLOCKS[name])
    validate_objects(read([str(path)]), strict=True)


@pytest.mark.parametrize("name", VALUES)
def test_values_block_is_a_valid_configuration(name):
    values = yaml.safe_load(BLOCKS[name])
    if "admission" in values:
        check_configuration({"apiVersion": API_VERSION, "kind": KIND, **values["admission"]})
    else:
        assert set(values) <= set(yaml.safe_load((generate.CHART / "values.yaml").read_text()))
