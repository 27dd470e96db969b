"""What is wrong with a request."""

from ..codes import Code


class RequestError(ValueError):
    """A request that cannot be answered.

    ``field`` is the field that is wrong, ``code`` its permanent code, ``hint`` what to give instead; it may be empty.
    """

    def __init__(self, code: Code, field: str, message: str, hint: str = "") -> None:
        super().__init__(f"{code.name} {field}: {message}" + (f"; {hint}" if hint else ""))
        self.code, self.field, self.message, self.hint = code, field, message, hint

    def __reduce__(self) -> tuple[type["RequestError"], tuple[Code, str, str, str]]:
        return RequestError, (self.code, self.field, self.message, self.hint)  # as it crosses processes
