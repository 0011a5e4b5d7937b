from tests.cli.conftest import paper

__all__ = ["paper"]
