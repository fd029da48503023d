"""Versions of transformers that have what the adapters need."""

from fastweights.core.errors import InputError, require

SUPPORTED = ">=5.6.2"


def check_version() -> None:
    """Raises `InputError` unless transformers is installed in a supported version."""
    remedy = "Try pip install 'fastweights[transformers]'."
    try:
        import transformers
        from packaging.specifiers import SpecifierSet
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} must be installed, got no such module. {remedy}") from None
    version = transformers.__version__
    fits = SpecifierSet(SUPPORTED).contains(version, prereleases=True)
    require(fits, "transformers", f"a version {SUPPORTED}", version, remedy)
