"""Parsing and formatting of quantities; the cases are those of apimachinery's tests."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.quantity import QuantityError, format_quantity, parse_quantity
from controller.engine.state.resources import base_units
from tests.work import work_of

KI, MI, GI, TI, PI, EI = (2 ** (10 * power) for power in range(1, 7))

# (text, its exact value in billionths, which is as fine as Kubernetes keeps it)
VECTORS = [
    ("0", 0),
    ("0n", 0),
    ("0Ki", 0),
    # Binary suffixes
    ("8Ki", 8 * KI * 10**9),
    ("7Mi", 7 * MI * 10**9),
    ("6Gi", 6 * GI * 10**9),
    ("100Ti", 100 * TI * 10**9),
    ("4Pi", 4 * PI * 10**9),
    ("3Ei", 3 * EI * 10**9),
    # Decimal suffixes
    ("5n", 5),
    ("4u", 4_000),
    ("3m", 3_000_000),
    ("9", 9 * 10**9),
    ("8k", 8 * 10**12),
    ("7M", 7 * 10**15),
    ("6G", 6 * 10**18),
    ("300T", 300 * 10**21),
    ("2P", 2 * 10**24),
    ("1E", 10**27),
    # Decimal exponents
    ("1E-3", 10**6),
    ("1e3", 10**12),
    ("1E18", 10**27),
    ("1.3E+6", 13 * 10**14),
    ("1e-03", 10**6),
    # What looks like floating point
    ("0.0005k", 5 * 10**8),
    ("0.50000", 5 * 10**8),
    ("0.5e-2", 5 * 10**6),
    ("10.035M", 10_035 * 10**12),
    ("1.53E12", 153 * 10**19),
    ("6.987654321G", 6_987_654_321 * 10**9),
    ("1.01E", 101 * 10**25),
    # What is rounded up or capped
    ("3.001n", 4),
    ("1.1E-9", 2),
    ("0.0000000001", 1),
    ("0.00000012345", 124),
    ("9Ei", (2**63 - 1) * 10**9),
    ("9223372036854775807Ki", (2**63 - 1) * 10**9),
    ("12E", 12 * 10**27),
    # Fractions with a binary suffix
    ("100.035Ki", 10_243_584 * 10**7),
    ("0.05Gi", 536_870_912 * 10**8),
    # Odd, but well formed
    ("0.000000000001Ki", 2),
    (".0001k", 10**8),
    ("1.", 10**9),
    ("1.G", 10**18),
    ("007", 7 * 10**9),
]

INVALID = [
    *("", ".", "-", "m", "aoeu", "nan", "Infinity", "null", "True", "0x10", "1_000", "1,5", "1\x00"),
    *(" 1", "1 ", "1\n", "+-1", "--1", "1+1.0M", "1.1.M"),
    *("0.1mi", "1i", "1KI", "1kI", "1Ki1", "1k3", "-3.01i"),
    *("1e", "1e1.5", "1Ee3", "-3.01e-"),
    "١",  # noqa: RUF001 - a digit, but not one that Kubernetes reads
]


def rounded_up(billionths: int, units: int) -> int:
    return -(-billionths * units // 10**9)


@pytest.mark.parametrize(("text", "billionths"), VECTORS)
def test_quantity_equals_the_value_of_apimachinery(text: str, billionths: int):
    for sign, factor in (("", 1), ("+", 1), ("-", -1)):
        assert parse_quantity("memory", sign + text) == factor * rounded_up(billionths, 1)
        assert parse_quantity("cpu", sign + text) == factor * rounded_up(billionths, 1000)


@pytest.mark.parametrize("text", INVALID)
def test_invalid_quantity_is_rejected_with_its_text(text: str):
    with pytest.raises(QuantityError) as error:
        parse_quantity("cpu", text)
    assert repr(text) in str(error.value)
    assert "cpu" in str(error.value)


@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [
        pytest.param("cpu", "1500m", 1500, id="cpu-in-milli"),
        pytest.param("cpu", "1.0001", 1001, id="cpu-fraction-rounds-up"),
        pytest.param("cpu", "-9.0101", -9011, id="negative-rounds-away-from-zero"),
        pytest.param("memory", "1500m", 2, id="memory-in-whole-bytes"),
        pytest.param("pods", "110", 110_000, id="pods-in-milli"),
        pytest.param("nvidia.com/gpu", "8", 8000, id="gpu-in-milli"),
        pytest.param("ephemeral-storage", "1Gi", GI * 1000, id="storage-in-milli-bytes"),
        pytest.param("hugepages-2Mi", "4Mi", 4 * MI * 1000, id="huge-pages-in-milli-bytes"),
        pytest.param("cpu", -2, -2000, id="integer"),
        pytest.param("cpu", 0.1, 100, id="float-means-its-shortest-text"),
        pytest.param("cpu", 1e22, 10**25, id="float-with-an-exponent"),
        pytest.param("cpu", 1e-7, 1, id="tiny-float"),
    ],
)
def test_base_units_of_memory_and_other_resources(resource: str, text: str | float, amount: int):
    assert parse_quantity(resource, text) == amount
    assert parse_quantity(resource, "1") == base_units(resource)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), True, None])
def test_other_json_values_are_rejected(number: float):
    with pytest.raises(QuantityError):
        parse_quantity("cpu", number)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("9" * 1_000_000, id="a-million-digits"),
        pytest.param("0." + "0" * 1_000_000 + "1", id="a-million-places"),
        pytest.param("0" * 1_000_000, id="a-million-zeros"),
        pytest.param("1e" + "9" * 1_000_000, id="an-exponent-of-a-million-digits"),
        pytest.param("1e2147483648", id="an-exponent-that-wraps"),
        pytest.param("1E+101", id="one-too-much"),
        pytest.param("1" + "." * 1_000_000, id="a-million-points"),
        pytest.param(-(10**1_000_000), id="a-negative-integer-of-a-million-digits"),
    ],
)
def test_huge_number_is_rejected_at_once_with_a_short_error(text: str):
    def reject() -> None:
        with pytest.raises(QuantityError) as error:
            parse_quantity("cpu", text)
        assert len(str(error.value)) < 200

    assert work_of(reject) < 1_000


def test_overlong_resource_name_is_rejected_with_a_short_error():
    assert parse_quantity("r" * 317, "1") == 1000
    with pytest.raises(QuantityError, match="has 1000000 characters") as error:
        parse_quantity("r" * 1_000_000, "1")
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("text", ["1e-100", "1e-2147483649", "0.1e-999999999999", "5n"])
def test_tiny_quantity_is_one_base_unit(text: str):
    assert parse_quantity("cpu", text) == parse_quantity("memory", text) == 1


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        pytest.param("cpu", 0, "0", id="zero"),
        pytest.param("cpu", 1080, "1080m", id="no-decimal-point"),
        pytest.param("cpu", 1_000_000, "1k", id="a-thousand-cpus"),
        pytest.param("cpu", -1500, "-1500m", id="negative"),
        pytest.param("memory", 1536 * MI, "1536Mi", id="largest-whole-suffix"),
        pytest.param("memory", TI, "1Ti", id="tebibyte"),
        # A binary suffix would be read back as the cap.
        pytest.param("memory", 2**70, str(2**70), id="beyond-the-binary-cap"),
        pytest.param("memory", 1000, "1k", id="below-a-kibibyte"),
        pytest.param("memory", 3 * 10**9 + 1, "3000000001", id="no-suffix-fits"),
        pytest.param("memory", -6 * KI, "-6Ki", id="negative-bytes"),
        pytest.param("nvidia.com/gpu", 8000, "8", id="gpu"),
        pytest.param("ephemeral-storage", GI * 1000, "1Gi", id="storage"),
        pytest.param("ephemeral-storage", 1, "1m", id="a-thousandth-of-a-byte"),
        pytest.param("cpu", Fraction(10_000, 3), "3333m", id="a-third-is-rounded-down"),
        pytest.param("memory", Fraction(GI * 3, 2), "1536Mi", id="a-whole-fraction"),
    ],
)
def test_quantity_is_formatted_as_kubectl_prints_it(resource: str, amount: int, text: str):
    assert format_quantity(resource, amount) == text


amounts = st.one_of(
    st.integers(-(10**30), 10**30),
    st.builds(lambda n, p: n * 2**p, st.integers(-5000, 5000), st.integers(0, 70)),
    st.builds(lambda n, p: n * 10**p, st.integers(-5000, 5000), st.integers(0, 30)),
)
names = st.sampled_from(["cpu", "memory", "pods", "nvidia.com/gpu", "ephemeral-storage", "hugepages-2Mi"])


@given(names, amounts)
def test_formatted_quantity_is_parsed_back_equal(resource: str, amount: int):
    assert parse_quantity(resource, format_quantity(resource, amount)) == amount


@given(names, st.text("0123456789.+-eEinumkKMGTP", max_size=12))
def test_any_text_is_parsed_or_rejected(resource: str, text: str):
    try:
        amount = parse_quantity(resource, text)
    except QuantityError:
        return
    assert isinstance(amount, int)
    assert parse_quantity(resource, format_quantity(resource, amount)) == amount
