import pytest

from tests.mutants.transformations import Drop, DropKeyword, IterateOnce, Replace, ReplaceArgument, transform

SOURCE = """
class Greeter:
    def greet(self, names):
        for name in names:
            print(name, len(name), sep=", ")
        while names and self.more():
            log(len(names))
        x = 1
        return names
"""


def transformed(transformation) -> str:
    return transform(SOURCE, "Greeter.greet", transformation)


@pytest.mark.parametrize(
    ("transformation", "before", "after"),
    [
        pytest.param(Replace("len(name)", by="0"), "len(name)", "0", id="expression"),
        pytest.param(Replace("x=1", by="return None"), "x = 1", "return None", id="statement"),
        pytest.param(ReplaceArgument("print", "name", by="'a'"), "print(name", "print('a'", id="argument"),
        pytest.param(Drop("len(name)"), ", len(name)", "", id="drop-argument"),
        pytest.param(Drop("log(len(names))"), "log(len(names))", "pass", id="drop-only-statement"),
        pytest.param(Drop("self.more()"), "names and self.more()", "names", id="drop-operand"),
        pytest.param(DropKeyword("sep"), ", sep=', '", "", id="drop-keyword"),
        pytest.param(IterateOnce("names"), "in names:", "in [*names][:1]:", id="for"),
        pytest.param(IterateOnce("names and self.more()"), "while", "if", id="while"),
    ],
)
def test_transformation_changes_the_matching_node(transformation, before, after):
    unchanged = transformed(Replace("1", by="1"))
    assert unchanged.count(before) == 1
    assert transformed(transformation) == unchanged.replace(before, after)


@pytest.mark.parametrize(
    "transformation",
    [pytest.param(Replace("names", by="()"), id="several"), pytest.param(Drop("nothing()"), id="none")],
)
def test_transformation_without_unique_match_fails(transformation):
    with pytest.raises(LookupError, match=r"nodes of Greeter\.greet match"):
        transformed(transformation)


def test_unknown_definition_fails():
    with pytest.raises(LookupError, match="'leave'"):
        transform(SOURCE, "Greeter.leave", Drop("x = 1"))
