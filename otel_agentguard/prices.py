"""What model calls cost, by the price lists of genai-prices."""

from __future__ import annotations

from otel_agentguard.errors import MissingExtraError

try:
    from genai_prices import Usage, calc_price
except ImportError as exc:
    raise MissingExtraError("cost") from exc


def price_usd(model: str, input_tokens: int, output_tokens: int) -> float | None:
    """Price of one model call; takes some 0.2 ms and asks nobody.

    Args:
        model: Name of the model; a provider or gateway before a slash is left out where the whole name is not known.
        input_tokens: Tokens read. What came from a provider's cache is priced like the rest, so the
            price is an upper bound.
        output_tokens: Tokens written.

    Returns:
        US dollars; None where no price of that model is known.
    """
    usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
    for name in dict.fromkeys((model, model.rpartition("/")[2])):
        try:
            return float(calc_price(usage, model_ref=name).total_price)
        except LookupError:
            continue
    return None
