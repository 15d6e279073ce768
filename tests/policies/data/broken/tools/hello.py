def run(input: object, ctx: object) -> str:
    return "hello"
