"""``python -m autoquant`` and the console script."""


def main() -> None:
    """Run the command line."""
    from autoquant.cli import app  # noqa: PLC0415

    app()


if __name__ == "__main__":
    main()
