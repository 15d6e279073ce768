"""An honest tool: it reads its one credential, fetches one host, emits an event and returns JSON."""

import os


async def run(input, ctx):
    reply = await ctx.fetch(input["url"], headers={"Authorization": f"Bearer {os.environ['METRICS_TOKEN']}"})
    rows = reply.json()["rows"]
    ctx.emit("METRICS_SAMPLED", {"rows": len(rows)})
    return {"status": reply.status, "busiest": max(rows, key=lambda row: row["cpu"])}
