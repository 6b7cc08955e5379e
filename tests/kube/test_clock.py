from controller.kube.timing import SteadyClock


class Machine:
    """A system clock that tests can set, and a monotonic one."""

    def __init__(self) -> None:
        self.day = 1_000_000_000
        self.up = 50.0

    def pass_seconds(self, seconds: float) -> None:
        self.up += seconds
        self.day += round(seconds * 1000)


def steady(machine: Machine) -> SteadyClock:
    return SteadyClock(lambda: machine.day, lambda: machine.up)


def test_steady_clock_follows_system_clock():
    machine = Machine()
    clock = steady(machine)
    machine.pass_seconds(7)
    assert clock() == machine.day


def test_clock_set_back_slows_steady_clock():
    machine = Machine()
    clock = steady(machine)
    before = clock()
    machine.day -= 600_000
    assert clock() == before
    machine.pass_seconds(10)
    assert clock() == before + 9000


def test_clock_set_forward_speeds_up_steady_clock():
    machine = Machine()
    clock = steady(machine)
    before = clock()
    machine.day += 1000
    machine.pass_seconds(5)
    assert clock() == before + 5500
    machine.pass_seconds(5)
    assert clock() == machine.day
