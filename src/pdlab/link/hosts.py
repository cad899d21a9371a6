"""The ends of a link: places where commands run, a network namespace each or this machine."""

from dataclasses import dataclass

from pdlab.link.namespaces import inside


@dataclass(frozen=True, slots=True)
class Host:
    name: str
    """``a`` or ``b``."""
    address: str
    """The IP address that servers on it listen on; where the other host reaches a port of it says
    ``Link.address_of``."""
    namespace: str | None = None

    def command(self, *argv: str) -> list[str]:
        """What to start so that ``argv`` runs on this host."""
        return list(argv) if self.namespace is None else inside(self.namespace, *argv)
