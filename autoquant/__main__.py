"""``python -m autoquant`` and the console script."""

import sys


def main() -> None:
    """Run the command line."""
    try:
        from autoquant.cli import app  # noqa: PLC0415

        app()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
