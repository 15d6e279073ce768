"""Fetches a list of URLs and says of each what became of it; a refusal is an exception with a reason."""


async def run(input, ctx):
    return [await _one(url, ctx) for url in input["urls"]]


async def _one(url, ctx):
    try:
        reply = await ctx.fetch(url)
    except Exception as error:
        return {"url": url, "refused": getattr(error, "reason", type(error).__name__)}
    return {"url": url, "status": reply.status, "body": reply.text[:60]}
