"""Demo server `calculator`: arithmetic, statistics and units."""

import ast
import math
import operator
import statistics
from collections.abc import Callable
from typing import Any

from smart_mcp_proxy.demo.tool import Server, Tool, array, boolean, integer, items, number, string

__all__ = ["SERVER"]

MAX_EXPRESSION_CHARS = 200
MAX_EXPONENT = 1000
"""With it and the length limit, no expression takes more than milliseconds."""
MAX_RESULT_BITS = 4096
MAX_FACTORIZED = 10**12
"""Trial division up to its root is a million steps."""

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "cos": math.cos,
    "exp": math.exp,
    "log": math.log,
    "log10": math.log10,
    "max": max,
    "min": min,
    "round": round,
    "sin": math.sin,
    "sqrt": math.sqrt,
    "tan": math.tan,
}
_CONSTANTS = {"e": math.e, "pi": math.pi, "tau": math.tau}

_UNITS: dict[str, dict[str, float]] = {
    "length": {"m": 1, "km": 1000, "cm": 0.01, "mm": 0.001, "mi": 1609.344, "yd": 0.9144, "ft": 0.3048, "in": 0.0254},
    "mass": {"kg": 1, "g": 0.001, "t": 1000, "lb": 0.45359237, "oz": 0.028349523125},
    "volume": {"l": 1, "ml": 0.001, "m3": 1000, "gal": 3.785411784, "cup": 0.2365882365},
    "time": {"s": 1, "min": 60, "h": 3600, "d": 86400, "week": 604800},
    "data": {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3},
}
"""Factor to the first unit of each quantity. Source: NIST Special Publication 811, appendix B."""
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_TEMPERATURES = {"C": (1.0, 273.15), "K": (1.0, 0.0), "F": (5 / 9, 459.67 * 5 / 9)}
"""Kelvin = factor * value + offset."""


def evaluate(expression: str) -> dict[str, Any]:
    """The value of an arithmetic expression."""
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except SyntaxError as exc:
        raise ValueError(f"'{expression}' is not an expression: {exc.msg}.") from exc
    result = _value(tree.body)
    if isinstance(result, float) and not math.isfinite(result):
        raise ValueError(f"'{expression}' has no finite value.")
    return {"result": result}


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _combine(type(op), _value(left), _value(right))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS and args:
            return _call(name, [_value(arg) for arg in args])
    raise ValueError(f"'{ast.unparse(node)}' is not allowed. Use numbers, + - * / // % **, {', '.join(_FUNCTIONS)}.")


def _combine(op: type[ast.AST], left: Any, right: Any) -> Any:
    if op is ast.Pow and abs(right) > MAX_EXPONENT:
        raise ValueError(f"The exponent {right} is out of range. Expected at most {MAX_EXPONENT}.")
    result = _OPERATORS[op](left, right)
    if isinstance(result, complex):
        raise ValueError(f"{left} ** {right} is not a real number.")
    if isinstance(result, int) and result.bit_length() > MAX_RESULT_BITS:
        raise ValueError("The value has more than 1,200 digits.")
    return result


def _call(name: str, values: list[Any]) -> Any:
    try:
        return _FUNCTIONS[name](*(values if len(values) > 1 or name not in {"min", "max"} else [values]))
    except TypeError as exc:
        raise ValueError(f"{name} cannot be called that way: {exc}.") from exc


def summarize_numbers(values: list[float]) -> dict[str, Any]:
    """The usual statistics of some numbers."""
    return {
        "count": len(values),
        "sum": math.fsum(values),
        "mean": statistics.fmean(values),
        "median": statistics.median(values),
        "minimum": min(values),
        "maximum": max(values),
        "standard_deviation": statistics.pstdev(values),
    }


def convert_units(value: float, from_unit: str, to_unit: str) -> dict[str, Any]:
    """The same quantity in another unit."""
    if from_unit in _TEMPERATURES and to_unit in _TEMPERATURES:
        factor, offset = _TEMPERATURES[from_unit]
        to_factor, to_offset = _TEMPERATURES[to_unit]
        return {"result": round((value * factor + offset - to_offset) / to_factor, 10), "unit": to_unit}
    for factors in _UNITS.values():
        if from_unit in factors and to_unit in factors:
            return {"result": value * factors[from_unit] / factors[to_unit], "unit": to_unit}
    raise ValueError(f"'{from_unit}' cannot be converted to '{to_unit}'. list_units shows what can.")


def list_units() -> dict[str, Any]:
    """All units that can be converted."""
    quantities = [{"quantity": quantity, "units": " ".join(factors)} for quantity, factors in _UNITS.items()]
    return {"quantities": [*quantities, {"quantity": "temperature", "units": " ".join(_TEMPERATURES)}]}


def factorize(value: int) -> dict[str, Any]:
    """The prime factors of a whole number."""
    factors, rest, divisor = [], value, 2
    while divisor * divisor <= rest:
        while rest % divisor == 0:
            factors.append(divisor)
            rest //= divisor
        divisor += 1 if divisor == 2 else 2
    if rest > 1:
        factors.append(rest)
    return {"factors": factors, "is_prime": factors == [value]}


def convert_base(digits: str, from_base: int, to_base: int) -> str:
    """A whole number in another base."""
    value = int(digits, from_base)
    rest, written = abs(value), ""
    while rest:
        rest, digit = divmod(rest, to_base)
        written = _DIGITS[digit] + written
    return ("-" if value < 0 else "") + (written or "0")


def loan_payment(principal: float, annual_rate_percent: float, months: int) -> dict[str, Any]:
    """The monthly payment of a loan with equal payments."""
    rate = annual_rate_percent / 1200
    payment = principal / months if rate == 0 else principal * rate / (1 - (1 + rate) ** -months)
    total = payment * months
    return {
        "monthly_payment": round(payment, 2),
        "total_paid": round(total, 2),
        "total_interest": round(total - principal, 2),
    }


SERVER = Server(
    instructions="Exact arithmetic, statistics of number lists, unit and base conversion, loan payments.",
    tools=(
        Tool(
            evaluate,
            title="Evaluate an expression",
            description="Calculate an arithmetic expression such as '(2 + 3) * sqrt(16) / pi' exactly.",
            parameters={
                "expression": string(
                    "Numbers, + - * / // % **, parentheses, pi, e, and functions like sqrt, log, sin, round, min, max",
                    maxLength=MAX_EXPRESSION_CHARS,
                )
            },
            output={"result": number("Value of the expression")},
        ),
        Tool(
            summarize_numbers,
            title="Statistics of numbers",
            description="Describe a list of numbers: count, sum, mean (average), median, range, standard deviation.",
            parameters={"values": array("The numbers", "number", minItems=1, maxItems=10_000)},
            output={
                "count": integer("How many"),
                "sum": number("Sum"),
                "mean": number("Arithmetic mean"),
                "median": number("Median"),
                "minimum": number("Smallest"),
                "maximum": number("Largest"),
                "standard_deviation": number("Population standard deviation"),
            },
        ),
        Tool(
            convert_units,
            title="Convert units",
            description="Convert a measurement between units of length, mass, volume, time, data size or temperature.",
            parameters={
                "value": number("How much, in from_unit"),
                "from_unit": string("Unit symbol such as km, lb, gal, h, MiB, C"),
                "to_unit": string("Unit symbol of the same quantity, such as mi, kg, l, min, MB, F"),
            },
            output={"result": number("How much, in the new unit"), "unit": string("The new unit")},
        ),
        Tool(
            list_units,
            title="List units",
            description="List the quantities and unit symbols that convert_units understands.",
            output={
                "quantities": items(
                    "One per quantity", {"quantity": string("Name"), "units": string("Symbols, separated by spaces")}
                )
            },
        ),
        Tool(
            factorize,
            title="Prime factors",
            description="Factorize a whole number into primes and tell whether it is a prime itself.",
            parameters={"value": integer("The number", minimum=2, maximum=MAX_FACTORIZED)},
            output={
                "factors": array("Prime factors, ascending, repeated", "integer"),
                "is_prime": boolean("True if there is only one"),
            },
        ),
        Tool(
            convert_base,
            title="Convert number base",
            description="Rewrite a whole number in another base, for example hexadecimal to binary.",
            parameters={
                "digits": string("The number as written in from_base", minLength=1, maxLength=200),
                "from_base": integer("Base it is written in", minimum=2, maximum=36, default=10),
                "to_base": integer("Base to write it in", minimum=2, maximum=36, default=2),
            },
        ),
        Tool(
            loan_payment,
            title="Loan payment",
            description="Calculate the monthly payment and total interest of a loan or mortgage with equal payments.",
            parameters={
                "principal": number("Amount borrowed", minimum=0, maximum=1e12),
                "annual_rate_percent": number("Interest per year in percent", minimum=0, maximum=1000),
                "months": integer("Number of monthly payments", minimum=1, maximum=1200),
            },
            output={
                "monthly_payment": number("Payment per month"),
                "total_paid": number("Sum of all payments"),
                "total_interest": number("Sum of all payments less the amount borrowed"),
            },
        ),
    ),
)
