from pathlib import Path

import pytest
import yaml

from controller.api.hyperjob_validation import hyperjob_violations, resize_template
from controller.api.hyperjobs import read_hyperjob

FILES = sorted((Path(__file__).parents[3] / "examples").glob("hyperjob-*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_example_is_split_with_the_expected_requests(file):
    (found,) = yaml.safe_load_all(file.read_text())
    hyperjob = read_hyperjob(found)
    assert hyperjob_violations(hyperjob) == ()
    (job,) = hyperjob.spec.replicated_jobs
    assert resize_template(job).total_pods == job.template_spec.total_pods
