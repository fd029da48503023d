"""Which versions of transformers are known to work."""

from fastweights.errors import InputError, require

KNOWN = ">=5.6.2,<5.24"


def check_version() -> None:
    """Raises `InputError` unless transformers is installed in a version that is known to work."""
    remedy = "Try pip install 'fastweights[transformers]'."
    try:
        import transformers
        from packaging.specifiers import SpecifierSet
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} must be installed, got no such module. {remedy}") from None
    version = transformers.__version__
    require(SpecifierSet(KNOWN).contains(version), "transformers", f"of a version {KNOWN}", version, remedy)
